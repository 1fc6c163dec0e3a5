//! The options of a simulation: clock, delays and historical usage.

use kai_units::{Span, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    pub start: Timestamp,
    /// Interval of scheduling cycles.
    pub period: Span,
    /// From the decision to bind a pod until it runs.
    pub start_delay: Span,
    /// From the decision to evict a pod until it has terminated.
    pub grace: Span,
    /// Seeds the ids of new GPU groups.
    pub seed: u64,
    /// With time-based fair share: how the usage of queues is computed.
    pub usage: Option<UsageOptions>,
    /// Limit of the samples in a series; `None` keeps every one that differs from the previous one.
    pub samples_max: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageOptions {
    pub window: Window,
    /// Age at which usage counts half; `None` disables the decay.
    pub half_life: Option<Span>,
    /// Interval of updates.
    pub fetch_every: Span,
}

/// The period of historical usage that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The last period of this length.
    Sliding(Span),
    /// Since the last multiple of `length` after `start`.
    Tumbling { start: Timestamp, length: Span },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: Timestamp(0),
            period: Span::from_secs(1),
            start_delay: Span::from_secs(1),
            grace: Span::from_secs(1),
            seed: 0,
            usage: None,
            samples_max: Some(2_000),
        }
    }
}

impl Default for UsageOptions {
    fn default() -> Self {
        Self {
            window: Window::Sliding(Span::from_secs(7 * 24 * 3_600)),
            half_life: None,
            fetch_every: Span::from_secs(60),
        }
    }
}

impl UsageOptions {
    pub fn window_length(&self) -> Span {
        self.window.length()
    }
}

impl Window {
    /// The begin of the window that contains `now`.
    pub(crate) fn begins(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Sliding(length) => now + Span(length.0.saturating_neg()),
            Self::Tumbling { start, length } => {
                let into = (now - start).0.rem_euclid(length.0.max(1));
                now + Span(-into)
            }
        }
    }

    pub(crate) fn length(self) -> Span {
        match self {
            Self::Sliding(length) | Self::Tumbling { length, .. } => length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliding_window_ends_now_and_tumbling_window_begins_at_a_multiple() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        assert_eq!(Window::Sliding(Span::from_secs(5)).begins(at(12)), at(7));
        let tumbling = Window::Tumbling { start: at(2), length: Span::from_secs(5) };
        assert_eq!(tumbling.begins(at(12)), at(12));
        assert_eq!(tumbling.begins(at(16)), at(12));
        assert_eq!(tumbling.begins(at(1)), at(-3));
    }
}
