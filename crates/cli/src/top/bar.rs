//! The bar of a queue: what is allocated and pending, with marks at its quota and fair share.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

pub(super) const LEGEND: &str = "█ allocated  ░ pending  │ quota  ◆ fair share  ◈ both";

/// Amounts of one resource, in its base unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    /// What the whole width stands for.
    pub(super) scale: i64,
    pub(super) used: i64,
    pub(super) pending: i64,
    /// `None` is unlimited.
    pub(super) quota: Option<i64>,
    pub(super) fair_share: i64,
}

impl Bar {
    pub(super) fn line(&self, width: u16) -> Line<'static> {
        let width = usize::from(width);
        let used = self.cells(self.used, width);
        // What little there is takes a cell.
        let used = if self.used > 0 { used.max(1) } else { used };
        let demand = self.cells(self.used.saturating_add(self.pending), width);
        let demand = if self.pending > 0 { demand.max(used + 1) } else { used };
        let within = self.quota.map_or(width, |quota| self.cells(quota, width));
        let mark = |amount: i64| (amount > 0).then(|| self.cells(amount, width).saturating_sub(1));
        let (quota, fair_share) = (self.quota.and_then(mark), mark(self.fair_share));
        let cell = |at: usize| {
            let colour = match at {
                _ if at >= demand => Color::Reset,
                _ if at >= used => Color::Magenta,
                _ if at >= within => Color::Yellow,
                _ => Color::Blue,
            };
            let (is_quota, is_fair) = (quota == Some(at), fair_share == Some(at));
            match (is_quota, is_fair) {
                (true, true) => marked('◈', at < used, colour),
                (true, false) => marked('│', at < used, colour),
                (false, true) => marked('◆', at < used, colour),
                (false, false) if at + 1 == width && demand > width => Span::styled("»", Color::Magenta),
                (false, false) if at < used => Span::styled("█", colour),
                (false, false) if at < demand => Span::styled("░", colour),
                (false, false) => Span::raw(" "),
            }
        };
        Line::from((0..width).map(cell).collect::<Vec<_>>())
    }

    fn cells(&self, amount: i64, width: usize) -> usize {
        let cells = i128::from(amount.max(0)) * width as i128 * 2 / i128::from(self.scale.max(1));
        // Rounded; one more than the width says that it does not fit.
        (((cells + 1) / 2) as usize).min(width + 1)
    }
}

fn marked(mark: char, is_filled: bool, colour: Color) -> Span<'static> {
    let style = if is_filled { Style::new().bg(colour).fg(Color::White) } else { Style::new() };
    Span::styled(mark.to_string(), style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(used: i64, pending: i64, quota: Option<i64>, fair_share: i64) -> String {
        let bar = Bar { scale: 8, used, pending, quota, fair_share };
        bar.line(16).spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn bar_shows_allocation_demand_quota_and_fair_share() {
        assert_eq!(text(0, 0, None, 0), "                ");
        assert_eq!(text(4, 0, Some(4), 4), "███████◈        ");
        assert_eq!(text(2, 2, Some(4), 6), "████░░░│   ◆    ");
        assert_eq!(text(6, 0, Some(2), 4), "███│███◆████    ", "over its quota");
        assert_eq!(text(4, 40, Some(2), 8), "███│████░░░░░░░◆", "the fair share is at the end");
        assert_eq!(text(4, 40, Some(2), 4), "███│███◆░░░░░░░»", "the demand does not fit");
    }
}
