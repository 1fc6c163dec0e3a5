//! Formats an outcome as tables: placements, evictions, queue shares and pending groups.
//!
//! Pure functions from an outcome to text. Amounts carry their unit; an unlimited bound is `∞`.

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

/// Maximum rows of a table; the rest is counted.
pub(crate) const ROWS_MAX: usize = 40;
const WIDTH: u16 = 100;
/// A line under the headings and nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

pub(crate) fn outcome(outcome: &Outcome) -> String {
    let mut text = String::new();
    section(&mut text, "Placements", placements::table(outcome).as_deref().unwrap_or("No pods were placed"));
    if let Some(evictions) = evictions::table(outcome) {
        section(&mut text, "Evictions", &evictions);
    }
    if let Some(changes) = evictions::queue_changes(outcome) {
        section(&mut text, "Queue allocation changes", &changes);
    }
    section(&mut text, "Queue shares", queues::table(outcome).as_deref().unwrap_or("No queues found"));
    section(&mut text, "Pending", pending::table(outcome).as_deref().unwrap_or("No pending pod groups"));
    text
}

/// The evictions of a cycle; none without any.
pub(crate) fn evictions(outcome: &Outcome) -> Option<String> {
    evictions::table(outcome)
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

pub(crate) fn table<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>) -> Option<String> {
    table_of(headings, rows, ROWS_MAX)
}

/// A table of at most `rows_max` rows; the rest is counted.
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
