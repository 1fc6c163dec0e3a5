//! Whole cycles on random clusters: snapshot files, and the decisions that KAI made on each.

use crate::session::difference::{self, Facts};
use crate::session::{CaseOutcome, CaseResult};
use crate::world::World;
use anyhow::{Context, Result};
use kai_cache::snapshot;
use kai_engine::audit::audit;
use kai_engine::outcome::Decision;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Policy, SearchDepth};
use kai_engine::{Cycle, plan};
use kai_units::Timestamp;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The area's name.
const AREA: &str = "random";
/// Well after everything in the files: no rule that waits for a while may still be waiting.
const NOW: Timestamp = Timestamp(1_798_761_600_000_000);

/// Runs every snapshot in `dir` that has recorded decisions beside it; an absent folder has none.
pub fn run(dir: &Path) -> Result<Vec<CaseResult>> {
    let mut results = Vec::new();
    if !dir.is_dir() {
        return Ok(results);
    }
    let mut files = fs::read_dir(dir)
        .with_context(|| format!("cannot list `{}`", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "zip") && path.with_extension("txt").is_file());
    files.sort();
    for file in files {
        let text = fs::read_to_string(file.with_extension("txt"))?;
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let outcome =
            run_one(&file, &text).unwrap_or_else(|error| CaseOutcome::Failed(format!("    {error:#}\n")));
        results.push(CaseResult { area: AREA.to_owned(), id: format!("{AREA}/{name}"), outcome });
    }
    Ok(results)
}

fn run_one(file: &Path, recorded: &str) -> Result<CaseOutcome> {
    let mut snapshot = snapshot::read_file(file)?;
    snapshot.config.engine.search = SearchDepth::Kai;
    let policy = Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), &PluginSet::builtin());
    let (objects, config) = (snapshot.objects.clone(), snapshot.config.engine.clone());
    let mut world = World::default();
    snapshot.into_store().drain(|delta| world.deltas.push(delta));
    let mut cluster = world.cluster();
    let outcome = plan(&mut cluster, &policy, Cycle { now: NOW, seed: 1 });
    let violations = audit(&cluster, &policy, &outcome);
    if !violations.is_empty() {
        let lines = violations.iter().fold(String::new(), |text, v| format!("{text}    {v}\n"));
        return Ok(CaseOutcome::Failed(format!("    the audit objects:\n{lines}")));
    }
    let ours: BTreeSet<String> = outcome.decisions.iter().map(line).collect();
    let theirs: BTreeSet<String> = recorded.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect();
    if ours == theirs {
        return Ok(CaseOutcome::Passed);
    }
    let facts = Facts {
        world: &world,
        objects: &objects,
        config: &config,
        max_consolidation_victims: policy.params.max_consolidation_victims,
    };
    if let Some(id) = difference::explain(&facts) {
        return Ok(CaseOutcome::ByDesign(id));
    }
    let missing = theirs.difference(&ours).map(|line| format!("    missing: {line}\n"));
    let surplus = ours.difference(&theirs).map(|line| format!("    not expected: {line}\n"));
    Ok(CaseOutcome::Failed(missing.chain(surplus).collect()))
}

fn line(decision: &Decision) -> String {
    match decision {
        Decision::Bind(bind) => format!("bind {} {}", bind.pod, bind.node),
        Decision::Pipeline { pod, node, .. } => format!("pipeline {pod} {node}"),
        Decision::Evict { pod, .. } => format!("evict {pod}"),
    }
}
