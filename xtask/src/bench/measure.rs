//! Runs `kai plan` on a snapshot and reads what it measured.

use super::decisions::Tally;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every shape lies wholly before this time.
const NOW: &str = "2026-07-01T00:00:00Z";

/// The functions in which actions run; instruction counts are taken inside them alone.
const PLANNING: &str = "kai_engine::cycle::act*";

/// The built binary.
pub(super) struct Kai {
    binary: PathBuf,
    scratch: PathBuf,
}

/// What one run measured.
#[derive(Clone, Default, Deserialize)]
pub(super) struct Measured {
    pub(super) load_ms: f64,
    pub(super) open_ms: f64,
    pub(super) total_actions_ms: f64,
    pub(super) max_rss_mb: f64,
    pub(super) outcome_hash: String,
    pub(super) evicted: usize,
    pub(super) moved: usize,
    pub(super) pipelined: usize,
    pub(super) bind_requests: usize,
    pub(super) placed_gpus: f64,
    pub(super) lost_gpus: f64,
}

impl Measured {
    /// What came of it, in pods.
    pub(super) fn tally(&self) -> Tally {
        Tally {
            gained: (self.bind_requests + self.pipelined) as i64 - self.evicted as i64,
            lost: self.evicted.saturating_sub(self.moved),
        }
    }

    /// Keeps the better of two runs, each figure by itself.
    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        if self.outcome_hash != other.outcome_hash {
            bail!("two runs decided differently: {} and {}", self.outcome_hash, other.outcome_hash);
        }
        self.load_ms = self.load_ms.min(other.load_ms);
        self.open_ms = self.open_ms.min(other.open_ms);
        self.total_actions_ms = self.total_actions_ms.min(other.total_actions_ms);
        self.max_rss_mb = self.max_rss_mb.min(other.max_rss_mb);
        Ok(())
    }
}

impl Kai {
    /// Builds the release binary.
    pub(super) fn build(repository: &Repository, target: &Path) -> Result<Self> {
        let built = repository
            .cargo()
            .args(["build", "--release", "--locked", "--package", "kai-cli", "--bin", "kai"])
            .status()
            .context("cannot run cargo")?;
        if !built.success() {
            bail!("the release build failed");
        }
        Ok(Self { binary: target.join("release/kai"), scratch: target.join("bench") })
    }

    /// The binary of the profile `dev`, with the features that the workspace's tests have built it with.
    pub(super) fn development(repository: &Repository, target: &Path) -> Result<Self> {
        let mut build = repository.cargo();
        build.args(["test", "--quiet", "--workspace", "--test", "it", "--no-run", "--locked"]);
        let built = build.status().context("cannot run cargo")?;
        if !built.success() {
            bail!("{build:?} failed");
        }
        Ok(Self { binary: target.join("debug/kai"), scratch: target.join("bench") })
    }

    /// Where it is.
    pub(super) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Plans one cycle; the decisions go to a file.
    pub(super) fn plan(&self, snapshot: &Path, decisions: &Path) -> Result<Measured> {
        let output = Command::new(&self.binary)
            .arg("plan")
            .arg(snapshot)
            .args(["--json", "--now", NOW, "--decisions"])
            .arg(decisions)
            .output()
            .context("cannot run the release binary")?;
        if !output.status.success() {
            bail!("`kai plan` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("`kai plan --json` printed something else")
    }

    /// Instructions spent on planning, by callgrind; `None` where valgrind is not installed.
    pub(super) fn instructions(&self, snapshot: &Path) -> Result<Option<u64>> {
        let out = self.scratch.join("callgrind.out");
        let mut planning = Command::new(&self.binary);
        planning.arg("plan").arg(snapshot).args(["--json", "--now", NOW]);
        callgrind(PLANNING, &out, &planning)
    }
}

/// Instructions that a program spends inside some functions; `None` where valgrind is not installed.
pub(super) fn callgrind(inside: &str, out: &Path, program: &Command) -> Result<Option<u64>> {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={inside}")])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program.get_program())
        .args(program.get_args())
        .stdout(Stdio::null())
        .output();
    let Ok(run) = run else {
        eprintln!("valgrind is not installed: instructions are not counted");
        return Ok(None);
    };
    if !run.status.success() {
        bail!("callgrind failed: {}", String::from_utf8_lossy(&run.stderr).trim());
    }
    let text = std::fs::read_to_string(out).with_context(|| format!("cannot read `{}`", out.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).map(str::trim);
    let count = total.and_then(|count| count.parse().ok()).context("callgrind wrote no total")?;
    if count == 0 {
        bail!("callgrind saw nothing; hint: `{inside}` must match functions of the binary");
    }
    Ok(Some(count))
}
