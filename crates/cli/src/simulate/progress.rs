//! The progress line of a long simulation, on terminals only.

use super::spans;
use kai_clock::Stopwatch;
use kai_replay::Progress;
use kai_units::{Span, Timestamp};
use std::io::Write as _;
use std::time::Duration;

/// Simulations that take less have no progress line.
const INITIAL_DELAY: Duration = Duration::from_secs(2);
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// A line on standard error that is redrawn in place.
pub(super) struct ProgressLine {
    since: Stopwatch,
    shown_at: Option<Duration>,
    limit: Span,
    is_terminal: bool,
}

impl ProgressLine {
    /// `limit` is the virtual time after which the simulation ends at the latest.
    pub(super) fn start(limit: Span) -> Self {
        let is_terminal = crate::is_terminal(&std::io::stderr());
        Self { since: Stopwatch::start(), shown_at: None, limit, is_terminal }
    }

    pub(super) fn show(&mut self, progress: impl FnOnce() -> (Progress, Timestamp)) {
        let elapsed = self.since.elapsed();
        let is_due = self.shown_at.map_or(elapsed >= INITIAL_DELAY, |at| elapsed >= at + REFRESH_INTERVAL);
        if !self.is_terminal || !is_due {
            return;
        }
        self.shown_at = Some(elapsed);
        let (progress, start) = progress();
        let text = text(&progress, progress.now - start, self.limit);
        // A closed terminal is not an error.
        let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
    }

    pub(super) fn clear(&mut self) {
        if self.shown_at.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn text(progress: &Progress, passed: Span, limit: Span) -> String {
    format!(
        "simulated {} of {} in {} cycles; pending groups: {}; evicted pods: {}",
        spans::short(passed),
        spans::short(limit),
        progress.planned,
        progress.waiting,
        progress.evictions,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_time_cycles_pending_groups_and_evictions() {
        let progress = Progress { now: Timestamp(0), planned: 70, waiting: 3, evictions: 1 };
        assert_eq!(
            text(&progress, Span::from_secs(90), Span::from_secs(7_200)),
            "simulated 1m30s of 2h in 70 cycles; pending groups: 3; evicted pods: 1"
        );
    }
}
