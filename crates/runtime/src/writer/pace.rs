//! How many writes may be under way at once.

use std::time::Duration;

const LIMIT_MIN: f64 = 1.0;
const LIMIT_START: f64 = 16.0;
const LIMIT_MAX: f64 = 64.0;
/// Answers that take this much longer than the fastest ones say that a queue builds up somewhere.
const SLOWER: f64 = 4.0;
/// What is too short to be told apart from noise.
const NOISE: f64 = 0.010;

/// Follows the latency of answers.
#[derive(Debug)]
pub(super) struct Pace {
    limit: f64,
    /// Smoothed time to an answer in seconds, and the least of it; it rises slowly, so that a better past is forgotten.
    usual: f64,
    best: f64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { limit: LIMIT_START, usual: 0.0, best: f64::INFINITY }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The server answered, after this time.
    pub(super) fn answered(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.usual = if self.usual == 0.0 { took } else { self.usual.mul_add(0.9, took * 0.1) };
        self.best = (self.best * 1.001).min(self.usual).max(1e-6);
        if self.usual > self.best * SLOWER + NOISE {
            self.limit = (self.limit - 1.0 / self.limit).max(LIMIT_MIN);
        } else {
            self.limit = (self.limit + 1.0 / self.limit).min(LIMIT_MAX);
        }
    }

    /// The server could not answer.
    pub(super) fn overloaded(&mut self) {
        self.limit = (self.limit / 2.0).max(LIMIT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_sent_while_answers_are_fast_and_less_when_they_are_not() {
        let mut pace = Pace::new();
        for _ in 0..10_000 {
            pace.answered(Duration::from_millis(2));
        }
        assert_eq!(pace.limit(), 64);
        for _ in 0..2_000 {
            pace.answered(Duration::from_millis(80));
        }
        assert!(pace.limit() < 40, "{}", pace.limit());
        for _ in 0..10 {
            pace.overloaded();
        }
        assert_eq!(pace.limit(), 1);
    }
}
