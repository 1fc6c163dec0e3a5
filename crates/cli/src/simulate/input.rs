//! Detects the format of a file by its content: a snapshot, or the input of one of KAI's fair share simulators.

use super::fair_share::FairShareRequest;
use super::time_based::Scenario;
use anyhow::{Context as _, Result};
use kai_cache::snapshot::Limits;
use kai_cache::{Snapshot, snapshot};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

/// The path that stands for standard input.
const STDIN: &str = "-";
/// Larger files are snapshots.
const SIMULATOR_BYTES_MAX: u64 = 4 << 20;

pub(super) enum Input {
    Snapshot(Box<Snapshot>),
    /// Nodes, queues and jobs of the time-based fair share simulator.
    TimeBased(Scenario),
    /// A request to the fair share simulator.
    FairShare(FairShareRequest),
}

pub(super) fn read(path: &Path) -> Result<Input> {
    if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        return read_from("standard input", Cursor::new(bytes));
    }
    let name = path.display().to_string();
    read_from(&name, File::open(path).with_context(|| format!("cannot read `{name}`"))?)
}

fn read_from(name: &str, mut input: impl Read + Seek + Send) -> Result<Input> {
    let value = small_value(&mut input);
    input.rewind().with_context(|| format!("cannot read `{name}`"))?;
    if let Some(value) = value {
        match form(&value) {
            Form::FairShare => return Ok(Input::FairShare(FairShareRequest::read(name, &value)?)),
            Form::TimeBased => return Ok(Input::TimeBased(Scenario::read(name, &value)?)),
            Form::Other => {}
        }
    }
    Ok(Input::Snapshot(Box::new(snapshot::read(name, input, Limits::default())?)))
}

/// The form of a file.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    FairShare,
    TimeBased,
    Other,
}

/// A small JSON or YAML file as a value. Whatever cannot be read is left to the reader of snapshots, which says why.
fn small_value(file: &mut impl Read) -> Option<Value> {
    let mut bytes = Vec::new();
    let read = file.take(SIMULATOR_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    if read as u64 > SIMULATOR_BYTES_MAX || bytes.starts_with(b"PK") {
        return None;
    }
    let text = String::from_utf8(bytes).ok()?;
    if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).ok()
    } else {
        serde_saphyr::from_str(&text).ok()
    }
}

fn form(value: &Value) -> Form {
    let Some(members) = value.as_object() else { return Form::Other };
    let names: BTreeSet<String> = members.keys().map(|name| name.to_lowercase()).collect();
    let has = |name: &str| names.contains(name);
    if has("rawobjects") || has("apiversion") || !has("queues") {
        Form::Other
    } else if has("totalresource") {
        Form::FairShare
    } else if ["jobs", "halflifeperiod", "kvalue", "windowsize", "cycles"].into_iter().any(has) {
        Form::TimeBased
    } else {
        Form::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn format_is_detected_by_field_names() {
        assert_eq!(form(&json!({"totalResource": {}, "queues": []})), Form::FairShare);
        assert_eq!(form(&json!({"Queues": [], "Jobs": {}})), Form::TimeBased);
        assert_eq!(form(&json!({"queues": [], "halfLifePeriod": 0})), Form::TimeBased);
        assert_eq!(form(&json!({"rawObjects": {}, "queues": [], "jobs": 1})), Form::Other);
        assert_eq!(form(&json!({"queues": []})), Form::Other);
        assert_eq!(form(&json!([1])), Form::Other);
    }
}
