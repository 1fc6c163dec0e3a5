//! Replays recorded scheduling sessions of KAI: a cluster, a list of actions, and the resulting pod states.
//!
//! The cluster of a case is built from the Kubernetes objects beside it by the production code.
//! Nothing reads the name or number of a case: intended differences are rules over its input
//! ([`difference`]).

pub mod case;
mod compare;
mod cycle;
pub mod difference;
mod load;
mod pre_filter;
mod rounds;

use anyhow::{Context, Result, bail};
use case::{Case, Mode};
use compare::{Diff, Groups};
use difference::Facts;
use kai_engine::policy::Policy;
use load::Session;
use std::fs;
use std::path::{Path, PathBuf};

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseResult {
    pub area: String,
    pub id: String,
    pub outcome: CaseOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    Passed,
    /// With the differences.
    Failed(String),
    /// An intended difference, with its id in `docs/differences.md`.
    ByDesign(&'static str),
}

/// Runs every session case below `dir` whose id contains `filter`, in order of id.
pub fn run(dir: &Path, filter: Option<&str>) -> Result<Vec<CaseResult>> {
    let mut results = Vec::new();
    for area in entries(&dir.join("cases"))? {
        // Recorded calls have folders of their own.
        if !area.is_dir() || file_name(&area).starts_with("unit-") {
            continue;
        }
        for path in entries(&area)?.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
            let text = read(path)?;
            let case: Case =
                serde_json::from_str(&text).with_context(|| format!("`{}` is not a case", path.display()))?;
            if filter.is_none_or(|filter| case.id.contains(filter)) {
                let objects = dir.join("objects").join(file_name(&area)).join(file_name(path));
                let outcome = run_case(&case, &objects)
                    .unwrap_or_else(|error| CaseOutcome::Failed(format!("    {error:#}\n")));
                results.push(CaseResult { area: case.area, id: case.id, outcome });
            }
        }
    }
    Ok(results)
}

/// Runs one case with the objects in a file.
fn run_case(case: &Case, objects: &Path) -> Result<CaseOutcome> {
    let config = cycle::config(&case.run);
    let policy = cycle::policy(&case.run, &config);
    if let Some(action) = cycle::missing_action(case, &policy) {
        bail!("unknown action `{action}`");
    }
    let session = Session::load(case, objects)?;
    let by_design = difference::explain(&Facts {
        deltas: &session.cluster.deltas,
        config: &config,
        max_consolidation_victims: policy.params.max_consolidation_victims,
    });
    let mut diff = Diff::default();
    let mut audit = Diff::default();
    match case.run.mode {
        Mode::Single => single(case, &policy, &session, &mut diff, &mut audit),
        Mode::Rounds => rounds(case, &policy, session, &mut diff, &mut audit),
        Mode::PrePredicate => pre_filter::check(case, &policy, &session, &mut diff),
    }
    if !audit.is_empty() {
        return Ok(CaseOutcome::Failed(format!(
            "    the audit found violations:\n{}{}",
            audit.text(),
            diff.text()
        )));
    }
    if diff.is_empty() {
        return Ok(CaseOutcome::Passed);
    }
    Ok(match by_design {
        Some(id) => CaseOutcome::ByDesign(id),
        None => CaseOutcome::Failed(diff.text()),
    })
}

fn single(case: &Case, policy: &Policy, session: &Session, diff: &mut Diff, audit: &mut Diff) {
    let done = cycle::run(&mut session.cluster.build(), policy, session.now);
    add_violations(&done, audit);
    let started: Vec<String> = done.outcome.started.iter().map(|key| key.name.clone()).collect();
    if let Some(wanted) = &case.expected {
        compare::expected(case, wanted, &done.end, &Groups { started: &started }, diff);
        compare::counts(wanted, &done.outcome.decisions, diff);
        compare::messages(case, wanted, &done, diff);
    }
    compare::observed(case, 0, &done, diff);
}

/// Runs the rounds before the comparison, compares, and runs the rounds that must not change the result.
fn rounds(case: &Case, policy: &Policy, mut session: Session, diff: &mut Diff, audit: &mut Diff) {
    let mut started: Vec<String> = Vec::new();
    let count = case.run.rounds_until_match + case.run.rounds_after_match;
    for round in 0..count {
        if round == case.run.rounds_until_match {
            let mut without_actions = policy.clone();
            without_actions.actions.clear();
            let state = cycle::run(&mut session.cluster.build(), &without_actions, session.now);
            if let Some(wanted) = &case.expected {
                compare::expected(case, wanted, &state.end, &Groups { started: &started }, diff);
            }
        }
        let done = cycle::run(&mut session.cluster.build(), policy, session.now);
        add_violations(&done, audit);
        started.extend(done.outcome.started.iter().map(|key| key.name.clone()));
        if let Some(wanted) = &case.expected {
            compare::counts(wanted, &done.outcome.decisions, diff);
            if round >= case.run.rounds_until_match {
                compare::expected(case, wanted, &done.end, &Groups { started: &started }, diff);
            }
        }
        compare::observed(case, round, &done, diff);
        if !diff.is_empty() {
            diff.add(format!("(in round {} of {count})", round + 1));
            return;
        }
        rounds::write_back(case, &mut session, &done);
    }
}

fn add_violations(done: &cycle::CycleResult, audit: &mut Diff) {
    for violation in &done.violations {
        audit.add(violation.to_string());
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(dir).with_context(|| format!("cannot list `{}`", dir.display()))?;
    let mut paths = read.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
