//! Runs many seeds of random tests in parallel: `cargo xtask seeds --count N [--from S] [--only FAMILY]`.
//!
//! The tests of `crates/cli/tests/system` and `crates/whatif/tests` run some seeds by default; this runs any number of
//! others, prints those that fail, and continues. Thousands of seeds are run with `--optimised`, and with `--resume` after
//! an interruption.

mod progress;

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_clock::Stopwatch;
use parking_lot::Mutex;
use progress::Progress;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Seeds that one process runs in sequence. The first one also compiles the patterns of the installed definitions.
const BATCH: u64 = 10;
/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_mins(1);

/// A test that runs the seeds of an environment variable.
struct Family {
    name: &'static str,
    program: Program,
    variable: &'static str,
    test: &'static str,
}

/// Tests that are built as one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    package: &'static str,
    target: &'static str,
    /// The folder in which the tests run.
    folder: &'static str,
}

/// Tests of all components on the embedded cluster.
const SYSTEM: Program = Program { package: "kai-cli", target: "system", folder: "crates/cli" };
/// The law of hints.
const HINTS: Program = Program { package: "kai-whatif", target: "it", folder: "crates/whatif" };

const FAMILIES: [Family; 5] = [
    Family {
        name: "requests",
        program: SYSTEM,
        variable: "KAI_SYSTEM_SEEDS",
        test: "fault_injection::further_seeds_keep_invariants_and_converge",
    },
    Family {
        name: "network",
        program: SYSTEM,
        variable: "KAI_NETWORK_SEEDS",
        test: "fault_injection::network::further_network_seeds_keep_invariants_and_converge",
    },
    Family {
        name: "leases",
        program: SYSTEM,
        variable: "KAI_SYSTEM_LEASE_SEEDS",
        test: "fault_injection::leader_election::further_seeds_keep_invariants_when_leaders_change",
    },
    Family {
        name: "hostile",
        program: SYSTEM,
        variable: "KAI_HOSTILE_SEEDS",
        test: "hostile_tenants::neighbours_are_not_affected_by_hostile_objects_of_further_seeds",
    },
    Family {
        name: "hints",
        program: HINTS,
        variable: "KAI_HINT_SEEDS",
        test: "law::every_hint_runs_its_group_on_further_clusters",
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
    /// One family: requests, network, leases, hostile or hints.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Processes at a time; as many as there are cores by default.
    #[arg(long)]
    pub(crate) jobs: Option<usize>,
    /// Build with the profile `seeds`: minutes of compilation, after which a seed takes a fraction of the time.
    #[arg(long)]
    pub(crate) optimised: bool,
    /// Skip seeds that have passed before with the same program.
    #[arg(long)]
    pub(crate) resume: bool,
}

impl Args {
    /// So many seeds of each family that have not run before; the time gives the first one.
    pub(crate) fn fresh(count: u64) -> Self {
        let from = u64::try_from(kai_clock::unix_micros() / 1_000_000).unwrap_or(0);
        Self { count, from, only: None, jobs: None, optimised: false, resume: false }
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
    let programs: BTreeSet<Program> = families.iter().map(|family| family.program).collect();
    let build = |program: Program| Ok((program, build(repository, program, args.optimised)?));
    let built = programs.into_iter().map(build).collect::<Result<BTreeMap<Program, PathBuf>>>()?;
    let folder = repository.metadata()?.target_directory.join("fault-seeds");
    let file = progress::file_of(built.values().map(PathBuf::as_path), &folder)?;
    let passed = if args.resume { progress::passed_before(&file) } else { BTreeMap::new() };
    let progress = Progress::append_to(&file)?;
    let none = BTreeSet::new();
    let mut batches: VecDeque<Batch> = VecDeque::new();
    for from in (args.from..end).step_by(usize::try_from(BATCH)?) {
        for family in &families {
            let passed = passed.get(family.name).unwrap_or(&none);
            let left = missing(from..(from + BATCH).min(end), passed);
            batches.extend(left.into_iter().map(|seeds| (*family, seeds)));
        }
    }
    let left: u64 = batches.iter().map(|(_, seeds)| seeds.end - seeds.start).sum();
    let total = args.count * families.len() as u64;
    println!("{} seeds of each of {} families, from {} on", args.count, families.len(), args.from);
    if left < total {
        println!("{} of them have passed before with this program", total - left);
    }
    let watch = Stopwatch::start();
    let failures = run_batches(repository, &built, args.jobs, batches, &progress, left)?;
    println!("{left} seeds in {:.0} s: {}", watch.elapsed().as_secs_f64(), progress.by_family());
    if failures.is_empty() {
        return Ok(());
    }
    println!("repeat them with");
    for Failure { family, seed, .. } in &failures {
        println!(
            "  {}={seed}..{} cargo test -p {} --test {} -- --ignored --exact {}",
            family.variable,
            seed + 1,
            family.program.package,
            family.program.target,
            family.test
        );
    }
    bail!("{} of {left} seeds failed", failures.len())
}

/// Seeds of a family that one process runs.
type Batch = (&'static Family, Range<u64>);

/// The seeds of a range that have not passed, as ranges.
fn missing(seeds: Range<u64>, passed: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for seed in seeds.filter(|seed| !passed.contains(seed)) {
        match ranges.last_mut() {
            Some(range) if range.end == seed => range.end += 1,
            _ => ranges.push(seed..seed + 1),
        }
    }
    ranges
}

/// Runs batches in parallel, and prints failures and progress.
fn run_batches(
    repository: &Repository,
    built: &BTreeMap<Program, PathBuf>,
    jobs: Option<usize>,
    batches: VecDeque<Batch>,
    progress: &Progress,
    left: u64,
) -> Result<Vec<Failure>> {
    let (batches, failures) = (Mutex::new(batches), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let (watch, reported) = (Stopwatch::start(), Mutex::new(Duration::ZERO));
    let work = || -> Result<()> {
        loop {
            let Some((family, seeds)) = batches.lock().pop_front() else { return Ok(()) };
            let program = built.get(&family.program).context("the program of each family is built")?;
            let folder = repository.root.join(family.program.folder);
            let Some(failure) = run_batch(program, &folder, family, &seeds) else {
                progress.passed(family.name, seeds)?;
                report(progress, &watch, &reported, left);
                continue;
            };
            println!("{} seed {}: {}", family.name, failure.seed, failure.message);
            progress.passed(family.name, seeds.start..failure.seed)?;
            progress.failed(family.name);
            if failure.seed + 1 < seeds.end {
                batches.lock().push_front((family, failure.seed + 1..seeds.end));
            }
            failures.lock().push(failure);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.unwrap_or(cores).max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })?;
    Ok(failures.into_inner())
}

/// Prints how far the run is, at most once in an interval.
fn report(progress: &Progress, watch: &Stopwatch, reported: &Mutex<Duration>, all: u64) {
    let (elapsed, mut reported) = (watch.elapsed(), reported.lock());
    if elapsed.saturating_sub(*reported) < PROGRESS_INTERVAL {
        return;
    }
    *reported = elapsed;
    let count = progress.total();
    let done = (count.passed + count.failed).max(1);
    let per_seed = elapsed.as_secs_f64() / done as f64;
    println!(
        "{done} of {all} seeds, {} failed, {per_seed:.2} s per seed, about {:.0} min left",
        count.failed,
        per_seed * all.saturating_sub(done) as f64 / 60.0
    );
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
fn build(repository: &Repository, program: Program, optimised: bool) -> Result<PathBuf> {
    let Program { package, target, .. } = program;
    let mut command = repository.cargo();
    command.args(["test", "--package", package, "--test", target, "--no-run", "--locked"]);
    if optimised {
        command.args(["--profile", "seeds"]);
    }
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs = text.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == target && message["reason"] == "compiler-artifact";
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

    #[test]
    fn passed_seeds_are_left_out_of_a_batch() {
        let passed = BTreeSet::from([1, 4, 9]);
        assert_eq!(missing(0..10, &passed), [0..1, 2..4, 5..9]);
        assert_eq!(missing(4..5, &passed), [0..0; 0]);
    }
}
