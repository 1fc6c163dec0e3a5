//! Short coverage-guided fuzzing of everything that reads foreign input: `cargo xtask fuzz`.
//!
//! The targets are a workspace of their own, built by the pinned stable compiler with coverage for libFuzzer
//! (`fuzz/.cargo/config.toml`). What a run learns stays in `fuzz/corpus`; what broke a target is kept in
//! `fuzz/artifacts`.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_testkit::shapes;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest input tried.
const INPUT_BYTES_MAX: usize = 1 << 16;
/// An input that takes longer is a failure.
const INPUT_SECONDS_MAX: usize = 10;
/// An input that needs more memory is a failure.
const MEMORY_MB_MAX: usize = 2_048;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target.
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: usize,
    /// Only these targets.
    pub(crate) targets: Vec<String>,
}

/// Builds the targets and runs each for a while.
pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let folder = repository.root.join("fuzz");
    let binaries = build(repository, &folder)?;
    for target in targets(&folder)? {
        if args.targets.is_empty() || args.targets.contains(&target) {
            let corpus = seed(&folder, &target)?;
            fuzz(&folder, &binaries, &target, &corpus, args.seconds)
                .with_context(|| format!("the fuzz target `{target}` failed"))?;
        }
    }
    Ok(())
}

/// Names of all targets: one a file.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder.join("fuzz_targets").read_dir().context("there are no fuzz targets")? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Builds every target; the folder that holds the binaries.
fn build(repository: &Repository, folder: &Path) -> Result<PathBuf> {
    let host = host()?;
    let target = repository.metadata()?.target_directory.join("fuzz");
    // A named target keeps build scripts and macros free of coverage, which only the host's loader would see.
    let built = repository
        .cargo()
        .current_dir(folder)
        .args(["build", "--release", "--locked", "--quiet", "--bins", "--target", &host])
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .status()
        .context("cannot run cargo")?;
    if !built.success() {
        bail!("the fuzz targets do not build; hint: libFuzzer needs a C++ compiler");
    }
    Ok(target.join(host).join("release"))
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    Ok(host.to_owned())
}

/// The corpus of a target, with small clusters of every shape for those that read clusters.
fn seed(folder: &Path, target: &str) -> Result<PathBuf> {
    let corpus = folder.join("corpus").join(target);
    std::fs::create_dir_all(&corpus).with_context(|| format!("cannot make `{}`", corpus.display()))?;
    std::fs::create_dir_all(folder.join("artifacts").join(target))?;
    if ["snapshot", "objects"].contains(&target) {
        for shape in shapes::SHAPES {
            let mut bytes = Vec::new();
            shapes::write(shape, 1, &mut bytes)?;
            if bytes.len() <= INPUT_BYTES_MAX {
                std::fs::write(corpus.join(format!("shape-{}", shape.name)), bytes)?;
            }
        }
    }
    Ok(corpus)
}

fn fuzz(folder: &Path, binaries: &Path, target: &str, corpus: &Path, seconds: usize) -> Result<()> {
    let seeds = folder.join("seeds").join(target);
    let artifacts = folder.join("artifacts").join(target);
    let output = Command::new(binaries.join(target))
        .arg(corpus)
        .args(seeds.is_dir().then_some(&seeds))
        .arg(format!("-dict={}", folder.join("json.dict").display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .output()
        .context("cannot run the target")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let tail: Vec<&str> = log.lines().rev().take(60).collect();
        for line in tail.iter().rev() {
            println!("{line}");
        }
        bail!("an input broke it; hint: the input is kept in `fuzz/artifacts/{target}`");
    }
    let counters = counters(&log);
    if counters == 0 {
        bail!("it was built without coverage, so it only guesses");
    }
    let runs = stat(&log, "number_of_executed_units");
    let found = stat(&log, "new_units_added");
    println!(
        "{target}: {runs} inputs in {seconds} s, {found} of them reached something new ({counters} edges)"
    );
    Ok(())
}

/// Edges that libFuzzer counts, from `INFO: Loaded 1 modules   (1234 inline 8-bit counters): …`.
fn counters(log: &str) -> u64 {
    let line = log.lines().find(|line| line.contains("inline 8-bit counters"));
    let inside = line.and_then(|line| line.split_once('(')).map(|(_, rest)| rest);
    inside.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A number of the closing statistics.
fn stat<'a>(log: &'a str, name: &str) -> &'a str {
    let is_wanted = |line: &&str| line.strip_prefix("stat::").is_some_and(|rest| rest.starts_with(name));
    log.lines().find(is_wanted).and_then(|line| line.split_whitespace().last()).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO: Running with entropic power schedule (0xFF, 100).\n\
        INFO: Loaded 1 modules   (1234 inline 8-bit counters): 1234 [0x1, 0x2),\n\
        Done 10 runs in 1 second(s)\n\
        stat::number_of_executed_units: 10\n\
        stat::new_units_added:          3\n";

    #[test]
    fn the_log_tells_coverage_and_progress() {
        assert_eq!(counters(LOG), 1_234);
        assert_eq!(counters("INFO: nothing loaded"), 0);
        assert_eq!(stat(LOG, "number_of_executed_units"), "10");
        assert_eq!(stat(LOG, "new_units_added"), "3");
    }
}
