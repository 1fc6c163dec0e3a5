//! Replays recorded calls of single functions of KAI against the engine.
//!
//! A file contains calls of one function with input and output. For every function an adapter converts the input, calls
//! the equivalent function of the engine, and compares. Input that the engine's types exclude becomes the nearest valid
//! input. Adapters never read the name or number of a case; intended differences are rules over the input.

mod compare;
mod gpu_sharing;
mod inputs;
mod joborder;
mod minruntime;
mod node;
mod numa;
mod ordering;
mod pod;
mod podgroup;
mod predicates;
mod proportion;
mod record;
mod recorded_cluster;
mod resources;
mod scoring;
mod solver;
mod topology;

use anyhow::{Context, Result, bail};
use record::Case;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The result of one recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// For example `unit-proportion`.
    pub area: String,
    pub function: String,
    pub id: String,
    pub outcome: CallOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Passed,
    /// With the difference.
    Failed(String),
    /// An intended difference, with its id in `docs/differences.md`.
    ByDesign(&'static str),
}

/// Calls one function of the engine with a case's input and compares.
type Adapter = fn(&Case<'_>) -> CallOutcome;

/// One area and its adapters.
struct Area {
    name: &'static str,
    adapter: fn(&str) -> Option<Adapter>,
}

const AREAS: &[Area] = &[
    proportion::AREA,
    minruntime::AREA,
    numa::AREA,
    resources::AREA,
    ordering::AREA,
    podgroup::AREA,
    node::AREA,
    scoring::AREA,
    pod::AREA,
    predicates::AREA,
    gpu_sharing::AREA,
    joborder::AREA,
    solver::AREA,
    topology::AREA,
];

#[derive(Deserialize)]
struct File {
    format: String,
    area: String,
    #[serde(default)]
    function: String,
    cases: Vec<Value>,
}

/// Runs every recorded call in the `unit-*` folders below `dir`, in order of area, function and case.
pub fn run(dir: &Path) -> Result<Vec<CallResult>> {
    let mut folders = entries(dir)?;
    folders.retain(|path| path.is_dir() && name(path).starts_with("unit-"));
    let mut results = Vec::new();
    for folder in folders {
        for path in entries(&folder)?.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
            let text =
                fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            let file: File = serde_json::from_str(&text)
                .with_context(|| format!("`{}` is not a case file", path.display()))?;
            if !matches!(file.format.as_str(), "kai-call-cases/v1" | "kai-joborder-cases/v1") {
                bail!("`{}` has the unknown format `{}`", path.display(), file.format);
            }
            run_file(&file, &mut results);
        }
    }
    Ok(results)
}

fn run_file(file: &File, results: &mut Vec<CallResult>) {
    let area = AREAS.iter().find(|area| area.name == file.area);
    let adapter = area.and_then(|area| (area.adapter)(&file.function));
    for case in &file.cases {
        let outcome = match adapter {
            Some(adapter) => adapter(&Case::new(case, &file.cases)),
            None => CallOutcome::Failed(format!("no adapter for `{}`", file.function)),
        };
        results.push(CallResult {
            area: file.area.clone(),
            function: file.function.clone(),
            id: case["id"].as_str().unwrap_or_default().to_owned(),
            outcome,
        });
    }
}

fn entries(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let read = fs::read_dir(dir).with_context(|| format!("cannot list `{}`", dir.display()))?;
    let mut paths = read.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
