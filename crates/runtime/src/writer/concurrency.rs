//! Adaptive limit of writes in flight, by latency (additive increase and decrease) and failures (halving).

use std::time::Duration;

const LIMIT_MIN: f64 = 1.0;
const LIMIT_START: f64 = 16.0;
const LIMIT_MAX: f64 = 64.0;
/// A latency this many times the lowest indicates queueing at the server.
const SLOWDOWN: f64 = 4.0;
/// Seconds of latency that are indistinguishable from noise.
const NOISE: f64 = 0.010;

#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    limit: f64,
    /// Smoothed latency in seconds.
    smoothed: f64,
    /// The lowest smoothed latency; it rises slowly, so that an old minimum does not count for ever.
    lowest: f64,
}

impl ConcurrencyLimit {
    pub(super) fn new() -> Self {
        Self { limit: LIMIT_START, smoothed: 0.0, lowest: f64::INFINITY }
    }

    pub(super) fn get(&self) -> usize {
        self.limit as usize
    }

    pub(super) fn responded(&mut self, latency: Duration) {
        let latency = latency.as_secs_f64();
        self.smoothed =
            if self.smoothed == 0.0 { latency } else { self.smoothed.mul_add(0.9, latency * 0.1) };
        self.lowest = (self.lowest * 1.001).min(self.smoothed).max(1e-6);
        if self.smoothed > self.lowest * SLOWDOWN + NOISE {
            self.limit = (self.limit - 1.0 / self.limit).max(LIMIT_MIN);
        } else {
            self.limit = (self.limit + 1.0 / self.limit).min(LIMIT_MAX);
        }
    }

    /// A request failed transiently.
    pub(super) fn failed(&mut self) {
        self.limit = (self.limit / 2.0).max(LIMIT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_follows_the_latency() {
        let mut limit = ConcurrencyLimit::new();
        for _ in 0..10_000 {
            limit.responded(Duration::from_millis(2));
        }
        assert_eq!(limit.get(), 64);
        for _ in 0..2_000 {
            limit.responded(Duration::from_millis(80));
        }
        assert!(limit.get() < 40, "{}", limit.get());
        for _ in 0..10 {
            limit.failed();
        }
        assert_eq!(limit.get(), 1);
    }
}
