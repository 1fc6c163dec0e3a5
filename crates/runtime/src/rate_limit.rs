//! Client-side rate limit: a token bucket with queries per second and burst, as in client-go.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Limits of client-go where none are set.
const DEFAULT_QPS: f64 = 5.0;
const DEFAULT_BURST: u32 = 10;
/// The lowest rate is one request in this time.
const INTERVAL_MAX: Duration = Duration::from_hours(1);

/// `qps` requests a second on average, with bursts.
#[derive(Debug)]
pub struct RateLimiter {
    interval: Duration,
    /// How far the schedule may lag behind the clock.
    slack: Duration,
    next: Mutex<Instant>,
}

impl RateLimiter {
    /// None when `qps` is negative, which sets no limit. Zero means the default of client-go.
    pub fn new(qps: f64, burst: u32) -> Option<Self> {
        let qps = if qps == 0.0 { DEFAULT_QPS } else { qps };
        let burst = if burst == 0 { DEFAULT_BURST } else { burst };
        if qps.is_nan() || qps < 0.0 {
            return None;
        }
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(INTERVAL_MAX).min(INTERVAL_MAX);
        let slack = interval.saturating_mul(burst.saturating_sub(1));
        // The first burst passes at once.
        let now = Instant::now();
        let next = now.checked_sub(slack).unwrap_or(now);
        Some(Self { interval, slack, next: Mutex::new(next) })
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
        let start = Instant::now();
        for _ in 0..5 {
            limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            limiter.acquire().await;
        }
        assert!(start.elapsed().abs_diff(Duration::from_secs(1)) < Duration::from_millis(5));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn negative_rate_is_unlimited_and_zero_is_the_default_of_client_go() {
        assert!(RateLimiter::new(-1.0, 300).is_none());
        let interval = |qps| RateLimiter::new(qps, 300).map(|limiter| limiter.interval);
        assert_eq!(interval(0.0), Some(Duration::from_millis(200)));
        assert_eq!(interval(1e-300), Some(INTERVAL_MAX));
        assert_eq!(interval(f64::INFINITY), Some(Duration::ZERO));
    }
}
