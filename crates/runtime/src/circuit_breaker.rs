//! Circuit breaker of a client: while the server fails, requests are sent one at a time at growing intervals.
//!
//! Callers retry per object with their own backoff. With many objects that overloads a failing server, so all requests
//! of a client share one breaker. While it is open, one probe request passes per interval; the first response closes it
//! and releases all waiters. An object for which the server always fails, for example because of a broken webhook, delays
//! the others by no more than the first interval.

use crate::backoff::BackoffPolicy;
use parking_lot::Mutex;
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Interval between two probe requests.
const PROBE_INTERVAL: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(10));
/// The level at which the interval has reached its maximum.
const LEVEL_MAX: u32 = 7;
/// The longest `Retry-After` that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    state: Mutex<State>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When the next probe may be sent; none while the circuit is closed.
    next: Option<Instant>,
    /// When the level was last raised.
    since: Option<Instant>,
    level: u32,
    /// Hashes of the paths that failed since the last response; more than the highest level are not kept.
    failing: FxHashSet<u64>,
}

impl State {
    fn interval(&self) -> Duration {
        PROBE_INTERVAL.delay(self.level)
    }
}

impl CircuitBreaker {
    /// Waits until a request may be sent, and returns that time.
    pub(crate) async fn admit(&self) -> Instant {
        loop {
            let closed = self.closed.notified();
            let now = Instant::now();
            let at = {
                let mut state = self.state.lock();
                match state.next {
                    None => return now,
                    Some(at) if at <= now => {
                        state.next = Some(now + state.interval());
                        return now;
                    }
                    Some(at) => at,
                }
            };
            tokio::select! {
                biased;
                () = closed => {}
                () = tokio::time::sleep_until(at) => {}
            }
        }
    }

    /// The server responded, be it with an error; closes the circuit.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state.lock();
        if state.next.is_some() {
            *state = State::default();
            drop(state);
            self.closed.notify_waiters();
        }
    }

    /// A request for this path that was sent at `sent` failed, possibly with `Retry-After`.
    pub(crate) fn failed(&self, path: &str, sent: Instant, retry_after: Option<Duration>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.failing.len() < LEVEL_MAX as usize {
            let mut hasher = FxHasher::default();
            path.split('?').next().hash(&mut hasher);
            state.failing.insert(hasher.finish());
        }
        // Concurrent requests fail together and count as one failure.
        if state.since.is_none_or(|since| sent > since) {
            // A few failing paths are weak evidence against the server.
            let most = (2 * state.failing.len() as u32).saturating_sub(1);
            state.level = (state.level + 1).min(most).min(LEVEL_MAX);
            state.since = Some(now);
            let next = now + state.interval();
            state.next = Some(state.next.map_or(next, |known| known.max(next)));
        }
        if let Some(retry_after) = retry_after {
            let next = now + retry_after.min(RETRY_AFTER_MAX);
            state.next = Some(state.next.map_or(next, |known| known.max(next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends failing requests for the paths round robin; returns how many were sent in that time.
    async fn fail_for(breaker: &CircuitBreaker, time: Duration, paths: &[&str]) -> usize {
        let end = Instant::now() + time;
        let mut sent = 0;
        loop {
            let at = breaker.admit().await;
            if at >= end {
                return sent;
            }
            tokio::time::sleep(MS).await;
            breaker.failed(paths[sent % paths.len()], at, None);
            sent += 1;
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn request_rate_falls_while_every_path_fails() {
        let breaker = CircuitBreaker::default();
        let paths = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let sent = fail_for(&breaker, Duration::from_mins(5), &paths).await;
        assert!((30..45).contains(&sent), "{sent}");
        breaker.succeeded();
        let before = Instant::now();
        breaker.admit().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn one_failing_path_delays_others_by_the_first_interval_only() {
        let breaker = CircuitBreaker::default();
        fail_for(&breaker, Duration::from_mins(5), &["a?x=1", "a?x=2"]).await;
        let before = Instant::now();
        breaker.admit().await;
        assert!(before.elapsed() <= PROBE_INTERVAL.base, "{:?}", before.elapsed());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn concurrent_failures_count_once_and_a_response_releases_all_waiters() {
        let breaker = CircuitBreaker::default();
        let sent = breaker.admit().await;
        tokio::time::sleep(MS).await;
        for path in ["a", "b", "c", "d", "e"] {
            breaker.failed(path, sent, None);
        }
        let before = Instant::now();
        breaker.admit().await;
        assert_eq!(before.elapsed(), PROBE_INTERVAL.base);
        let all = async {
            for _ in 0..100 {
                breaker.admit().await;
            }
        };
        let before = Instant::now();
        tokio::join!(all, async {
            tokio::time::sleep(MS).await;
            breaker.succeeded();
        });
        assert_eq!(before.elapsed(), MS);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn retry_after_is_honoured() {
        let breaker = CircuitBreaker::default();
        let sent = breaker.admit().await;
        breaker.failed("a", sent, Some(Duration::from_secs(30)));
        let before = Instant::now();
        breaker.admit().await;
        assert_eq!(before.elapsed(), Duration::from_secs(30));
    }
}
