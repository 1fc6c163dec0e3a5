//! A table of a pane: columns that fit the width there is, rows that scroll, and bars that fill what is left.
//!
//! Where the width is too small, whole columns are left out, the least important first; a name is only cut where it alone is
//! wider than the screen.

use super::bar::Bar;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

const GAP: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// As wide as its widest cell.
    Content,
    /// What the other columns leave.
    Rest { min: u16, max: u16 },
}

#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) align: Align,
    pub(super) width: Width,
    /// The column with the highest is left out first; 0 is never.
    pub(super) rank: u8,
}

impl Column {
    pub(super) const fn text(heading: &'static str, rank: u8) -> Self {
        Self { heading, align: Align::Left, width: Width::Content, rank }
    }

    pub(super) const fn number(heading: &'static str, rank: u8) -> Self {
        Self { heading, align: Align::Right, width: Width::Content, rank }
    }

    pub(super) const fn rest(heading: &'static str, rank: u8, min: u16, max: u16) -> Self {
        Self { heading, align: Align::Left, width: Width::Rest { min, max }, rank }
    }
}

pub(super) enum Cell {
    Line(Line<'static>),
    Bar(Bar),
}

impl From<Line<'static>> for Cell {
    fn from(line: Line<'static>) -> Self {
        Self::Line(line)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Line(Line::raw(text))
    }
}

pub(super) struct Row {
    /// What identifies the object; the selection follows it.
    pub(super) key: String,
    pub(super) cells: Vec<Cell>,
}

pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
}

/// The selected row and the first one that is visible.
#[derive(Clone, Debug, Default)]
pub(super) struct Scroll {
    pub(super) key: Option<String>,
    pub(super) index: usize,
    pub(super) offset: usize,
    /// Rows that were visible when it was last drawn.
    pub(super) visible: usize,
}

impl Scroll {
    /// Finds the selected object among the rows as they are now.
    fn settle(&mut self, rows: &[Row], visible: usize) {
        let found = self.key.as_ref().and_then(|key| rows.iter().position(|row| row.key == *key));
        self.index = found.unwrap_or(self.index).min(rows.len().saturating_sub(1));
        self.visible = visible;
        let last = rows.len().saturating_sub(visible);
        self.offset = self.offset.min(last).min(self.index);
        if self.index >= self.offset + visible {
            self.offset = self.index + 1 - visible.max(1);
        }
    }

    pub(super) fn select(&mut self, rows: &[Row], index: usize) {
        self.index = index.min(rows.len().saturating_sub(1));
        self.key = rows.get(self.index).map(|row| row.key.clone());
    }
}

impl Table {
    pub(super) fn draw(&self, area: Rect, buffer: &mut Buffer, scroll: &mut Scroll, focused: bool) {
        if area.height == 0 {
            return;
        }
        let widths = self.widths(area.width);
        let heading = Style::new().add_modifier(Modifier::DIM);
        for (column, (x, width)) in shown(&widths, area.x) {
            let line = Line::styled(self.columns[column].heading, heading);
            put(buffer, x, area.y, width, &line, self.columns[column].align);
        }
        let visible = usize::from(area.height - 1);
        scroll.settle(&self.rows, visible);
        let rows = self.rows.iter().enumerate().skip(scroll.offset).take(visible);
        for (y, (index, row)) in (area.y + 1..).zip(rows) {
            for (column, (x, width)) in shown(&widths, area.x) {
                match row.cells.get(column) {
                    Some(Cell::Line(line)) => put(buffer, x, y, width, line, self.columns[column].align),
                    Some(Cell::Bar(bar)) => put(buffer, x, y, width, &bar.line(width), Align::Left),
                    None => {}
                }
            }
            if focused && index == scroll.index {
                let line = Rect { y, height: 1, ..area };
                buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
    }

    /// The width of each column, 0 for those that are left out.
    fn widths(&self, available: u16) -> Vec<u16> {
        let wanted = |(index, column): (usize, &Column)| match column.width {
            Width::Rest { min, .. } => min,
            Width::Content => {
                let cells = self.rows.iter().filter_map(|row| match row.cells.get(index) {
                    Some(Cell::Line(line)) => Some(line.width()),
                    Some(Cell::Bar(_)) | None => None,
                });
                let widest = cells.max().unwrap_or(0).max(column.heading.chars().count());
                u16::try_from(widest).unwrap_or(u16::MAX)
            }
        };
        let mut widths: Vec<u16> = self.columns.iter().enumerate().map(wanted).collect();
        while total(&widths) > available {
            let shown = (0..widths.len()).filter(|index| widths[*index] > 0 && self.columns[*index].rank > 0);
            let Some(dropped) = shown.max_by_key(|index| self.columns[*index].rank) else { break };
            widths[dropped] = 0;
        }
        let left = available.saturating_sub(total(&widths));
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            if let Width::Rest { max, .. } = column.width
                && *width > 0
            {
                *width = width.saturating_add(left).min(max);
            }
        }
        // Not even the columns that are never left out fit: the last one is cut by the edge, the first one keeps half.
        if total(&widths) > available
            && let Some(first) = widths.first_mut()
        {
            *first = (*first).min(available / 2);
        }
        let mut left = available;
        for width in widths.iter_mut().filter(|width| **width > 0) {
            *width = (*width).min(left);
            left = left.saturating_sub(*width + GAP);
        }
        widths
    }
}

/// Column, left edge and width of those that are shown.
fn shown(widths: &[u16], left: u16) -> impl Iterator<Item = (usize, (u16, u16))> {
    let mut x = left;
    widths.iter().enumerate().filter(|(_, width)| **width > 0).map(move |(index, width)| {
        let at = x;
        x += width + GAP;
        (index, (at, *width))
    })
}

fn total(widths: &[u16]) -> u16 {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.fold(0_u16, |sum, width| sum.saturating_add(if sum > 0 { GAP } else { 0 }).saturating_add(*width))
}

/// Writes a line; one that is wider ends in `…`.
pub(super) fn put(buffer: &mut Buffer, x: u16, y: u16, width: u16, line: &Line<'_>, align: Align) {
    let length = u16::try_from(line.width()).unwrap_or(u16::MAX);
    let start = if align == Align::Right { x + width.saturating_sub(length) } else { x };
    buffer.set_line(start, y, line, width);
    if length > width && width > 0 {
        buffer.set_string(x + width - 1, y, "…", Style::new());
    }
}
