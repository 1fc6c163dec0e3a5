//! Client-side rate limit: a token bucket with queries per second and burst, as in client-go.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// `qps` requests a second on average, with bursts.
#[derive(Debug)]
pub struct RateLimiter {
    interval: Duration,
    /// How far the schedule may lag behind the clock.
    slack: Duration,
    next: Mutex<Instant>,
}

impl RateLimiter {
    /// None when `qps` sets no limit.
    pub fn new(qps: f64, burst: u32) -> Option<Self> {
        if !qps.is_finite() || qps <= 0.0 {
            return None;
        }
        let interval = Duration::from_secs_f64(1.0 / qps);
        let slack = interval.saturating_mul(burst.saturating_sub(1));
        Some(Self { interval, slack, next: Mutex::new(Instant::now()) })
    }

    /// Waits for the slot of one request; slots are assigned in call order.
    pub async fn acquire(&self) {
        let slot = self.reserve(Instant::now());
        tokio::time::sleep_until(slot).await;
    }

    fn reserve(&self, now: Instant) -> Instant {
        let mut next = self.next.lock();
        let earliest = now.checked_sub(self.slack).unwrap_or(now);
        let slot = (*next).max(earliest);
        *next = slot + self.interval;
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn burst_passes_at_once_and_the_rest_at_the_rate() {
        let limiter = RateLimiter::new(10.0, 5).expect("a limit");
        tokio::time::advance(Duration::from_mins(1)).await;
        let start = Instant::now();
        for _ in 0..5 {
            limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            limiter.acquire().await;
        }
        assert!(start.elapsed().abs_diff(Duration::from_secs(1)) < Duration::from_millis(5));
        assert!(RateLimiter::new(0.0, 5).is_none());
    }
}
