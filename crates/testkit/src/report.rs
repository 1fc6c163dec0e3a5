//! All recorded cases in one report: each failure with its difference, a line per area, and the sum.

use crate::calls::{self, CallOutcome};
use crate::random;
use crate::session::{self, CaseOutcome, CaseResult};
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// How many cases went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// As recorded.
    pub passed: usize,
    /// Not as recorded.
    pub failed: usize,
    /// Not as recorded, on purpose.
    pub by_design: usize,
}

impl Counts {
    fn add(&mut self, outcome: &CaseOutcome) {
        match outcome {
            CaseOutcome::Passed => self.passed += 1,
            CaseOutcome::Failed(_) => self.failed += 1,
            CaseOutcome::ByDesign(_) => self.by_design += 1,
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, by_design } = self;
        // Every case is run; whoever reads the line counts on the last number.
        write!(f, "{passed} passed, {failed} failed, {by_design} differ by design, 0 not yet")
    }
}

/// Runs every case below `dir` and writes the report; true when nothing failed.
pub fn conformance(dir: &Path, out: &mut dyn Write) -> Result<bool> {
    let mut results = session::run(dir, None)?;
    results.extend(random::run(&dir.join("random"))?);
    results.extend(calls::run(&dir.join("cases"))?.into_iter().map(call_result));
    write_report(&results, out)
}

/// Runs the session cases and random clusters whose id contains `filter`, and writes their report.
pub fn sessions(dir: &Path, filter: &str, out: &mut dyn Write) -> Result<bool> {
    let mut results = session::run(dir, Some(filter))?;
    results.extend(random::run(&dir.join("random"))?.into_iter().filter(|r| r.id.contains(filter)));
    write_report(&results, out)
}

fn call_result(result: calls::CallResult) -> CaseResult {
    let outcome = match result.outcome {
        CallOutcome::Passed => CaseOutcome::Passed,
        CallOutcome::Failed(text) => CaseOutcome::Failed(format!("    {text}\n")),
        CallOutcome::ByDesign(id) => CaseOutcome::ByDesign(id),
    };
    CaseResult { area: result.area, id: format!("{} ({})", result.id, result.function), outcome }
}

fn write_report(results: &[CaseResult], out: &mut dyn Write) -> Result<bool> {
    let mut areas: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut sum = Counts::default();
    for result in results {
        areas.entry(&result.area).or_default().add(&result.outcome);
        sum.add(&result.outcome);
        match &result.outcome {
            CaseOutcome::Failed(text) => write!(out, "FAILED {}\n{text}", result.id)?,
            CaseOutcome::ByDesign(id) => writeln!(out, "differs by design ({id}): {}", result.id)?,
            CaseOutcome::Passed => {}
        }
    }
    for (area, counts) in areas {
        writeln!(out, "{area}: {counts}")?;
    }
    writeln!(out, "{sum}")?;
    Ok(sum.failed == 0)
}
