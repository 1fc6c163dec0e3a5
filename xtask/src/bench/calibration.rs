//! How fast this machine is, by a fixed piece of work: 256 MiB through SHA-256 in Python, in blocks of 1 MiB.
//!
//! The recorded times carry the same measure of their machine, so times of two machines can be compared as a ratio.

use anyhow::{Context, Result, bail};
use std::process::Command;

const SCRIPT: &str = "
import hashlib, time
block, best = bytes(1 << 20), None
for _ in range(3):
    begin, state = time.perf_counter(), hashlib.sha256()
    for _ in range(256):
        state.update(block)
    state.digest()
    took = (time.perf_counter() - begin) * 1000
    best = took if best is None else min(best, took)
print(best)
";

/// Milliseconds that the work takes here, best of three.
pub(super) fn measure() -> Result<f64> {
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .output()
        .context("cannot calibrate; hint: python3 must be installed")?;
    if !output.status.success() {
        bail!("the calibration failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().context("the calibration printed no number")
}
