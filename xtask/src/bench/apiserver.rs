//! Times the embedded API server beside a real kube-apiserver: `cargo xtask bench apiserver`.
//!
//! The measuring is done by `crates/apibench`, built in the release profile; here are the targets and the words.

use super::page::{self, Part};
use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many times as fast as the real server each operation must be.
const FASTER_MIN: f64 = 3.0;
/// The share of the real server's memory that is fine.
const MEMORY_SHARE_MAX: f64 = 0.2;
/// Creates in process that are wanted, per second.
const CREATES_MIN: f64 = 5_000.0;
/// Pods that must fit in [`PODS_BYTES_MAX`].
const PODS_MANY: usize = 100_000;
/// Memory that many pods may take.
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
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// What the comparison prints.
#[derive(Deserialize)]
struct Compared {
    pods: usize,
    clients: usize,
    watchers: usize,
    embedded: Figures,
    real: Option<Figures>,
}

/// What one server did.
#[derive(Deserialize)]
struct Figures {
    rates: Vec<(String, f64)>,
    peak_bytes: u64,
    store_peak_bytes: u64,
    cuts: u64,
}

/// What creating without HTTP gave.
#[derive(Deserialize)]
struct InProcess {
    pods: usize,
    creates_per_s: f64,
    list_ms: f64,
    peak_bytes: u64,
}

/// Builds, measures and prints.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let build = ["build", "--release", "--locked", "--package", "kai-apibench"];
    let built = repository.cargo().args(build).status().context("cannot run cargo")?;
    if !built.success() {
        bail!("the release build failed");
    }
    let program = target.join("release/kai-apibench");
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
    let compared: Compared = measure(&program, &options)?;
    let many: InProcess = measure(&program, &["in-process", "--pods", &PODS_MANY.to_string()])?;
    let text = table(&compared, &many);
    println!("{text}");
    let misses = misses(&compared, &many);
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::ApiServer, &section(&compared, &text, &misses, args.rounds))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

fn measure<T: DeserializeOwned>(program: &Path, arguments: &[&str]) -> Result<T> {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{}`", program.display()))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", program.display(), output.status);
    }
    serde_json::from_slice(&output.stdout).context("the bench printed something else")
}

fn table(compared: &Compared, many: &InProcess) -> String {
    let mut text = String::from("| | embedded | kube-apiserver | ratio |\n|---|---|---|---|\n");
    let mut row = |what: &str, ours: String, theirs: Option<String>, ratio: Option<f64>| {
        let theirs = theirs.unwrap_or_else(|| "–".to_owned());
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.1}×"));
        writeln!(text, "| {what} | {ours} | {theirs} | {ratio} |").expect("writing to a string");
    };
    let real = compared.real.as_ref();
    for (index, (operation, ours)) in compared.embedded.rates.iter().enumerate() {
        let theirs = real.and_then(|real| real.rates.get(index)).map(|(_, rate)| *rate);
        row(&words(operation), rate(*ours), theirs.map(rate), theirs.map(|theirs| ours / theirs));
    }
    let ours = compared.embedded.peak_bytes as f64;
    let alone = real.map(|real| real.peak_bytes as f64);
    let with_store = real.map(|real| (real.peak_bytes + real.store_peak_bytes) as f64);
    row("peak memory, MB", megabytes(ours), alone.map(megabytes), alone.map(|theirs| theirs / ours));
    let theirs = with_store.map(megabytes);
    row("peak memory with etcd, MB", megabytes(ours), theirs, with_store.map(|theirs| theirs / ours));
    let cuts = real.map(|real| real.cuts.to_string());
    row("watchers cut off for being slow", compared.embedded.cuts.to_string(), cuts, None);
    row("creates in process, per second", rate(many.creates_per_s), None, None);
    let what = format!("peak memory of {} pods, once listed, MB", many.pods);
    row(&what, megabytes(many.peak_bytes as f64), None, None);
    let what = format!("a list of {} pods in process, ms", many.pods);
    row(&what, format!("{:.0}", many.list_ms), None, None);
    text
}

/// What an operation is called on the page.
fn words(operation: &str) -> String {
    match operation {
        "list" => "full lists per second".to_owned(),
        "bind" => "bindings per second".to_owned(),
        "patch" => "patches per second".to_owned(),
        other => format!("{other}s per second"),
    }
}

fn rate(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn megabytes(bytes: f64) -> String {
    format!("{:.0}", bytes / 1e6)
}

/// Targets that are not met, in words.
fn misses(compared: &Compared, many: &InProcess) -> Vec<String> {
    let mut misses = Vec::new();
    if let Some(real) = &compared.real {
        for ((operation, ours), (_, theirs)) in compared.embedded.rates.iter().zip(&real.rates) {
            let ratio = ours / theirs;
            if ratio < FASTER_MIN {
                let what = words(operation);
                misses.push(format!(
                    "{what} are {ratio:.1} times those of the real server, {FASTER_MIN} are wanted"
                ));
            }
        }
        let share = compared.embedded.peak_bytes as f64 / real.peak_bytes as f64;
        if share > MEMORY_SHARE_MAX {
            misses.push(format!("memory is {share:.2} of the real server's, {MEMORY_SHARE_MAX} are wanted"));
        }
    }
    if many.creates_per_s < CREATES_MIN {
        misses.push(format!("{:.0} creates/s in process, {CREATES_MIN} are wanted", many.creates_per_s));
    }
    if many.peak_bytes as f64 > PODS_BYTES_MAX {
        let peak = megabytes(many.peak_bytes as f64);
        misses.push(format!("{} pods take {peak} MB, 1 GiB is wanted", many.pods));
    }
    misses
}

/// The section of the page in `docs/`.
fn section(compared: &Compared, table: &str, misses: &[String], rounds: usize) -> String {
    let Compared { pods, clients, watchers, .. } = compared;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut text = format!(
        "The same requests to the embedded API server and to kube-apiserver v1.36.3 with etcd (which does not sync to disk), \
         one after the other in the same run. Written by `cargo xtask bench apiserver --write`; do not edit by hand.\n\n\
         - {pods} pods; {clients} clients with a kept HTTPS connection each, two of them for lists. {watchers} more clients \
         watch all pods, and an operation ends when each of them has read every event; one that was cut off goes on where it was.\n\
         - Servers run in processes of their own, beside the clients on {cores} cores. Rates are the best of {rounds} rounds, \
         memory is the most that was ever resident in any of them.\n\n{table}\n"
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
    use super::*;

    fn compared(rate: f64, peak_bytes: u64) -> Compared {
        let figures = |rate, peak_bytes| Figures {
            rates: vec![("create".to_owned(), rate)],
            peak_bytes,
            store_peak_bytes: 10_000_000,
            cuts: 0,
        };
        let (embedded, real) = (figures(rate, peak_bytes), figures(1_000.0, 500_000_000));
        Compared { pods: 10, clients: 2, watchers: 1, embedded, real: Some(real) }
    }

    fn many(creates_per_s: f64, peak_bytes: u64) -> InProcess {
        InProcess { pods: PODS_MANY, creates_per_s, list_ms: 1.0, peak_bytes }
    }

    #[test]
    fn targets_are_met_at_their_bound() {
        let misses = misses(&compared(3_000.0, 100_000_000), &many(5_000.0, 1 << 30));
        assert_eq!(misses, Vec::<String>::new());
    }

    #[test]
    fn each_missed_target_is_named() {
        let misses = misses(&compared(2_900.0, 150_000_000), &many(4_000.0, 2 << 30));
        assert_eq!(
            misses,
            [
                "creates per second are 2.9 times those of the real server, 3 are wanted",
                "memory is 0.30 of the real server's, 0.2 are wanted",
                "4000 creates/s in process, 5000 are wanted",
                "100000 pods take 2147 MB, 1 GiB is wanted",
            ]
        );
    }

    #[test]
    fn without_a_real_server_the_figures_stand_alone() {
        let compared = Compared { real: None, ..compared(10.0, 1) };
        assert!(table(&compared, &many(1.0, 1)).contains("| creates per second | 10.0 | – | – |"));
    }
}
