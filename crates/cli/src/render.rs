//! Tables that people read: placements, evictions, queue shares, and why a group is pending.
//!
//! Pure functions from an outcome to text. Numbers carry their unit; an unlimited bound is `∞`.

pub(crate) mod amount;
mod evictions;
pub(crate) mod pending;
mod placements;
mod queues;

use clap::builder::styling::Style;
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use kai_cache::Finding;
use kai_engine::Outcome;
use std::fmt::Write;

/// Most rows of a table; the rest is counted.
pub(crate) const ROWS_MAX: usize = 40;
/// Width that tables fit into.
const WIDTH: u16 = 100;
/// A line under the headings and nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// The whole outcome, heading by heading.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    let mut text = String::new();
    section(&mut text, "Placements", placements::table(outcome).as_deref().unwrap_or("nothing was placed"));
    if let Some(evictions) = evictions::table(outcome) {
        section(&mut text, "Evictions", &evictions);
    }
    if let Some(changes) = evictions::queue_changes(outcome) {
        section(&mut text, "Taken and given", &changes);
    }
    section(&mut text, "Queue shares", queues::table(outcome).as_deref().unwrap_or("there are no queues"));
    section(&mut text, "Pending", pending::table(outcome).as_deref().unwrap_or("every group has its place"));
    text
}

/// What was odd about objects.
pub(crate) fn findings(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let object = format!("{} {}", finding.kind, finding.key.to_string().trim_start_matches('/'));
        [object, format!("{}: {}\nhint: {}", finding.field, finding.problem, finding.hint)]
    };
    let body = table(["OBJECT", "WHAT"], findings.iter().map(row).collect());
    let mut text = String::new();
    section(&mut text, "Findings", body.as_deref().unwrap_or("nothing is odd about any object"));
    format!("\n{text}")
}

/// A bold heading and what stands under it; bold vanishes where the output is no terminal.
pub(crate) fn section(text: &mut String, heading: &str, body: &str) {
    let bold = Style::new().bold();
    let gap = if text.is_empty() { "" } else { "\n" };
    writeln!(text, "{gap}{bold}{heading}{bold:#}\n{body}").expect("writing to a string");
}

/// A table with headings.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>) -> Option<String> {
    table_of(headings, rows, ROWS_MAX)
}

/// A table of at most so many rows; the rest is counted.
pub(crate) fn table_of<const N: usize>(
    headings: [&str; N],
    rows: Vec<[String; N]>,
    rows_max: usize,
) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH).set_header(headings);
    let hidden = rows.len().saturating_sub(rows_max);
    for row in rows.into_iter().take(rows_max) {
        table.add_row(row);
    }
    let mut text = table.trim_fmt();
    if hidden > 0 {
        write!(text, "\n… and {hidden} more").expect("writing to a string");
    }
    Some(text)
}

#[cfg(test)]
mod tests;
