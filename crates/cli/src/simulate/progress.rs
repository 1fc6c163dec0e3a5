//! A line that tells how far a long simulation got, on terminals only.

use super::spans;
use kai_clock::Stopwatch;
use kai_replay::Progress;
use kai_units::{Span, Timestamp};
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

/// What is done sooner needs no line.
const PATIENCE: Duration = Duration::from_secs(2);
/// From one line to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// A line on standard error that is written over and over.
pub(super) struct ProgressLine {
    since: Stopwatch,
    shown_at: Option<Duration>,
    limit: Span,
    is_terminal: bool,
}

impl ProgressLine {
    /// A simulation begins that ends after so much virtual time at the latest.
    pub(super) fn start(limit: Span) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { since: Stopwatch::start(), shown_at: None, limit, is_terminal }
    }

    /// Shows how far it got, where it is time for that.
    pub(super) fn show(&mut self, progress: impl FnOnce() -> (Progress, Timestamp)) {
        let elapsed = self.since.elapsed();
        let is_due = self.shown_at.map_or(elapsed >= PATIENCE, |at| elapsed >= at + PAUSE);
        if !self.is_terminal || !is_due {
            return;
        }
        self.shown_at = Some(elapsed);
        let (progress, start) = progress();
        let text = text(&progress, progress.now - start, self.limit);
        // Nothing can be done for a terminal that has gone away.
        let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if self.shown_at.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn text(progress: &Progress, passed: Span, limit: Span) -> String {
    format!(
        "simulated {} of {} in {} cycles; groups waiting: {}; pods evicted: {}",
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
    fn the_line_tells_how_far_it_got() {
        let progress = Progress { now: Timestamp(0), planned: 70, waiting: 3, evictions: 1 };
        assert_eq!(
            text(&progress, Span::from_secs(90), Span::from_secs(7_200)),
            "simulated 1m30s of 2h in 70 cycles; groups waiting: 3; pods evicted: 1"
        );
    }
}
