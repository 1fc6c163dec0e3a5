//! Exponential backoff with a cap.
//!
//! There is no jitter: under a seeded simulation the same failures give the same delays. Clients of one process are
//! spread by the [circuit breaker](crate::api) and by rate limits instead.

use std::time::Duration;

/// A first delay that doubles with each further failure, up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    pub base: Duration,
    pub max: Duration,
}

impl BackoffPolicy {
    pub const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// The delay after so many consecutive failures; zero failures count as one.
    pub fn delay(self, failures: u32) -> Duration {
        // The exponent is bounded so that the shift cannot overflow; the cap is far below that.
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }
}

/// A [`BackoffPolicy`] with the number of consecutive failures.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
}

impl Backoff {
    pub const fn new(policy: BackoffPolicy) -> Self {
        Self { policy, failures: 0 }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.policy.delay(self.failures)
    }

    /// Forgets earlier failures after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let policy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(10));
        let millis = |failures| policy.delay(failures).as_millis();
        assert_eq!([0, 1, 2, 3, 6, 7, 1_000].map(millis), [200, 200, 400, 800, 6_400, 10_000, 10_000]);
        let mut backoff = Backoff::new(policy);
        assert_eq!([(); 3].map(|()| backoff.next_delay().as_millis()), [200, 400, 800]);
        backoff.reset();
        assert_eq!(backoff.next_delay().as_millis(), 200);
    }
}
