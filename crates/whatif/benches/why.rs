//! How long the hints for a pending group take: `why SNAPSHOT GROUPS` prints JSON. `cargo xtask bench why` runs it.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use kai_cache::Store;
use kai_cache::snapshot::{self, Limits};
use kai_clock::Stopwatch;
use kai_engine::plugin::PluginSet;
use kai_engine::{ClusterState, Cycle, Policy};
use kai_units::Timestamp;
use kai_whatif::hints::{self, Goal};
use kai_whatif::{Hints, Model};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;

/// The first of January 2027, after everything in the clusters.
const CYCLE: Cycle = Cycle { now: Timestamp(1_798_761_600_000_000), seed: 1 };

fn main() {
    // Cargo adds `--bench`, and tests run it without a shape.
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let Some(file) = arguments.next() else { return };
    let groups: usize = arguments.next().and_then(|text| text.parse().ok()).expect("a number");
    let open = BufReader::new(File::open(&file).expect("the file is there"));
    let snapshot = snapshot::read(&file, open, Limits::default()).expect("it is a snapshot");
    let policy = Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), &PluginSet::builtin());
    let mut store = Store::of(snapshot.settings(), snapshot.objects);
    let mut cluster = ClusterState::new();
    let mut model = Model { store: &mut store, cluster: &mut cluster, policy: &policy, cycle: CYCLE };
    model.plan();
    let watch = Stopwatch::start();
    let base = model.plan();
    let plan_ms = watch.elapsed_ms();
    let is_pending = |group: &&kai_engine::input::Key| {
        Goal::new(model.cluster, group).is_some_and(|goal| !goal.is_reached(&base))
    };
    let pending: Vec<_> =
        base.verdicts.iter().map(|verdict| &verdict.group).filter(is_pending).cloned().collect();
    let asked = pending.iter().step_by(pending.len().div_ceil(groups.max(1)).max(1));
    let (mut all_ms, mut found): (Vec<f64>, Vec<Hints>) = (Vec::new(), Vec::new());
    for group in asked {
        let effort = hints::Effort::of(model.cluster);
        let watch = Stopwatch::start();
        found.push(hints::find(&mut model, &base, group, effort));
        all_ms.push(watch.elapsed_ms());
    }
    all_ms.sort_by(f64::total_cmp);
    let most = |of: fn(&Hints) -> u64| found.iter().map(of).max().unwrap_or(0);
    println!(
        "{}",
        json!({
            "pending": pending.len(), "asked": found.len(), "plan_ms": plan_ms,
            "median_ms": all_ms.get(all_ms.len() / 2).copied().unwrap_or(0.0),
            "max_ms": all_ms.last().copied().unwrap_or(0.0),
            "plans": most(|of| u64::from(of.plans)), "proofs": most(|of| u64::from(of.proofs)),
            "steps": most(|of| of.steps),
            "hints": found.iter().map(|of| of.hints.len()).sum::<usize>(),
            "without": found.iter().filter(|of| of.hints.is_empty() && of.never.is_none()).count(),
            "incomplete": found.iter().filter(|of| of.is_incomplete).count(),
        })
    );
}
