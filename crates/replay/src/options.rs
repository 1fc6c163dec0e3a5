//! How a simulation runs: its clock, its delays, and whether past usage counts.

use kai_units::{Span, Timestamp};

/// How a simulation runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// When it begins.
    pub start: Timestamp,
    /// From one cycle to the next.
    pub period: Span,
    /// From the decision to bind a pod until it runs.
    pub start_delay: Span,
    /// From the decision to evict a pod until it is gone.
    pub grace: Span,
    /// Seeds the ids of new GPU groups.
    pub seed: u64,
    /// Measures the usage of queues and feeds it back, where past usage counts.
    pub usage: Option<UsageOptions>,
    /// Most samples kept for series; `None` keeps every one that differs from the one before.
    pub samples_max: Option<usize>,
}

/// How past usage is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageOptions {
    /// Which part of the past counts.
    pub window: Window,
    /// Age at which use counts half; `None` counts everything in the window alike.
    pub half_life: Option<Span>,
    /// From one measurement to the next.
    pub fetch_every: Span,
}

/// Which part of the past counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The last so much.
    Sliding(Span),
    /// Since the last of the moments that are whole multiples of the length away from the start.
    Tumbling {
        /// One of those moments.
        start: Timestamp,
        /// How far they are apart.
        length: Span,
    },
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
    /// How far back usage counts at most.
    pub fn window_length(&self) -> Span {
        self.window.length()
    }
}

impl Window {
    /// Where the window that ends now begins.
    pub(crate) fn begins(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Sliding(length) => now + Span(length.0.saturating_neg()),
            Self::Tumbling { start, length } => {
                let into = (now - start).0.rem_euclid(length.0.max(1));
                now + Span(-into)
            }
        }
    }

    /// How long it is at most.
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
    fn a_sliding_window_ends_now_and_a_tumbling_one_begins_at_a_fixed_moment() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        assert_eq!(Window::Sliding(Span::from_secs(5)).begins(at(12)), at(7));
        let tumbling = Window::Tumbling { start: at(2), length: Span::from_secs(5) };
        assert_eq!(tumbling.begins(at(12)), at(12));
        assert_eq!(tumbling.begins(at(16)), at(12));
        assert_eq!(tumbling.begins(at(1)), at(-3));
    }
}
