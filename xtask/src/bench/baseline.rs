//! KAI's recorded times and decisions on the same clusters.

use super::Case;
use super::decisions::{self, Comparison, Tally};
use super::measure::Measured;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The recorded runs.
pub(super) struct Baseline {
    runs: Vec<Run>,
    decisions: PathBuf,
}

#[derive(Deserialize)]
struct Record {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    shape: String,
    nodes: usize,
    #[serde(rename = "same_decisions_every_run")]
    is_deterministic: bool,
    calibration_ms: f64,
    session_open_ms: f64,
    actions_ms: BTreeMap<String, f64>,
    max_rss_mb: f64,
    bind_requests: [usize; 2],
    evicted: [usize; 2],
    pipelined: [usize; 2],
    moved: [usize; 2],
}

/// One recorded run in this machine's milliseconds.
pub(super) struct Scaled {
    pub(super) open_ms: f64,
    /// Planning.
    pub(super) actions_ms: f64,
    pub(super) rss_mb: f64,
}

impl Baseline {
    /// Reads the record below the reference folder.
    pub(super) fn read(reference: &Path) -> Result<Self> {
        let path = reference.join("bench/kai-v0.17-baseline.json");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let record: Record = serde_json::from_str(&text)
            .with_context(|| format!("`{}` is not a record of runs", path.display()))?;
        Ok(Self { runs: record.runs, decisions: reference.join("bench/decisions") })
    }

    fn find(&self, shape: &str, nodes: usize) -> Option<&Run> {
        self.runs.iter().find(|run| run.shape == shape && run.nodes == nodes)
    }

    /// What KAI would have taken here.
    pub(super) fn scaled(&self, shape: &str, nodes: usize, calibration_ms: f64) -> Option<Scaled> {
        let run = self.find(shape, nodes)?;
        let factor = calibration_ms / run.calibration_ms;
        Some(Scaled {
            open_ms: run.session_open_ms * factor,
            actions_ms: run.actions_ms.values().sum::<f64>() * factor,
            rss_mb: run.max_rss_mb,
        })
    }

    /// Compares our decisions with KAI's, where KAI decides the same every time.
    pub(super) fn compare(&self, case: &Case, ours: &Measured) -> Result<Option<Comparison>> {
        let (shape, nodes) = (case.shape.name, case.nodes);
        let Some(run) = self.find(shape, nodes) else { return Ok(None) };
        if !run.is_deterministic {
            return Ok(Some(Comparison::Varies(ours.tally(), run.worst())));
        }
        let path = self.decisions.join(format!("{shape}-{nodes}.txt"));
        let decided = [run.bind_requests, run.evicted, run.pipelined].iter().any(|count| count[1] > 0);
        let theirs = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            // No file is kept for a run without decisions.
            Err(_) if !decided => String::new(),
            Err(error) => bail!("cannot read `{}`: {error}", path.display()),
        };
        let ours = std::fs::read_to_string(&case.decisions)
            .with_context(|| format!("cannot read `{}`", case.decisions.display()))?;
        Ok(Some(decisions::compare(&ours, &theirs)))
    }
}

impl Run {
    /// The worst that a recorded run came to. Ranges are all that is kept; a run that evicts most also pipelines and
    /// moves most.
    fn worst(&self) -> Tally {
        let gained =
            |at: usize| (self.bind_requests[at] + self.pipelined[at]) as i64 - self.evicted[at] as i64;
        let lost = |at: usize| self.evicted[at].saturating_sub(self.moved[at]);
        Tally { gained: gained(0).min(gained(1)), lost: lost(0).max(lost(1)) }
    }
}
