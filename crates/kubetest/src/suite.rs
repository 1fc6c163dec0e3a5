//! The suite: files of requests, grouped by feature, that any API server can be asked and whose answers are compared.
//!
//! A feature file (`tests/api-suite/*.yaml`) is read here, run by [`run()`] and normalised by [`normal`]; the result, a
//! transcript, is compared by [`compare`] with the one that a real server gave. Features use namespaces of their own,
//! so that they can run in any order; a server is asked each feature once in its life.

pub mod compare;
pub mod normal;
pub mod openapi;
mod run;
mod variables;

pub use run::{Target, run};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why a feature could not be read or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot read or write `{path}`")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("`{path}` is malformed: {problem}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A step cannot be carried out at all.
    #[error("feature `{feature}`, step `{step}`: {problem}")]
    Step {
        /// Which feature.
        feature: String,
        /// Which step.
        step: String,
        /// What is wrong.
        problem: String,
    },
}

/// What is kept of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ManagedFields {
    /// Compared like everything else.
    Keep,
    /// Left out, because the feature is about something else.
    #[default]
    Drop,
}

/// A feature: its steps in order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Feature {
    /// The file's name without its extension.
    #[serde(skip)]
    pub name: String,
    /// What the feature is about, for readers.
    pub about: String,
    /// Namespaces made before the first step; the feature's name unless given. `${ns}` is the first.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Whether field ownership is compared.
    #[serde(default)]
    pub managed_fields: ManagedFields,
    /// Steps whose answers are not compared.
    #[serde(default)]
    pub setup: Vec<Step>,
    /// Steps whose answers are compared.
    pub steps: Vec<Step>,
}

/// One request, or one watch and the steps made while it is open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Step {
    /// The step's name, unique in its feature.
    pub step: String,
    /// `METHOD /path?query`; the method `WATCH` reads a stream of events.
    pub request: String,
    /// Who asks: a user of the target, or `nobody`; `admin` unless given.
    #[serde(default, rename = "as")]
    pub user: Option<String>,
    /// A body sent as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// A body sent as it stands.
    #[serde(default)]
    pub text: Option<String>,
    /// The body's content type, or one of `json-patch`, `merge`, `strategic`, `apply`, `yaml`.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    /// The `Accept` header, or `table` or `partial`.
    #[serde(default)]
    pub accept: Option<String>,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Values for later steps: name to JSON pointer into the answer's body (for a watch, into its last event).
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// The step is made once for each of these, as `${each}`.
    #[serde(default)]
    pub each: Vec<String>,
    /// Parts of the body that are compared; all of it unless given. `*` is any key, `name=x` an element of a list.
    #[serde(default)]
    pub keep: Vec<String>,
    /// The causes of an error come in any order, because the real server walks a map to find them.
    #[serde(default)]
    pub any_order: bool,
    /// The request is repeated until it gets this code; only the last answer counts.
    #[serde(default)]
    pub until: Option<u16>,
    /// Milliseconds to wait before the request, for what a server takes note of after a while.
    #[serde(default)]
    pub pause: u64,
    /// How many events a watch waits for; without it, a watch waits for the server to end it.
    #[serde(default)]
    pub events: usize,
    /// Steps made while the watch is open.
    #[serde(default)]
    pub during: Vec<Step>,
}

/// What a server answered to a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The step's name.
    pub step: String,
    /// The status code.
    pub code: u16,
    /// Headers that clients act on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// The body: JSON as it is, anything else as a string.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The events of a watch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// How a watch ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Reads every feature of a folder, by name.
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
    /// Reads one file, with `each` written out.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let malformed = |problem: String| Error::Malformed { path: path.to_owned(), problem };
        // Only `true` and `false` are booleans, as people expect of an object that has a key `y`.
        let options = serde_saphyr::options! { strict_booleans: true };
        let mut feature: Self = serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| malformed(error.to_string()))?;
        feature.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if feature.namespaces.is_empty() {
            feature.namespaces.push(feature.name.clone());
        }
        feature.setup = variables::written_out(feature.setup);
        feature.steps = variables::written_out(feature.steps);
        let mut names = Vec::new();
        collect_names(&feature.steps, &mut names);
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(malformed(format!("two steps are called `{twice}`")));
        }
        Ok(feature)
    }

    /// How many requests it makes.
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

/// Writes a transcript where [`recorded`] finds it, one line a step.
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
