//! Times `kai plan` on generated clusters against KAI's recorded times on the same files. [`admission`],
//! [`apiserver`], [`e2e`], [`grouper`], [`restart`], [`steady`] and [`why`] are further benches.
//!
//! Rounds are interleaved, and the best one counts on both sides, since wall time on shared cores is noisy. Times of
//! another machine are scaled by a calibration that both machines ran. Growth of short runs is computed from
//! callgrind's instruction counts.

mod admission;
mod apiserver;
mod baseline;
pub(crate) mod budget;
mod calibration;
mod decisions;
mod e2e;
mod grouper;
mod measure;
mod page;
mod report;
mod restart;
mod steady;
mod why;

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use baseline::Baseline;
use kai_testkit::shapes::{self, Shape};
use measure::{Kai, Measured};
use page::Part;
use report::{Growth, Row};
use std::path::{Path, PathBuf};

/// Growth is read between clusters that differ by this factor.
const GROWTH_STEP: usize = 10;
/// Clusters at least this large grow from one tenth of their size; smaller ones are all noise.
const GROWTH_NODES_MIN: usize = 5_000;
/// Runs shorter than this are compared by instruction counts.
const SHORT_RUN_MS: f64 = 20.0;

/// The size whose instructions go on the page.
const COUNTED_NODES: usize = 100;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Option<Subject>,
    /// Cluster sizes.
    #[arg(long, value_delimiter = ',', default_value = "100,500,5000")]
    nodes: Vec<usize>,
    /// Only these shapes.
    #[arg(long = "shape", value_delimiter = ',')]
    shapes: Vec<String>,
    /// Rounds; the best counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Rewrite `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

#[derive(clap::Subcommand)]
enum Subject {
    /// Call the webhooks of pods over TLS at a fixed rate.
    Admission(admission::Args),
    /// Measure the embedded API server beside a real kube-apiserver, where Go is there to build one.
    Apiserver(apiserver::Args),
    /// Run the load of `bench apiserver` in this process.
    #[command(hide = true)]
    ApiserverWorker(apiserver::WorkerArgs),
    /// Fill a whole cluster, all components running.
    E2e(e2e::Args),
    /// Group the pods of many Jobs, and of large ones, on a real kube-apiserver.
    Grouper(grouper::Args),
    /// Restart each component, and the API server, of a large cluster.
    Restart(restart::Args),
    /// Run `bench restart` in this process.
    #[command(hide = true)]
    RestartWorker(restart::WorkerArgs),
    /// KAI's scale tests: large gangs, full clusters and reclaim.
    Scale(e2e::scale::Args),
    /// Change one pod of a large cluster at rest.
    Steady(steady::Args),
    /// Search what would run a pending group of a large cluster.
    Why(why::Args),
}

/// One cluster to plan on.
struct Case {
    shape: &'static Shape,
    nodes: usize,
    snapshot: PathBuf,
    decisions: PathBuf,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    match &args.subject {
        Some(Subject::Admission(args)) => admission::run(repository, args),
        Some(Subject::Apiserver(args)) => apiserver::run(repository, args),
        Some(Subject::ApiserverWorker(args)) => apiserver::run_worker(args),
        Some(Subject::E2e(args)) => e2e::run(repository, args),
        Some(Subject::Grouper(args)) => grouper::run(repository, args),
        Some(Subject::Restart(args)) => restart::run(repository, args),
        Some(Subject::RestartWorker(args)) => restart::run_worker(args),
        Some(Subject::Scale(args)) => e2e::scale::run(repository, args),
        Some(Subject::Steady(args)) => steady::run(repository, args),
        Some(Subject::Why(args)) => why::run(repository, args),
        None => plan(repository, args),
    }
}

fn plan(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let kai = Kai::build(repository, &target)?;
    let reference = repository.reference();
    let baseline = match &reference {
        Ok(folder) => Some(Baseline::read(folder)?),
        Err(why) => {
            println!("no comparison with KAI: {why}");
            None
        }
    };
    let cases = generate(args, &target.join("bench"))?;
    let (measured, calibration_ms) = rounds(&kai, &cases, args.rounds, baseline.is_some())?;
    let mut rows = Vec::new();
    for (case, ours) in cases.iter().zip(&measured) {
        let theirs = baseline
            .as_ref()
            .zip(calibration_ms)
            .and_then(|(baseline, ms)| baseline.scaled(case.shape.name, case.nodes, ms));
        let decisions = match &baseline {
            Some(baseline) => baseline.compare(case, ours)?,
            None => None,
        };
        let growth = growth(&kai, &cases, &measured, case)?;
        let counted = args.write && case.nodes == COUNTED_NODES;
        let instructions = if counted { kai.instructions(&case.snapshot)? } else { None };
        rows.push(Row {
            shape: case.shape,
            nodes: case.nodes,
            ours: ours.clone(),
            theirs,
            decisions,
            growth,
            instructions,
        });
    }
    println!("{}", report::table(&rows));
    let misses = report::misses(&rows);
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::Planning, &report::page(&rows, &misses, args.rounds, calibration_ms))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

/// Writes the snapshot files.
fn generate(args: &Args, folder: &Path) -> Result<Vec<Case>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let known = || shapes::SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = args.shapes.iter().find(|name| shapes::find(name).is_none()) {
        bail!("there is no shape `{unknown}`; hint: the shapes are {}", known());
    }
    let wanted = |shape: &&Shape| args.shapes.is_empty() || args.shapes.iter().any(|name| name == shape.name);
    let mut cases = Vec::new();
    for &nodes in &args.nodes {
        for shape in shapes::SHAPES.iter().filter(wanted) {
            let stem = folder.join(format!("{}-{nodes}", shape.name));
            let case = Case {
                shape,
                nodes,
                snapshot: stem.with_extension("zip"),
                decisions: stem.with_extension("txt"),
            };
            shapes::write_zip(shape, nodes, &case.snapshot)
                .with_context(|| format!("cannot write `{}`", case.snapshot.display()))?;
            cases.push(case);
        }
    }
    Ok(cases)
}

/// Plans every case once a round; the best times of all rounds, and the best calibration around them.
fn rounds(kai: &Kai, cases: &[Case], count: usize, calibrated: bool) -> Result<(Vec<Measured>, Option<f64>)> {
    let mut best: Vec<Option<Measured>> = vec![None; cases.len()];
    let mut calibration_ms: Option<f64> = None;
    for round in 1..=count.max(1) {
        if calibrated {
            let ms = calibration::measure()?;
            calibration_ms = Some(calibration_ms.map_or(ms, |best| best.min(ms)));
        }
        for (case, best) in cases.iter().zip(&mut best) {
            let measured = kai
                .plan(&case.snapshot, &case.decisions)
                .with_context(|| format!("shape `{}`, {} nodes", case.shape.name, case.nodes))?;
            match best {
                Some(best) => best.merge(&measured)?,
                None => *best = Some(measured),
            }
        }
        eprintln!("round {round} of {count} done");
    }
    Ok((best.into_iter().flatten().collect(), calibration_ms))
}

/// How the planning of a large case grew from the one a tenth of its size.
fn growth(kai: &Kai, cases: &[Case], measured: &[Measured], large: &Case) -> Result<Option<Growth>> {
    let is_small =
        |case: &Case| case.shape.name == large.shape.name && case.nodes * GROWTH_STEP == large.nodes;
    let Some(small) = cases.iter().position(is_small).filter(|_| large.nodes >= GROWTH_NODES_MIN) else {
        return Ok(None);
    };
    let same = |case: &Case| case.snapshot == large.snapshot;
    let at = cases.iter().position(same).context("the case is one of the cases")?;
    let (before, after) = (measured[small].total_actions_ms, measured[at].total_actions_ms);
    if before >= SHORT_RUN_MS {
        return Ok(Some(Growth::Time(after / before)));
    }
    let (Some(before), Some(after)) =
        (kai.instructions(&cases[small].snapshot)?, kai.instructions(&large.snapshot)?)
    else {
        return Ok(None);
    };
    Ok(Some(Growth::Instructions(after as f64 / before.max(1) as f64)))
}
