//! Runs many seeds of the simulated faults in parallel: `cargo xtask seeds --count N [--from S] [--only FAMILY]`.
//!
//! The tests of `crates/cli/tests/system` run some seeds by default; this runs any number of others, prints those that fail,
//! and continues.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_clock::Stopwatch;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seeds that one process runs in sequence. The first one also compiles the patterns of the installed definitions.
const BATCH: u64 = 10;

/// A test that runs the seeds of an environment variable.
struct Family {
    name: &'static str,
    variable: &'static str,
    test: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "requests",
        variable: "KAI_SYSTEM_SEEDS",
        test: "fault_injection::further_seeds_keep_invariants_and_converge",
    },
    Family {
        name: "network",
        variable: "KAI_NETWORK_SEEDS",
        test: "fault_injection::network::further_network_seeds_keep_invariants_and_converge",
    },
    Family {
        name: "leases",
        variable: "KAI_SYSTEM_LEASE_SEEDS",
        test: "fault_injection::leader_election::further_seeds_keep_invariants_when_leaders_change",
    },
    Family {
        name: "hostile",
        variable: "KAI_HOSTILE_SEEDS",
        test: "hostile_tenants::neighbours_are_not_affected_by_hostile_objects_of_further_seeds",
    },
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seeds of each family.
    #[arg(long, default_value_t = 100)]
    pub(crate) count: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) from: u64,
    /// One family: requests, network, leases or hostile.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Processes at a time; as many as there are cores by default.
    #[arg(long)]
    pub(crate) jobs: Option<usize>,
}

impl Args {
    /// So many seeds of each family that have not run before; the time gives the first one.
    pub(crate) fn fresh(count: u64) -> Self {
        let from = u64::try_from(kai_clock::unix_micros() / 1_000_000).unwrap_or(0);
        Self { count, from, only: None, jobs: None }
    }
}

/// A failed seed.
struct Failure {
    family: &'static Family,
    seed: u64,
    /// The message of the panic.
    message: String,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let families: Vec<&'static Family> =
        FAMILIES.iter().filter(|family| args.only.as_ref().is_none_or(|only| only == family.name)).collect();
    if families.is_empty() {
        let known: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        bail!("`--only {}` is none of {}", args.only.as_deref().unwrap_or_default(), known.join(", "));
    }
    let end = args.from.checked_add(args.count).context("`--from` and `--count` are too large")?;
    let binary = build(repository)?;
    let folder = repository.root.join("crates/cli");
    let starts = (args.from..end).step_by(usize::try_from(BATCH)?);
    let batches =
        starts.flat_map(|from| families.iter().map(move |family| (*family, from..(from + BATCH).min(end))));
    let batches: Mutex<VecDeque<(&'static Family, Range<u64>)>> = Mutex::new(batches.collect());
    let failures = Mutex::new(Vec::new());
    println!("{} seeds of each of {} families, from {} on", args.count, families.len(), args.from);
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                loop {
                    let Some((family, seeds)) = batches.lock().pop_front() else { return };
                    let Some(failure) = run_batch(&binary, &folder, family, &seeds) else { continue };
                    println!("{} seed {}: {}", family.name, failure.seed, failure.message);
                    if failure.seed + 1 < seeds.end {
                        batches.lock().push_front((family, failure.seed + 1..seeds.end));
                    }
                    failures.lock().push(failure);
                }
            });
        }
    });
    let seconds = watch.elapsed().as_secs_f64();
    let failures = failures.into_inner();
    let total = args.count * families.len() as u64;
    println!("{total} seeds in {seconds:.0} s, {} failed", failures.len());
    if failures.is_empty() {
        return Ok(());
    }
    println!("repeat them with");
    for Failure { family, seed, .. } in &failures {
        println!(
            "  {}={seed}..{} cargo test -p kai-cli --test system -- --ignored --exact {}",
            family.variable,
            seed + 1,
            family.test
        );
    }
    bail!("{} of {total} seeds failed", failures.len())
}

/// Runs seeds until one fails.
fn run_batch(binary: &Path, folder: &Path, family: &'static Family, seeds: &Range<u64>) -> Option<Failure> {
    let output = Command::new(binary)
        .current_dir(folder)
        .args(["--ignored", "--exact", family.test])
        .env(family.variable, format!("{}..{}", seeds.start, seeds.end))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output();
    let text = match output {
        Ok(output) if output.status.success() => return None,
        Ok(output) => {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        }
        Err(error) => format!("cannot run the tests: {error}"),
    };
    Some(Failure { family, seed: failed_seed(&text).unwrap_or(seeds.start), message: message(&text) })
}

fn failed_seed(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(" failed; repeat")?.0.parse().ok())
}

/// The line after that of the panic.
fn message(text: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
    let message = lines.nth(1).or_else(|| text.lines().last()).unwrap_or_default();
    message.chars().take(300).collect()
}

/// Builds the tests and returns their program.
fn build(repository: &Repository) -> Result<PathBuf> {
    let mut command = repository.cargo();
    command.args(["test", "--package", "kai-cli", "--test", "system", "--no-run", "--locked"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs = text.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == "system" && message["reason"] == "compiler-artifact";
        message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
    });
    programs.next_back().context("cargo named no program of the tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_message_of_a_failure_are_found() {
        let text = "running 1 test\nthread 'x' (1) panicked at a.rs:1:2:\nseed 7: broken\nnote: run\n\
                    seed 7 failed; repeat it with\n  X=7..8 cargo test\n";
        assert_eq!(failed_seed(text), Some(7));
        assert_eq!(message(text), "seed 7: broken");
    }
}
