//! Runs random workloads on the real control plane while processes are killed: `cargo xtask soak --minutes N`.
//!
//! The test in `crates/cli/tests/system/real_control_plane/soak.rs` does the work.

use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_kubetest::control_plane::CACHE_VARIABLE;

/// The path of the test. The step of the ignored tests leaves it out; `cargo xtask ci` runs it on its own.
pub(crate) const TEST: &str =
    "real_control_plane::soak::laws_hold_while_workloads_run_and_processes_are_killed";

/// The default seed.
pub(crate) const SEED: u64 = 1;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Duration of the faults; the end takes up to some minutes more.
    #[arg(long, default_value_t = 30)]
    pub(crate) minutes: u64,
    /// Seed of workloads and faults. The order in which processes run is not repeatable.
    #[arg(long, default_value_t = SEED)]
    pub(crate) seed: u64,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let mut command = repository.cargo();
    command.args(["test", "--package", "kai-cli", "--test", "system", "--locked", "--"]);
    command.args(["--ignored", "--exact", "--nocapture", TEST]);
    command.env(CACHE_VARIABLE, kubernetes::built(repository)?);
    command.env("KAI_SOAK_MINUTES", args.minutes.to_string()).env("KAI_SOAK_SEED", args.seed.to_string());
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
