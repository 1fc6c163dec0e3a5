//! Measures the embedded API server beside kube-apiserver: `cargo xtask bench apiserver`.
//!
//! The command builds `xtask` in the release profile and re-executes it with the hidden subcommand
//! `bench apiserver-worker`, which runs the load and prints JSON. Servers run in processes of their own, so that
//! their peak memory contains neither the clients nor the other server.

mod compare;
mod in_process;
mod load;
mod memory;
mod pod;
mod server_process;
mod watchers;

use super::page::{self, Part};
use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use compare::Comparison;
use in_process::InProcess;
use load::Operation;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Arguments that select the worker subcommand of this program.
const WORKER: [&str; 2] = ["bench", "apiserver-worker"];

/// Minimum ratio between the rate of the embedded server and that of kube-apiserver, for each operation.
const RATE_RATIO_MIN: f64 = 3.0;
/// Maximum ratio between the peak memory of the embedded server and that of kube-apiserver.
const MEMORY_RATIO_MAX: f64 = 0.2;
/// Minimum creates per second in process.
const CREATES_MIN: f64 = 5_000.0;
/// Number of pods that must fit in [`PODS_BYTES_MAX`].
const PODS_MANY: usize = 100_000;
const PODS_BYTES_MAX: f64 = (1_u64 << 30) as f64;

/// Options of `cargo xtask bench apiserver`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pods to create, get, patch, bind and list.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Rounds; the best of each operation counts, on both sides.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Write the measurements to `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// The part of the bench that runs in the release profile.
#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    task: WorkerTask,
}

#[derive(clap::Subcommand)]
enum WorkerTask {
    /// Put the same load on kube-apiserver and on the embedded server; prints JSON.
    Compare {
        /// The folder with the Kubernetes programs; without it, only the embedded server is measured.
        #[arg(long, value_name = "FOLDER")]
        programs: Option<PathBuf>,
        #[command(flatten)]
        load: load::LoadArgs,
        /// Rounds; the best rate of each operation counts, and the largest memory.
        #[arg(long, default_value_t = 2)]
        rounds: usize,
    },
    /// Create pods without HTTP connections, then list them; prints JSON.
    InProcess {
        #[arg(long, default_value_t = PODS_MANY)]
        pods: usize,
    },
    /// Serve an empty cluster until standard input closes; prints the endpoint as JSON.
    Serve,
}

/// Builds the release profile, measures and prints.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let build = ["build", "--release", "--locked", "--package", "xtask"];
    let built = repository.cargo().args(build).status().context("cannot run cargo")?;
    if !built.success() {
        bail!("the release build failed");
    }
    let program = target.join("release/xtask");
    let (pods, rounds) = (args.pods.to_string(), args.rounds.to_string());
    let mut options = vec!["compare", "--pods", &pods, "--rounds", &rounds];
    let folder = match kubernetes::missing() {
        None => Some(kubernetes::built(repository)?.display().to_string()),
        Some(why) => {
            println!("no comparison with kube-apiserver: {why}");
            None
        }
    };
    if let Some(folder) = &folder {
        options.extend(["--programs", folder]);
    }
    let comparison: Comparison = measure(&program, &options)?;
    let in_process: InProcess = measure(&program, &["in-process", "--pods", &PODS_MANY.to_string()])?;
    let text = table(&comparison, &in_process);
    println!("{text}");
    let misses = misses(&comparison, &in_process);
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::ApiServer, &section(&comparison, &text, &misses, args.rounds))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

pub(super) fn run_worker(args: &WorkerArgs) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    match &args.task {
        WorkerTask::Compare { programs, load, rounds } => {
            let comparison = runtime.block_on(compare::run(programs.as_deref(), load, *rounds))?;
            println!("{}", serde_json::to_string(&comparison)?);
        }
        WorkerTask::InProcess { pods } => {
            println!("{}", serde_json::to_string(&runtime.block_on(in_process::run(*pods))?)?);
        }
        WorkerTask::Serve => runtime.block_on(server_process::run())?,
    }
    Ok(())
}

fn measure<T: DeserializeOwned>(program: &Path, arguments: &[&str]) -> Result<T> {
    let output = Command::new(program)
        .args(WORKER)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{}`", program.display()))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", program.display(), output.status);
    }
    serde_json::from_slice(&output.stdout).context("the worker printed invalid JSON")
}

fn table(comparison: &Comparison, in_process: &InProcess) -> String {
    let mut text = String::from("| | embedded | kube-apiserver | ratio |\n|---|---|---|---|\n");
    let mut row = |what: &str, ours: String, theirs: Option<String>, ratio: Option<f64>| {
        let theirs = theirs.unwrap_or_else(|| "–".to_owned());
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.1}×"));
        writeln!(text, "| {what} | {ours} | {theirs} | {ratio} |").expect("writing to a string");
    };
    let real = comparison.real.as_ref();
    for (index, (operation, ours)) in comparison.embedded.rates.iter().enumerate() {
        let theirs = real.and_then(|real| real.rates.get(index)).map(|(_, rate)| *rate);
        row(label(*operation), rate(*ours), theirs.map(rate), theirs.map(|theirs| ours / theirs));
    }
    let ours = comparison.embedded.peak_bytes as f64;
    let alone = real.map(|real| real.peak_bytes as f64);
    let with_etcd = real.map(|real| (real.peak_bytes + real.etcd_peak_bytes) as f64);
    row("peak memory, MB", megabytes(ours), alone.map(megabytes), alone.map(|theirs| theirs / ours));
    let theirs = with_etcd.map(megabytes);
    row("peak memory with etcd, MB", megabytes(ours), theirs, with_etcd.map(|theirs| theirs / ours));
    let closed = real.map(|real| real.closed_watches.to_string());
    row("watches closed for slow clients", comparison.embedded.closed_watches.to_string(), closed, None);
    row("creates in process, per second", rate(in_process.creates_per_s), None, None);
    let what = format!("peak memory of {} pods, once listed, MB", in_process.pods);
    row(&what, megabytes(in_process.peak_bytes as f64), None, None);
    let what = format!("a list of {} pods in process, ms", in_process.pods);
    row(&what, format!("{:.0}", in_process.list_ms), None, None);
    text
}

fn label(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "creates per second",
        Operation::Get => "gets per second",
        Operation::Patch => "patches per second",
        Operation::Bind => "bindings per second",
        Operation::List => "full lists per second",
    }
}

fn rate(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn megabytes(bytes: f64) -> String {
    format!("{:.0}", bytes / 1e6)
}

/// One line for each missed target.
fn misses(comparison: &Comparison, in_process: &InProcess) -> Vec<String> {
    let mut misses = Vec::new();
    if let Some(real) = &comparison.real {
        for ((operation, ours), (_, theirs)) in comparison.embedded.rates.iter().zip(&real.rates) {
            let ratio = ours / theirs;
            if ratio < RATE_RATIO_MIN {
                let what = label(*operation);
                misses.push(format!(
                    "{what} are {ratio:.1} times those of kube-apiserver, the target is {RATE_RATIO_MIN}"
                ));
            }
        }
        let ratio = comparison.embedded.peak_bytes as f64 / real.peak_bytes as f64;
        if ratio > MEMORY_RATIO_MAX {
            misses
                .push(format!("memory is {ratio:.2} of kube-apiserver's, the target is {MEMORY_RATIO_MAX}"));
        }
    }
    if in_process.creates_per_s < CREATES_MIN {
        misses.push(format!(
            "{:.0} creates/s in process, the target is {CREATES_MIN}",
            in_process.creates_per_s
        ));
    }
    if in_process.peak_bytes as f64 > PODS_BYTES_MAX {
        let peak = megabytes(in_process.peak_bytes as f64);
        misses.push(format!("{} pods use {peak} MB, the target is 1 GiB", in_process.pods));
    }
    misses
}

/// The section of `docs/performance.md`.
fn section(comparison: &Comparison, table: &str, misses: &[String], rounds: usize) -> String {
    let Comparison { pods, clients, watchers, .. } = comparison;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut text = format!(
        "The same requests to the embedded API server and to kube-apiserver v1.36.3 with etcd (which does not sync to disk), \
         one after the other in the same run. Written by `cargo xtask bench apiserver --write`; do not edit by hand.\n\n\
         - {pods} pods; {clients} clients with a persistent HTTPS connection each, two of them for lists. {watchers} more clients \
         watch all pods; an operation ends when each of them has received every event. A closed watch resumes at its last resourceVersion.\n\
         - Servers run in processes of their own, beside the clients on {cores} cores. Rates are the best of {rounds} rounds, \
         memory is the peak resident size over all rounds.\n\n{table}\n"
    );
    if misses.is_empty() {
        text.push_str("All targets are met: three times as fast, a fifth of the memory, 5,000 creates per second in process, 100,000 pods in 1 GiB.\n");
    }
    for miss in misses {
        writeln!(text, "- Missed: {miss}.").expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::compare::Measurements;
    use super::*;

    fn comparison(rate: f64, peak_bytes: u64) -> Comparison {
        let measurements = |rate, peak_bytes| Measurements {
            rates: vec![(Operation::Create, rate)],
            peak_bytes,
            etcd_peak_bytes: 10_000_000,
            closed_watches: 0,
        };
        let (embedded, real) = (measurements(rate, peak_bytes), measurements(1_000.0, 500_000_000));
        Comparison { pods: 10, clients: 2, watchers: 1, embedded, real: Some(real) }
    }

    fn in_process(creates_per_s: f64, peak_bytes: u64) -> InProcess {
        InProcess { pods: PODS_MANY, creates_per_s, list_ms: 1.0, list_bytes: 1, peak_bytes }
    }

    #[test]
    fn targets_are_met_at_their_limits() {
        let misses = misses(&comparison(3_000.0, 100_000_000), &in_process(5_000.0, 1 << 30));
        assert_eq!(misses, Vec::<String>::new());
    }

    #[test]
    fn each_missed_target_is_reported() {
        let misses = misses(&comparison(2_900.0, 150_000_000), &in_process(4_000.0, 2 << 30));
        assert_eq!(
            misses,
            [
                "creates per second are 2.9 times those of kube-apiserver, the target is 3",
                "memory is 0.30 of kube-apiserver's, the target is 0.2",
                "4000 creates/s in process, the target is 5000",
                "100000 pods use 2147 MB, the target is 1 GiB",
            ]
        );
    }

    #[test]
    fn table_without_kube_apiserver_has_no_ratios() {
        let comparison = Comparison { real: None, ..comparison(10.0, 1) };
        assert!(table(&comparison, &in_process(1.0, 1)).contains("| creates per second | 10.0 | – | – |"));
    }
}
