//! Compares two transcripts and sorts what differs into what is listed on purpose and what is not.
//!
//! `tests/api-suite/differences.yaml` lists where the embedded server differs from a real one on purpose, with the
//! reason. An entry covers paths of steps of a feature; `*` stands for anything.

use super::{Entry, Error};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Differences on purpose.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    /// All of them.
    pub differences: Vec<Listed>,
}

/// One difference on purpose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Features that it is seen in; `*` stands for anything.
    pub features: Vec<String>,
    /// Steps that it is seen in.
    #[serde(default = "anything")]
    pub steps: Vec<String>,
    /// Paths into the entries, such as `/body/metadata/*`.
    #[serde(default = "anything")]
    pub paths: Vec<String>,
    /// Why it is meant.
    pub reason: String,
}

fn anything() -> Vec<String> {
    vec!["*".to_owned()]
}

/// One place where two answers differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where in the entry.
    pub path: String,
    /// What the recording says; `None` where it has nothing.
    pub expected: Option<Value>,
    /// What the target answered.
    pub found: Option<Value>,
    /// The listed difference that covers it.
    pub listed: Option<String>,
}

/// One step of both transcripts.
#[derive(Debug)]
pub struct Compared {
    /// The step.
    pub step: String,
    /// Where the answers differ; nothing means that they are equal.
    pub differences: Vec<Difference>,
}

impl Compared {
    /// Whether the answers are the same.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Whether they differ, but only where that is listed.
    pub fn is_listed(&self) -> bool {
        !self.is_equal() && self.differences.iter().all(|difference| difference.listed.is_some())
    }
}

impl Differences {
    /// Reads the list of a folder; no list means no differences.
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

/// Compares a target's transcript with the expected one, step by step.
pub fn compare(feature: &str, expected: &[Entry], found: &[Entry], listed: &Differences) -> Vec<Compared> {
    let mut answers: BTreeMap<&str, &Entry> =
        found.iter().map(|entry| (entry.step.as_str(), entry)).collect();
    let mut all = Vec::new();
    for entry in expected {
        let mut differences = Vec::new();
        let answer = answers.remove(entry.step.as_str());
        differ("", Some(&flat(entry)), answer.map(flat).as_ref(), &mut differences);
        for difference in &mut differences {
            difference.listed =
                listed.covering(feature, &entry.step, &difference.path).map(|listed| listed.id.clone());
        }
        all.push(Compared { step: entry.step.clone(), differences });
    }
    // A step that was added after the recording has nothing to be compared with.
    for (step, entry) in answers {
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
            // One thing more or less would make everything after it differ.
            let mut names: Vec<&str> = left.keys().chain(right.keys()).copied().collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                differ(&below(path, name), left.get(name).copied(), right.get(name).copied(), differences);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for place in 0..left.len().max(right.len()) {
                differ(&format!("{path}/{place}"), left.get(place), right.get(place), differences);
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

/// The path of a field; the parts that a step keeps are named by paths already.
fn below(path: &str, key: &str) -> String {
    if key.starts_with('/') { format!("{path}{key}") } else { format!("{path}/{key}") }
}

/// The elements of a list by name, if all have names of their own.
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

/// Whether a pattern, in which `*` stands for any run of letters, matches a whole text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|place| rest.is_char_boundary(*place))
                .any(|place| matches(after, &rest[place..]))
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
    fn differences_name_their_place_and_whether_they_are_listed() {
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
    fn a_missing_element_of_a_list_is_one_difference() {
        let expected = [entry("get", json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]))];
        let found = [entry("get", json!([{"name": "b"}, {"name": "c"}]))];
        let compared = compare("crud", &expected, &found, &Differences::default());
        let paths: Vec<_> = compared[0].differences.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["/body/a"]);
    }

    #[test]
    fn a_step_that_was_not_recorded_is_a_difference() {
        let compared = compare("crud", &[], &[entry("new", json!(1))], &Differences::default());
        assert_eq!(compared[0].differences[0].path, "/not recorded");
    }

    #[test]
    fn stars_stand_for_any_run_of_letters() {
        assert!(matches("/body/*/name", "/body/items/3/name"));
        assert!(!matches("/body/*/name", "/body/items/3/names"));
        assert!(matches("*", ""));
    }
}
