//! Formats an outcome as tables: placements, evictions, queue shares and pending groups.
//!
//! Pure functions from an outcome to text. Amounts carry their unit; an unlimited bound is `∞`.

pub(crate) mod amount;
mod evictions;
pub(crate) mod pending;
mod placements;
mod queues;
mod table;

pub(crate) use table::Cell;

use crate::terminal;
use clap::builder::styling::Style;
use kai_cache::Finding;
use kai_engine::Outcome;
use kai_engine::verdict::GroupVerdict;
use kai_view::Names;
use kai_view::verdicts::Obstacle;
use std::fmt::Write;

/// Maximum rows of a table on a terminal; the rest is counted.
pub(crate) const ROWS_MAX: usize = 40;

/// An outcome as tables; `explain` says why a group is pending.
pub(crate) fn outcome(
    outcome: &Outcome,
    names: Names<'_>,
    explain: impl Fn(&GroupVerdict) -> Vec<Obstacle>,
) -> String {
    let mut text = String::new();
    section(&mut text, "Placements", placements::table(outcome).as_deref().unwrap_or("No pods were placed"));
    if let Some(evictions) = evictions::table(outcome, names) {
        section(&mut text, "Evictions", &evictions);
    }
    if let Some(changes) = evictions::queue_changes(outcome, names) {
        section(&mut text, "Queue allocation changes", &changes);
    }
    section(&mut text, "Queue shares", queues::table(outcome).as_deref().unwrap_or("No queues found"));
    section(
        &mut text,
        "Pending",
        pending::of(&outcome.verdicts, names, explain).as_deref().unwrap_or("No pending pod groups"),
    );
    text
}

/// The evictions of a cycle; none without any.
pub(crate) fn evictions(outcome: &Outcome, names: Names<'_>) -> Option<String> {
    evictions::table(outcome, names)
}

/// Invalid objects and fields.
pub(crate) fn findings(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let object = format!("{} {}", finding.kind, finding.key.to_string().trim_start_matches('/'));
        [object, format!("{}: {}\nhint: {}", finding.field, finding.problem, finding.hint)]
    };
    let body = table(["OBJECT", "PROBLEM"], findings.iter().map(row).collect());
    let mut text = String::new();
    section(&mut text, "Findings", body.as_deref().unwrap_or("No findings"));
    format!("\n{text}")
}

/// Appends a bold heading and a body; styles are removed where the output is not a terminal.
pub(crate) fn section(text: &mut String, heading: &str, body: &str) {
    let bold = Style::new().bold();
    let gap = if text.is_empty() { "" } else { "\n" };
    writeln!(text, "{gap}{bold}{heading}{bold:#}\n{body}").expect("writing to a string");
}

pub(crate) fn table<const N: usize, C: Into<Cell>>(headings: [&str; N], rows: Vec<[C; N]>) -> Option<String> {
    table_of(headings, rows, rows_max())
}

/// A table of at most `rows_max` rows; the rest is counted.
pub(crate) fn table_of<const N: usize, C: Into<Cell>>(
    headings: [&str; N],
    rows: Vec<[C; N]>,
    rows_max: usize,
) -> Option<String> {
    let rows = rows.into_iter().map(|row| row.into_iter().map(Into::into).collect());
    table_with(&headings, rows.collect(), rows_max)
}

/// As [`table_of`], with as many columns as there are headings.
pub(crate) fn table_with(headings: &[&str], mut rows: Vec<Vec<Cell>>, rows_max: usize) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let hidden = rows.len().saturating_sub(rows_max);
    rows.truncate(rows_max);
    let mut text = table::layout(headings, &rows, width());
    if hidden > 0 {
        write!(text, "\n… and {hidden} more").expect("writing to a string");
    }
    Some(text)
}

/// A pipe or a file gets every row.
fn rows_max() -> usize {
    if cfg!(test) || crate::is_terminal(&std::io::stdout()) { ROWS_MAX } else { usize::MAX }
}

/// The width of tables. Unit tests have a fixed one.
fn width() -> Option<usize> {
    if cfg!(test) { Some(100) } else { terminal::width() }
}

#[cfg(test)]
mod tests;
