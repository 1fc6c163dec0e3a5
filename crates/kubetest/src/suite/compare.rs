//! Compares two transcripts, and separates accepted differences from others.
//!
//! `tests/api-suite/differences.yaml` lists the accepted differences of the embedded server, with reasons. An entry covers
//! features, steps and paths; `*` matches any text.

use super::{Entry, Error};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Accepted differences.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    pub differences: Vec<Listed>,
}

/// An accepted difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    pub id: String,
    /// Feature patterns.
    pub features: Vec<String>,
    /// Step patterns.
    #[serde(default = "anything")]
    pub steps: Vec<String>,
    /// Path patterns, such as `/body/metadata/*`.
    #[serde(default = "anything")]
    pub paths: Vec<String>,
    pub reason: String,
}

fn anything() -> Vec<String> {
    vec!["*".to_owned()]
}

/// A difference between two responses.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// JSON pointer into the entry.
    pub path: String,
    /// The recorded value.
    pub expected: Option<Value>,
    /// The value of the target.
    pub found: Option<Value>,
    /// The id of the accepted difference that covers it.
    pub listed: Option<String>,
}

#[derive(Debug)]
pub struct Compared {
    pub step: String,
    pub differences: Vec<Difference>,
}

impl Compared {
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Whether all differences are accepted.
    pub fn is_listed(&self) -> bool {
        !self.is_equal() && self.differences.iter().all(|difference| difference.listed.is_some())
    }
}

impl Differences {
    /// Reads `differences.yaml` of a folder; empty where it does not exist.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("differences.yaml");
        if !path.exists() {
            return Ok(Self::default());
        }
        let text =
            std::fs::read_to_string(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        serde_saphyr::from_str(&text).map_err(|error| Error::Malformed { path, problem: error.to_string() })
    }

    fn covering(&self, feature: &str, step: &str, path: &str) -> Option<&Listed> {
        let any = |patterns: &[String], text: &str| patterns.iter().any(|pattern| matches(pattern, text));
        self.differences.iter().find(|listed| {
            any(&listed.features, feature) && any(&listed.steps, step) && any(&listed.paths, path)
        })
    }
}

/// Compares the transcript of a target with the expected one.
pub fn compare(feature: &str, expected: &[Entry], found: &[Entry], listed: &Differences) -> Vec<Compared> {
    let mut responses: BTreeMap<&str, &Entry> =
        found.iter().map(|entry| (entry.step.as_str(), entry)).collect();
    let mut all = Vec::new();
    for entry in expected {
        let mut differences = Vec::new();
        let response = responses.remove(entry.step.as_str());
        differ("", Some(&flat(entry)), response.map(flat).as_ref(), &mut differences);
        for difference in &mut differences {
            difference.listed =
                listed.covering(feature, &entry.step, &difference.path).map(|listed| listed.id.clone());
        }
        all.push(Compared { step: entry.step.clone(), differences });
    }
    // Steps that are not recorded.
    for (step, entry) in responses {
        let found = Some(Value::from(entry.code));
        let differences =
            vec![Difference { path: "/not recorded".to_owned(), expected: None, found, listed: None }];
        all.push(Compared { step: step.to_owned(), differences });
    }
    all
}

fn flat(entry: &Entry) -> Value {
    serde_json::to_value(entry).unwrap_or(Value::Null)
}

fn differ(path: &str, expected: Option<&Value>, found: Option<&Value>, differences: &mut Vec<Difference>) {
    match (expected, found) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                differ(&below(path, key), left.get(key), right.get(key), differences);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right)))
            if left.len() != right.len()
                && let (Some(left), Some(right)) = (named(left), named(right)) =>
        {
            // Compared by name: one additional element would make all later ones differ.
            let mut names: Vec<&str> = left.keys().chain(right.keys()).copied().collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                differ(&below(path, name), left.get(name).copied(), right.get(name).copied(), differences);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                differ(&format!("{path}/{index}"), left.get(index), right.get(index), differences);
            }
        }
        (left, right) if left == right => {}
        (left, right) => differences.push(Difference {
            path: path.to_owned(),
            expected: left.cloned(),
            found: right.cloned(),
            listed: None,
        }),
    }
}

/// The path of a field; keys of kept parts are paths already.
fn below(path: &str, key: &str) -> String {
    if key.starts_with('/') { format!("{path}{key}") } else { format!("{path}/{key}") }
}

/// The elements of a list by name, where all names are present and unique.
fn named(items: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let mut all = BTreeMap::new();
    for item in items {
        let name = item.get("name").or_else(|| item.get("resource"))?.as_str()?;
        if all.insert(name, item).is_some() {
            return None;
        }
    }
    Some(all)
}

/// Whether a pattern, in which `*` matches any text, matches the whole text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(step: &str, body: Value) -> Entry {
        Entry { step: step.to_owned(), code: 200, body, ..Entry::default() }
    }

    #[test]
    fn differences_have_paths_and_are_matched_to_the_list() {
        let listed = Differences {
            differences: vec![Listed {
                id: "ours".to_owned(),
                features: vec!["crud".to_owned()],
                steps: anything(),
                paths: vec!["/body/b/*".to_owned()],
                reason: "so".to_owned(),
            }],
        };
        let expected = [entry("get", json!({"a": 1, "b": [1, 2]})), entry("same", json!(null))];
        let found = [entry("get", json!({"a": 2, "b": [1, 3]})), entry("same", json!(null))];
        let compared = compare("crud", &expected, &found, &listed);
        let paths: Vec<_> =
            compared[0].differences.iter().map(|one| (one.path.as_str(), one.listed.as_deref())).collect();
        assert_eq!(paths, [("/body/a", None), ("/body/b/1", Some("ours"))]);
        assert!(!compared[0].is_listed());
        assert!(compared[1].is_equal());
    }

    #[test]
    fn missing_list_element_is_one_difference() {
        let expected = [entry("get", json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]))];
        let found = [entry("get", json!([{"name": "b"}, {"name": "c"}]))];
        let compared = compare("crud", &expected, &found, &Differences::default());
        let paths: Vec<_> = compared[0].differences.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["/body/a"]);
    }

    #[test]
    fn step_without_recording_is_a_difference() {
        let compared = compare("crud", &[], &[entry("new", json!(1))], &Differences::default());
        assert_eq!(compared[0].differences[0].path, "/not recorded");
    }

    #[test]
    fn star_matches_any_text() {
        assert!(matches("/body/*/name", "/body/items/3/name"));
        assert!(!matches("/body/*/name", "/body/items/3/names"));
        assert!(matches("*", ""));
    }
}
