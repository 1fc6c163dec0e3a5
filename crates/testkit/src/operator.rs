//! Replays what KAI's operator made of a `Config` and `SchedulingShard`s.
//!
//! A case is a list of steps (objects are created, patched, deleted) with the state that the cluster settled in after each.
//! The replay keeps a cluster in memory, lets the production code plan the writes, and compares after every step. Intended
//! differences are rules over the input ([`difference`]) that say which fields may differ.

mod cluster;
mod compare;
pub mod difference;
mod normalise;

use crate::recorded;
use crate::session::{CaseOutcome, CaseResult};
use anyhow::Result;
use cluster::Cluster;
use compare::Mismatch;
use difference::Facts;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const AREA: &str = "operator";
/// The case whose objects others refer to as `{"$same": "default"}`.
const DEFAULT: &str = "default";

#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    input: Input,
    expect: Vec<State>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    operator: Process,
    #[serde(rename = "thirdPartyCRDs")]
    third_party_crds: Vec<String>,
    existing: Vec<Value>,
    steps: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Process {
    env: BTreeMap<String, String>,
}

/// A recorded state.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    #[serde(default)]
    objects: BTreeMap<String, Value>,
    #[serde(default)]
    conditions: BTreeMap<String, Option<Vec<Value>>>,
    /// Why the API server refused the step.
    rejected: Option<Value>,
    queue_crd_conversion: Option<String>,
    /// Objects that only one of two recordings had.
    #[serde(default)]
    sometimes: Vec<String>,
    #[serde(default)]
    nondeterministic: bool,
}

/// What the API server stores of a `Config` or `SchedulingShard`, or why it refuses the object.
pub type Admit<'a> = &'a dyn Fn(&Value) -> Result<Result<Value, String>>;

/// Runs every case of a folder, in order of id.
pub fn run(folder: &Path, admit: Admit<'_>) -> Result<Vec<CaseResult>> {
    let cases: Vec<Case> = recorded::load(&folder.join("cases"))?;
    let default = cases.iter().find(|case| case.id == DEFAULT).and_then(|case| case.expect.first());
    let default = default.map(|state| state.objects.clone()).unwrap_or_default();
    let results = cases.iter().map(|case| {
        let outcome = run_case(case, &default, admit)
            .unwrap_or_else(|error| CaseOutcome::Failed(format!("    {error:#}\n")));
        CaseResult { area: AREA.to_owned(), id: format!("operator/{}", case.id), outcome }
    });
    Ok(results.collect())
}

fn run_case(case: &Case, default: &BTreeMap<String, Value>, admit: Admit<'_>) -> Result<CaseOutcome> {
    let mut cluster = Cluster::new(&case.input, admit)?;
    let mut facts = Facts::new(&case.input);
    let mut previous = BTreeMap::new();
    let mut mismatches: Vec<Mismatch> = Vec::new();
    for (number, (step, expected)) in case.input.steps.iter().zip(&case.expect).enumerate() {
        let refused = cluster.step(step)?;
        if refused.is_some() != expected.rejected.is_some() {
            mismatches.push(Mismatch {
                place: format!("step {number}: refused"),
                step: number,
                kai: expected.rejected.clone().unwrap_or_default(),
                ours: Value::from(refused),
            });
        }
        facts.observe(&cluster);
        cluster.reconcile();
        let objects = compare::resolve(&expected.objects, default, &previous)?;
        mismatches.extend(compare::compare(number, expected, &objects, &cluster));
        previous = objects;
    }
    if mismatches.is_empty() {
        return Ok(CaseOutcome::Passed);
    }
    Ok(match difference::explain(&facts, &mismatches) {
        Ok(id) => CaseOutcome::ByDesign(id),
        Err(unexplained) => {
            let lines: Vec<String> = unexplained.iter().map(|mismatch| format!("    {mismatch}")).collect();
            CaseOutcome::Failed(lines.join("\n") + "\n")
        }
    })
}
