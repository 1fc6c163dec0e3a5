//! Replays whole scheduling cycles on random clusters and compares the decisions with those that KAI made.
//!
//! Input: a folder (`NNNN.zip` snapshot files) or an archive (`NNNN.json` or `NNNN.zip` members), with KAI's decisions
//! beside each cluster as `NNNN.txt`. Output: one result per cluster, in order of name.

use crate::session::difference::{self, Facts};
use crate::session::{CaseOutcome, CaseResult};
use crate::test_cluster::TestCluster;
use anyhow::{Context, Result, ensure};
use kai_cache::snapshot::{self, Limits};
use kai_engine::audit::audit;
use kai_engine::outcome::Decision;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Policy, SearchDepth};
use kai_engine::{Cycle, plan};
use kai_units::Timestamp;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read as _};
use std::path::Path;
use zip::ZipArchive;

const AREA: &str = "random";
/// 2027-01-01, after every timestamp in the recordings: no grace period, delay or minimum runtime is still in effect.
const NOW: Timestamp = Timestamp(1_798_761_600_000_000);

/// One recorded cluster.
struct Recording {
    name: String,
    /// The snapshot: a zip archive or JSON.
    snapshot: Vec<u8>,
    /// KAI's decisions, one per line.
    decisions: String,
}

/// Runs every snapshot file in `dir` that has recorded decisions beside it.
pub fn run(dir: &Path) -> Result<Vec<CaseResult>> {
    let mut files = fs::read_dir(dir)
        .with_context(|| format!("cannot list `{}`", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "zip") && path.with_extension("txt").is_file());
    files.sort();
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read `{}`", path.display()));
    files
        .iter()
        .map(|file| {
            let decisions = String::from_utf8(read(&file.with_extension("txt"))?)
                .with_context(|| format!("the decisions of `{}` are not UTF-8", file.display()))?;
            let name = stem(Path::new(file)).to_owned();
            Ok(run_one(&Recording { name, snapshot: read(file)?, decisions }))
        })
        .collect()
}

/// Runs every snapshot of a zip archive of such a folder. Each one must have its decisions.
pub fn run_archive(archive: &Path) -> Result<Vec<CaseResult>> {
    let of_archive = || format!("cannot read `{}`", archive.display());
    let mut members =
        ZipArchive::new(fs::File::open(archive).with_context(of_archive)?).with_context(of_archive)?;
    let mut snapshots: Vec<String> = members
        .file_names()
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == "json" || e == "zip"))
        .map(str::to_owned)
        .collect();
    snapshots.sort();
    ensure!(!snapshots.is_empty(), "`{}` contains no snapshots", archive.display());
    let mut read = |name: &str| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        members.by_name(name).with_context(|| format!("no member `{name}`"))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let mut results = Vec::new();
    for member in snapshots {
        let decisions = Path::new(&member).with_extension("txt").to_string_lossy().into_owned();
        let recording = Recording {
            name: stem(Path::new(&member)).to_owned(),
            snapshot: read(&member).with_context(of_archive)?,
            decisions: String::from_utf8(read(&decisions).with_context(of_archive)?)
                .with_context(|| format!("`{decisions}` is not UTF-8"))?,
        };
        results.push(run_one(&recording));
    }
    Ok(results)
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

fn run_one(recording: &Recording) -> CaseResult {
    let outcome = compare(recording).unwrap_or_else(|error| CaseOutcome::Failed(format!("    {error:#}\n")));
    CaseResult { area: AREA.to_owned(), id: format!("{AREA}/{}", recording.name), outcome }
}

fn compare(recording: &Recording) -> Result<CaseOutcome> {
    let mut snapshot = snapshot::read(&recording.name, Cursor::new(&recording.snapshot), Limits::default())?;
    snapshot.config.engine.search = SearchDepth::Kai;
    let policy = Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), &PluginSet::builtin());
    let config = snapshot.config.engine.clone();
    let mut input = TestCluster::default();
    snapshot.into_store().drain(|delta| input.deltas.push(delta));
    let mut cluster = input.build();
    let outcome = plan(&mut cluster, &policy, Cycle { now: NOW, seed: 1 });
    let violations = audit(&cluster, &policy, &outcome);
    if !violations.is_empty() {
        let lines = violations.iter().fold(String::new(), |text, v| format!("{text}    {v}\n"));
        return Ok(CaseOutcome::Failed(format!("    the audit found violations:\n{lines}")));
    }
    let ours: BTreeSet<String> = outcome.decisions.iter().map(line).collect();
    let theirs: BTreeSet<String> =
        recording.decisions.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect();
    if ours == theirs {
        return Ok(CaseOutcome::Passed);
    }
    let facts = Facts {
        deltas: &input.deltas,
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
