//! CPU time of the scheduler for a change of one pod in a large idle cluster: `crates/scheduler/benches/steady`.

use super::page::{self, Part};
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cluster for which there is a target, and the target.
const TARGET: (usize, usize, usize) = (4_000, 140_000, 500);
const CYCLE_MS_MAX: f64 = 20.0;
/// The function in which a cycle runs; instruction counts are taken inside it alone.
const CYCLE: &str = "kai_scheduler::scheduler_loop::cycle::*::run_cycle*";

/// Options of `cargo xtask bench steady`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Nodes of eight GPUs.
    #[arg(long, default_value_t = TARGET.0)]
    nodes: usize,
    /// Pods, pending ones included.
    #[arg(long, default_value_t = TARGET.1)]
    pods: usize,
    /// Pending pods.
    #[arg(long, default_value_t = TARGET.2)]
    pending: usize,
    /// How often each change is made; a queue has one small pending pod, so that 25 is the maximum.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Count the instructions of cycles with callgrind, too; better on a smaller cluster.
    #[arg(long)]
    instructions: bool,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// What the bench prints.
#[derive(Deserialize)]
struct Measured {
    nodes: usize,
    pods: usize,
    pending: usize,
    rounds: usize,
    start_ms: f64,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    #[serde(rename = "change")]
    what: String,
    allocate_ms: Figures,
    all_actions_ms: Figures,
}

#[derive(Deserialize)]
struct Figures {
    median: f64,
    max: f64,
}

/// Measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let program = build(repository, "kai-scheduler", "steady")?;
    let sizes = [args.nodes, args.pods, args.pending, args.rounds].map(|size| size.to_string());
    let output = Command::new(&program).args(&sizes).output().context("cannot run the bench")?;
    if !output.status.success() {
        bail!("the bench failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let measured: Measured =
        serde_json::from_slice(&output.stdout).context("the bench printed something else")?;
    let (text, misses) = (measured.text(), measured.misses());
    println!("{text}");
    if args.instructions {
        let counted = instructions(repository, &program, &sizes)?;
        println!("million instructions in all cycles: {:.1}", counted as f64 / 1e6);
    }
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::Steady, &super::e2e::with_misses(&text, &misses))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

/// What cargo says of something that it built.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Builds a bench and says where it is.
pub(super) fn build(repository: &Repository, package: &str, bench: &str) -> Result<PathBuf> {
    let built = repository
        .cargo()
        .args(["bench", "--locked", "--package", package, "--bench", bench, "--no-run"])
        .args(["--message-format", "json"])
        .output()
        .context("cannot run cargo")?;
    if !built.status.success() {
        bail!("the bench cannot be built: {}", String::from_utf8_lossy(&built.stderr).trim());
    }
    let messages = built.stdout.split(|byte| *byte == b'\n');
    let mut programs = messages.filter_map(|line| serde_json::from_slice::<Message>(line).ok()?.executable);
    programs.next_back().context("cargo built no bench")
}

/// Instructions spent in cycles, by callgrind.
fn instructions(repository: &Repository, program: &Path, sizes: &[String]) -> Result<u64> {
    let out = repository.metadata()?.target_directory.join("callgrind.steady");
    super::measure::callgrind(CYCLE, &out, Command::new(program).args(sizes))?
        .context("valgrind is not installed")
}

impl Measured {
    fn text(&self) -> String {
        let mut text = format!(
            "CPU time of a scheduler that watches {} nodes and {} pods, of which {} are pending and unschedulable, for a \
             change of one pod: until the cycle that only allocates has ended, and after that until the cycle with all \
             actions and the status reports have ended. It includes decoding the event, updating the cluster model, \
             planning and submitting the decisions. Median and maximum of {} rounds on one core; the start takes {:.1} \
             s. Written by `cargo xtask bench steady --write`.\n\n\
             | change | allocate ms, median | max | all actions ms, median | max |\n|---|---|---|---|---|\n",
            self.nodes,
            self.pods,
            self.pending,
            self.rounds,
            self.start_ms / 1e3,
        );
        for Change { what, allocate_ms, all_actions_ms } in &self.changes {
            writeln!(
                text,
                "| {what} | {:.2} | {:.2} | {:.2} | {:.2} |",
                allocate_ms.median, allocate_ms.max, all_actions_ms.median, all_actions_ms.max
            )
            .expect("writing to a string");
        }
        text
    }

    fn misses(&self) -> Vec<String> {
        if (self.nodes, self.pods, self.pending) != TARGET {
            return Vec::new();
        }
        let both = self.changes.iter().flat_map(|change| {
            [
                (&change.what, "allocate", &change.allocate_ms),
                (&change.what, "all actions", &change.all_actions_ms),
            ]
        });
        let over = both.filter(|(_, _, figures)| figures.median > CYCLE_MS_MAX);
        over.map(|(change, part, figures)| {
            format!("{part} takes {:.1} ms when {change}, at most {CYCLE_MS_MAX} are wanted", figures.median)
        })
        .collect()
    }
}
