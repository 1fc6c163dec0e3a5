//! What a change of one pod costs the scheduler of a large cluster at rest: `crates/scheduler/benches/steady`.

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
const CYCLE: &str = "kai_scheduler::heart::decide::*::cycle*";

/// Options of `cargo xtask bench steady`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Nodes of eight GPUs.
    #[arg(long, default_value_t = TARGET.0)]
    nodes: usize,
    /// Pods, those that wait included.
    #[arg(long, default_value_t = TARGET.1)]
    pods: usize,
    /// Pods that wait.
    #[arg(long, default_value_t = TARGET.2)]
    waiting: usize,
    /// How often each change is made; a team has one small pod that waits, so that 25 is the most.
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
    waiting: usize,
    rounds: usize,
    start_ms: f64,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    #[serde(rename = "change")]
    what: String,
    placing_ms: Figures,
    evicting_ms: Figures,
}

#[derive(Deserialize)]
struct Figures {
    median: f64,
    most: f64,
}

/// Measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let program = build(repository)?;
    let sizes = [args.nodes, args.pods, args.waiting, args.rounds].map(|size| size.to_string());
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

/// Builds the bench and says where it is.
fn build(repository: &Repository) -> Result<PathBuf> {
    let built = repository
        .cargo()
        .args(["bench", "--locked", "--package", "kai-scheduler", "--bench", "steady", "--no-run"])
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
            "What a change of one pod costs a scheduler that watches {} nodes and {} pods, of which {} wait in vain: \
             processor time from the event until pods are placed, and after that until it is clear whether somebody \
             is to be evicted and everybody has been told. Reading the event, bringing the cluster up to date, planning \
             and handing on what was decided are all in it; the server costs next to nothing. Median and most of {} \
             rounds on one core; starting costs {:.1} s. Written by `cargo xtask bench steady --write`.\n\n\
             | change | placing ms, median | most | evicting ms, median | most |\n|---|---|---|---|---|\n",
            self.nodes,
            self.pods,
            self.waiting,
            self.rounds,
            self.start_ms / 1e3,
        );
        for Change { what, placing_ms, evicting_ms } in &self.changes {
            writeln!(
                text,
                "| {what} | {:.2} | {:.2} | {:.2} | {:.2} |",
                placing_ms.median, placing_ms.most, evicting_ms.median, evicting_ms.most
            )
            .expect("writing to a string");
        }
        text
    }

    fn misses(&self) -> Vec<String> {
        if (self.nodes, self.pods, self.waiting) != TARGET {
            return Vec::new();
        }
        let both = self.changes.iter().flat_map(|change| {
            [(&change.what, "placing", &change.placing_ms), (&change.what, "evicting", &change.evicting_ms)]
        });
        let over = both.filter(|(_, _, figures)| figures.median > CYCLE_MS_MAX);
        over.map(|(change, part, figures)| {
            format!("{part} takes {:.1} ms when {change}, at most {CYCLE_MS_MAX} are wanted", figures.median)
        })
        .collect()
    }
}
