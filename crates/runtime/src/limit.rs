//! Keeps a client to a number of requests a second, where one was asked for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// So many requests a second on average, and so many at once after a pause.
#[derive(Debug)]
pub struct Limit {
    /// Time between two requests.
    interval: Duration,
    /// How far the schedule may lag behind the clock.
    slack: Duration,
    /// When the next request is due.
    next: Mutex<Instant>,
}

impl Limit {
    /// A limit of `qps` requests a second with bursts of `burst`; nothing when `qps` sets no limit.
    pub fn new(qps: f64, burst: u32) -> Option<Self> {
        if !qps.is_finite() || qps <= 0.0 {
            return None;
        }
        let interval = Duration::from_secs_f64(1.0 / qps);
        let slack = interval.saturating_mul(burst.saturating_sub(1));
        Some(Self { interval, slack, next: Mutex::new(Instant::now()) })
    }

    /// Waits for the turn of one request. Turns are given in the order of asking.
    pub async fn turn(&self) {
        let turn = self.take(Instant::now());
        tokio::time::sleep_until(turn).await;
    }

    fn take(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(self.slack).unwrap_or(now);
        let turn = (*next).max(earliest);
        *next = turn + self.interval;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_burst_passes_and_the_rest_keeps_the_rate() {
        let limit = Limit::new(10.0, 5).expect("a limit");
        tokio::time::advance(Duration::from_mins(1)).await;
        let start = Instant::now();
        for _ in 0..5 {
            limit.turn().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            limit.turn().await;
        }
        assert!(start.elapsed().abs_diff(Duration::from_secs(1)) < Duration::from_millis(5));
        assert!(Limit::new(0.0, 5).is_none());
    }
}
