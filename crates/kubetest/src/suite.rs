//! The API suite: files of requests, grouped by feature, that are sent to an API server and whose responses are compared.
//!
//! A feature file (`tests/api-suite/*.yaml`) is read here, run by [`run()`] and normalised by [`normalize`]; the result, a
//! transcript, is compared by [`compare`] with that of a real server. Features use their own namespaces and run in any
//! order; each feature runs once per server.

pub mod compare;
pub mod normalize;
pub mod openapi;
mod run;
mod variables;

pub use run::{Target, run};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read or write `{path}`")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{path}` is malformed: {problem}")]
    Malformed { path: PathBuf, problem: String },
    /// A step that cannot be sent.
    #[error("feature `{feature}`, step `{step}`: {problem}")]
    Step { feature: String, step: String, problem: String },
}

/// Whether `metadata.managedFields` is compared.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ManagedFields {
    Keep,
    #[default]
    Drop,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Feature {
    /// The file name without its extension.
    #[serde(skip)]
    pub name: String,
    /// Description.
    pub about: String,
    /// Namespaces created before the first step; the name of the feature by default. `${ns}` is the first.
    #[serde(default)]
    pub namespaces: Vec<String>,
    #[serde(default)]
    pub managed_fields: ManagedFields,
    /// Steps whose responses are not compared.
    #[serde(default)]
    pub setup: Vec<Step>,
    /// Steps whose responses are compared.
    pub steps: Vec<Step>,
}

/// One request, or one watch and the steps while it is open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Step {
    /// Name, unique in its feature.
    pub step: String,
    /// `METHOD /path?query`; the method `WATCH` reads a stream of events.
    pub request: String,
    /// User of the request; `anonymous` sends no token; `admin` by default.
    #[serde(default, rename = "as")]
    pub user: Option<String>,
    /// A body sent as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// A body sent without changes.
    #[serde(default)]
    pub text: Option<String>,
    /// The body's content type, or one of `json-patch`, `merge`, `strategic`, `apply`, `yaml`.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    /// The `Accept` header, or `table` or `partial`.
    #[serde(default)]
    pub accept: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Values for later steps: name to JSON pointer into the response (for a watch, into its last event).
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// Repeats the step for each of these, as `${each}`.
    #[serde(default)]
    pub each: Vec<String>,
    /// Parts of the body that are compared; all by default. `*` is any key, `name=x` an element of a list.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Causes of an error have no order, since kube-apiserver iterates over a map.
    #[serde(default)]
    pub any_order: bool,
    /// Repeats the request until it gets this status code; only the last response is compared.
    #[serde(default)]
    pub until: Option<u16>,
    /// Milliseconds to wait before the request, for asynchronous effects.
    #[serde(default)]
    pub pause: u64,
    /// Number of events to wait for; 0 waits until the server ends the watch.
    #[serde(default)]
    pub events: usize,
    /// Steps while the watch is open.
    #[serde(default)]
    pub during: Vec<Step>,
}

/// The response to a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub step: String,
    pub code: u16,
    /// Headers that clients use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// JSON, or any other body as a string.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// How the watch ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Reads the features of a folder, sorted by name.
pub fn features(folder: &Path) -> Result<Vec<Feature>, Error> {
    let failed = |source| Error::File { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let yaml = path.extension().is_some_and(|extension| extension == "yaml");
        if yaml && path.file_stem().is_some_and(|stem| stem != "differences") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| Feature::read(path)).collect()
}

impl Feature {
    /// Reads one file, and expands `each`.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let malformed = |problem: String| Error::Malformed { path: path.to_owned(), problem };
        // Only `true` and `false` are booleans (YAML 1.2), so that a key `y` stays a string.
        let options = serde_saphyr::options! { strict_booleans: true };
        let mut feature: Self = serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| malformed(error.to_string()))?;
        feature.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if feature.namespaces.is_empty() {
            feature.namespaces.push(feature.name.clone());
        }
        feature.setup = variables::expand(feature.setup);
        feature.steps = variables::expand(feature.steps);
        let mut names = Vec::new();
        collect_names(&feature.steps, &mut names);
        names.sort_unstable();
        if let Some([duplicate, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(malformed(format!("two steps have the name `{duplicate}`")));
        }
        Ok(feature)
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        fn count(steps: &[Step]) -> usize {
            steps.iter().map(|step| 1 + count(&step.during)).sum()
        }
        count(&self.steps)
    }
}

fn collect_names<'a>(steps: &'a [Step], names: &mut Vec<&'a str>) {
    for step in steps {
        names.push(&step.step);
        collect_names(&step.during, names);
    }
}

/// Reads the recorded transcript of a feature.
pub fn recorded(folder: &Path, feature: &str) -> Result<Vec<Entry>, Error> {
    let path = recording(folder, feature);
    let text = std::fs::read_to_string(&path).map_err(|source| Error::File { path: path.clone(), source })?;
    serde_json::from_str(&text).map_err(|error| Error::Malformed { path, problem: error.to_string() })
}

/// Writes a transcript for [`recorded`], one line per step.
pub fn record(folder: &Path, feature: &str, transcript: &[Entry]) -> Result<(), Error> {
    let path = recording(folder, feature);
    let malformed = |problem: String| Error::Malformed { path: path.clone(), problem };
    let mut lines = Vec::new();
    for entry in transcript {
        lines.push(serde_json::to_string(entry).map_err(|error| malformed(error.to_string()))?);
    }
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(&path, text).map_err(|source| Error::File { path, source })
}

fn recording(folder: &Path, feature: &str) -> PathBuf {
    folder.join("recorded").join(format!("{feature}.json"))
}
