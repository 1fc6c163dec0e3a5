//! What the replays of different kinds share: reading the files of cases, and the fields in which two objects differ.

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The cases in the JSON files of a folder, ordered by file name.
pub(crate) fn load<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let cases = paths.iter().map(|path| {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("`{}` is not a case", path.display()))
    });
    cases.collect()
}

/// Calls `found` with the place of every difference and with both values there.
pub(crate) fn differences(
    place: &str,
    kai: &Value,
    ours: &Value,
    found: &mut impl FnMut(&str, &Value, &Value),
) {
    match (kai, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for field in fields {
                let none = Value::Null;
                let (a, b) = (a.get(field).unwrap_or(&none), b.get(field).unwrap_or(&none));
                differences(&format!("{place} {field}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{place} {index}"), a, b, found);
            }
        }
        _ if kai == ours || (kai.is_number() && kai.as_f64() == ours.as_f64()) => {}
        _ => found(place, kai, ours),
    }
}

/// The numbers of the rules that `docs/differences.md` lists under a letter.
#[cfg(test)]
pub(crate) fn documented_rules(letter: char) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences.md");
    let text = fs::read_to_string(page).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_prefix(letter));
    let numbers = rows.filter_map(|row| row.split(' ').next());
    numbers.filter(|id| id.bytes().all(|digit| digit.is_ascii_digit())).map(str::to_owned).collect()
}
