//! Latency of webhook calls: `crates/admission/benches/latency.rs`.

use super::page::{self, Part};
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::process::Command;

/// Calls per second for which there is a target, and the target.
const TARGET_RATE: u32 = 200;
const P99_MS_MAX: f64 = 5.0;

/// Options of `cargo xtask bench admission`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Calls per second.
    #[arg(long, default_value_t = TARGET_RATE)]
    rate: u32,
    /// How long.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when the target is missed.
    #[arg(long)]
    gate: bool,
}

/// What the bench prints; times are milliseconds.
#[derive(Deserialize)]
struct Measured {
    rate: u32,
    seconds: u32,
    calls: usize,
    bytes: usize,
    median: f64,
    p99: f64,
    max: f64,
    /// CPU time of client and server.
    cpu_per_call: f64,
}

/// Measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let program = super::steady::build(repository, "kai-admission", "latency")?;
    let arguments = [args.rate, args.seconds].map(|number| number.to_string());
    let output = Command::new(&program).args(&arguments).output().context("cannot run the bench")?;
    if !output.status.success() {
        bail!("the bench failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let measured: Measured =
        serde_json::from_slice(&output.stdout).context("the bench printed something else")?;
    let (text, misses) = (measured.text(), measured.misses());
    println!("{text}");
    if args.write {
        page::write(repository, Part::Admission, &super::e2e::with_misses(&text, &misses))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{}", misses.join("; "));
    }
    Ok(())
}

impl Measured {
    fn text(&self) -> String {
        format!(
            "Time of a call of the mutating or validating webhook of pods over TLS on a kept connection, {} calls a second \
             for {} s, reviews of {} kB; client and server share 2 cores. Written by `cargo xtask bench admission --write`.\n\n\
             | calls | median ms | 99th percentile ms | max ms | CPU ms per call, client and server |\n|---|---|---|---|---|\n\
             | {} | {:.2} | {:.2} | {:.2} | {:.2} |\n",
            self.rate,
            self.seconds,
            self.bytes.div_ceil(1000),
            self.calls,
            self.median,
            self.p99,
            self.max,
            self.cpu_per_call,
        )
    }

    fn misses(&self) -> Vec<String> {
        let is_missed = self.rate >= TARGET_RATE && self.p99 > P99_MS_MAX;
        let miss = format!(
            "the 99th percentile of a webhook call is {:.1} ms, at most {P99_MS_MAX} are wanted",
            self.p99
        );
        is_missed.then_some(miss).into_iter().collect()
    }
}
