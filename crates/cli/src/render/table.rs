//! Lays out tables in the width there is: names are never split, amounts are right-aligned, sentences are wrapped.
//!
//! Where a sentence in the last column would get a few words per line only, it follows its row on lines of its own.

use clap::builder::styling::{AnsiColor, Style};
use std::fmt::Write as _;

/// Blanks before the first column.
const INDENT: usize = 2;
/// Blanks between columns, and where the width is short.
const GAP: usize = 3;
const SMALL_GAP: usize = 2;
/// Width from which sentences in a column can be read.
const READABLE: usize = 32;
/// Words of amounts besides numbers.
const UNITS: [&str; 8] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "of"];

/// A cell, with a colour where it needs attention.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    colour: Option<AnsiColor>,
}

impl Cell {
    /// Something to look at, such as a pending pod group.
    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: Some(AnsiColor::Yellow) }
    }

    /// Something that is wrong, such as a node that is not ready.
    pub(crate) fn critical(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: Some(AnsiColor::Red) }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, colour: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

#[derive(Clone, Copy)]
struct Column {
    width: usize,
    /// What it may not be narrower than: a word is never split.
    least: usize,
    is_amount: bool,
}

/// The table without a line break at its end; `None` is an unlimited width.
pub(super) fn layout(headings: &[&str], rows: &[Vec<Cell>], width: Option<usize>) -> String {
    let mut columns: Vec<Column> = (0..headings.len()).map(|at| Column::of(at, headings, rows)).collect();
    let natural = columns.last().map_or(0, |column| column.width);
    if let Some(width) = width {
        shrink(&mut columns, GAP, width);
    }
    let mut gap = GAP;
    let last = columns.last().map_or(0, |column| column.width);
    let is_narrow =
        last < natural && last < READABLE || width.is_some_and(|width| total(&columns, gap) > width);
    let is_below = is_narrow && columns.len() > 2 && columns.last().is_some_and(|last| last.least < natural);
    if is_below {
        columns.pop();
        columns = (0..columns.len()).map(|at| Column::of(at, headings, rows)).collect();
    }
    if let Some(width) = width.filter(|width| total(&columns, gap) > *width) {
        gap = SMALL_GAP;
        shrink(&mut columns, gap, width);
    }
    let mut text = String::new();
    let heading: Vec<Cell> = headings.iter().map(|heading| Cell::from(*heading)).collect();
    append_row(&mut text, &columns, &heading, (gap, width));
    writeln!(text, "{}", "─".repeat(total(&columns, gap).min(width.unwrap_or(usize::MAX))))
        .expect("writing to a string");
    for row in rows {
        append_row(&mut text, &columns, row, (gap, width));
    }
    text.truncate(text.trim_end().len());
    text
}

impl Column {
    fn of(at: usize, headings: &[&str], rows: &[Vec<Cell>]) -> Self {
        let heading = headings[at];
        let cells = || rows.iter().map(|row| row[at].text.as_str());
        let lines = || cells().flat_map(str::lines).chain([heading]);
        let width = lines().map(length).max().unwrap_or(0);
        let is_amount = at > 0
            && cells().any(|text| text.starts_with(|c: char| c.is_ascii_digit() || c == '∞'))
            && cells().all(is_amount);
        // The first column is what the row is about.
        let is_rigid = is_amount || at == 0;
        let word = lines().flat_map(str::split_whitespace).map(length).max().unwrap_or(0);
        Self { width, least: if is_rigid { width } else { word.max(length(heading)) }, is_amount }
    }
}

/// Takes from the widest columns what does not fit, down to their longest words.
fn shrink(columns: &mut [Column], gap: usize, width: usize) {
    while total(columns, gap) > width {
        let wide = columns.iter_mut().filter(|column| column.width > column.least);
        let Some(widest) = wide.max_by_key(|column| column.width) else { return };
        widest.width -= 1;
    }
}

fn total(columns: &[Column], gap: usize) -> usize {
    let widths: usize = columns.iter().map(|column| column.width).sum();
    INDENT + widths + gap * columns.len().saturating_sub(1) + INDENT
}

/// A row of one or more lines; cells without a column follow below.
fn append_row(text: &mut String, columns: &[Column], row: &[Cell], (gap, width): (usize, Option<usize>)) {
    let cells: Vec<Vec<String>> =
        columns.iter().zip(row).map(|(column, cell)| wrapped(&cell.text, column.width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let start = text.len();
        text.push_str(&" ".repeat(INDENT));
        for (at, (column, lines)) in columns.iter().zip(&cells).enumerate() {
            let part = lines.get(line).map_or("", String::as_str);
            let blanks = " ".repeat(column.width.saturating_sub(length(part)));
            let part = coloured(part, row[at].colour);
            let gap = if at > 0 { " ".repeat(gap) } else { String::new() };
            text.push_str(&gap);
            text.push_str(&if column.is_amount { blanks + &part } else { part + &blanks });
        }
        text.truncate(start + text[start..].trim_end().len());
        text.push('\n');
    }
    for cell in &row[columns.len()..] {
        let indent = INDENT * 2;
        let width = width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(READABLE));
        for line in wrapped(&cell.text, width).iter().filter(|line| !line.is_empty()) {
            writeln!(text, "{}{}", " ".repeat(indent), coloured(line, cell.colour))
                .expect("writing to a string");
        }
    }
}

fn coloured(text: &str, colour: Option<AnsiColor>) -> String {
    match colour {
        Some(colour) if !text.is_empty() => {
            let style = Style::new().fg_color(Some(colour.into()));
            format!("{style}{text}{style:#}")
        }
        Some(_) | None => text.to_owned(),
    }
}

/// The lines of a text, broken at blanks where they are too long.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines() {
        if length(line) <= width {
            all.push(line.to_owned());
            continue;
        }
        let mut current = String::new();
        for word in line.split_whitespace() {
            if !current.is_empty() && length(&current) + 1 + length(word) > width {
                all.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        all.push(current);
    }
    all
}

/// `4`, `0.5 of 4`, `12m`, `1/2`, `1.5 GiB`, `∞`, `–` or nothing.
fn is_amount(text: &str) -> bool {
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '∞' | '–' | '-' | '+'))
            && word.chars().filter(char::is_ascii_alphabetic).count() <= 2
            && length(word) <= 12
    };
    text.split_whitespace().all(|word| is_number(word) || UNITS.contains(&word))
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> String {
        let row = |cells: [&str; 4]| cells.map(Cell::from).to_vec();
        let rows = [
            row([
                "Job/a-rather-long-name",
                "0/2",
                "Pending",
                "0 of 2 required pods fit; 2 insufficient GPUs",
            ]),
            row(["Job/b", "10/10", "Running", ""]),
        ];
        layout(&["GROUP", "RUN/MIN", "STATE", "REASON"], &rows, width)
    }

    #[test]
    fn amounts_are_right_aligned_and_sentences_take_the_width_there_is() {
        let wide = "  GROUP                    RUN/MIN   STATE     REASON
──────────────────────────────────────────────────────────────────────────────────────────────
  Job/a-rather-long-name       0/2   Pending   0 of 2 required pods fit; 2 insufficient GPUs
  Job/b                      10/10   Running";
        assert_eq!(table(None), wide);
        assert_eq!(table(Some(200)), wide);
        assert_eq!(
            table(Some(84)),
            "  GROUP                    RUN/MIN   STATE     REASON
────────────────────────────────────────────────────────────────────────────────────
  Job/a-rather-long-name       0/2   Pending   0 of 2 required pods fit; 2
                                               insufficient GPUs
  Job/b                      10/10   Running"
        );
    }

    #[test]
    fn sentences_wider_than_their_column_follow_their_row() {
        assert_eq!(
            table(Some(60)),
            "  GROUP                    RUN/MIN   STATE
    REASON
──────────────────────────────────────────────
  Job/a-rather-long-name       0/2   Pending
    0 of 2 required pods fit; 2 insufficient GPUs
  Job/b                      10/10   Running"
        );
    }

    #[test]
    fn no_word_is_split_at_any_width() {
        let words: Vec<String> = table(None).split_whitespace().map(str::to_owned).collect();
        for width in 1..120 {
            let text = table(Some(width));
            for word in words.iter().filter(|word| !word.starts_with('─')) {
                assert!(text.contains(word.as_str()), "`{word}` at {width}:\n{text}");
            }
        }
    }

    #[test]
    fn colours_do_not_change_the_layout() {
        let rows = [vec![Cell::from("a"), Cell::critical("Stale"), Cell::from("1")]];
        let text = layout(&["GROUP", "STATE", "PODS"], &rows, None);
        assert!(text.contains("\x1b[31mStale\x1b[0m"), "{text:?}");
        let plain =
            layout(&["GROUP", "STATE", "PODS"], &[["a", "Stale", "1"].map(Cell::from).to_vec()], None);
        assert_eq!(anstream::adapter::strip_str(&text).to_string(), plain);
    }

    #[test]
    fn amounts_are_recognised() {
        for text in
            ["4", "0.5 of 4", "12m", "1/2", "1.5 GiB", "1 GiB of 512 GiB", "∞", "–", "", "-1", "1m30s"]
        {
            assert!(is_amount(text), "{text}");
        }
        for text in
            ["node-1", "0 of 2 required pods", "1e5d4a7b-aa", "Running", "5 GPUs", "2026-01-31T08:00:00Z"]
        {
            assert!(!is_amount(text), "{text}");
        }
    }
}
