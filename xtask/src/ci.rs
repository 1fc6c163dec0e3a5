//! Runs all checks in order and stops at the first failure: `cargo xtask ci`.

use crate::bench::budget;
use crate::ignored_tests::Life;
use crate::repository::Repository;
use crate::{api_suite, conformance, deny, fuzz, ignored_tests, kubernetes, seeds, soak, tidy};
use anyhow::{Context, Result, bail};
use kai_clock::Stopwatch;
use std::process::Command;

/// Builds and runs the example of a plugin outside the workspace's crates.
const EXAMPLE: [&str; 10] = [
    "run",
    "--quiet",
    "--locked",
    "--package",
    "team-nodes-plugin",
    "--",
    "plan",
    "examples/two-teams.yaml",
    "--config",
    "examples/team-nodes-plugin/scheduler.yaml",
];

/// Minutes of random workloads and faults on a real control plane.
const SOAK_MINUTES: u64 = 2;

/// Seconds for each fuzz target.
const FUZZ_SECONDS: usize = 20;

/// Scenarios of the embedded cluster that run with all components in one process too: what every component does at least once.
const COMBINED: [&str; 8] = [
    "bind_failures::",
    "consolidation::",
    "eviction::",
    "gang_scheduling::",
    "gpu_sharing::",
    "implicit_groups::",
    "queue_limits::",
    "resource_claims::",
];

/// Seeds of each family, besides the fixed ones of the tests.
const FRESH_SEEDS: u64 = 15;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Skip the workspace's tests, which have just run.
    #[arg(long)]
    after_tests: bool,
    /// Test the long life of an installation on a real node, with upgrades and faults: more than six minutes, not two.
    #[arg(long)]
    real_node: bool,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let whole = Stopwatch::start();
    step("format", || done(repository.cargo().args(["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(repository))?;
    step("dependencies", || deny::run(repository))?;
    step("clippy", || {
        let lint = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        done(repository.cargo().args(lint))
    })?;
    if !args.after_tests {
        step("tests", || done(repository.cargo().args(["test", "--workspace", "--locked"])))?;
    }
    step("scenarios in one process", || {
        // The same selection of packages as above: another one would build them again.
        let test = ["test", "--workspace", "--locked", "--quiet", "--test", "system", "--"];
        done(repository.cargo().args(test).args(COMBINED).env("KAI_TEST_TOPOLOGY", "combined"))
    })?;
    let life = if args.real_node { Life::Long } else { Life::Short };
    step("ignored tests", || ignored_tests::run(repository, life))?;
    step("fresh seeds", || seeds::run(repository, &seeds::Args::fresh(FRESH_SEEDS)))?;
    step("docs", || {
        let document = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"];
        done(repository.cargo().args(document).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("conformance", || conformance::run(repository, &conformance::Args::default()))?;
    match budget::missing().or(budget::unset(repository)?) {
        None => step("instruction budget", || budget::run(repository))?,
        Some(why) => println!("\n== instruction budget: skipped: {why}"),
    }
    step("API suite", || api_suite::run(repository, &api_suite::Args::recorded()))?;
    match kubernetes::missing() {
        None => step("API suite, live", || api_suite::run(repository, &api_suite::Args::live()))?,
        Some(why) => println!("\n== API suite, live: skipped, because there is no real server: {why}"),
    }
    let soak = soak::Args { minutes: SOAK_MINUTES, seed: soak::SEED };
    match kubernetes::missing() {
        None => step("soak", || soak::run(repository, &soak))?,
        Some(why) => println!("\n== soak: skipped, because there is no real control plane: {why}"),
    }
    step("example plugin", || done(repository.cargo().args(EXAMPLE)))?;
    step("fuzz", || fuzz::run(repository, &fuzz::Args { seconds: FUZZ_SECONDS, targets: Vec::new() }))?;
    println!("\nall checks passed in {:.0} s", whole.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("\n== {name}");
    let watch = Stopwatch::start();
    check().with_context(|| format!("the step `{name}` failed"))?;
    println!("== {name}: passed in {:.1} s", watch.elapsed().as_secs_f64());
    Ok(())
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
