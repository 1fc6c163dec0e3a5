//! The clock of all components: a start time plus the time elapsed on tokio's clock.
//!
//! In a paused runtime tokio's clock is virtual, and so are all timestamps, deadlines and timeouts.

use jiff::{SignedDuration, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    start: Instant,
    /// Seconds by which the time was set forward.
    offset: Option<&'static AtomicI64>,
}

/// Sets the time of one [`Clock`] and its copies.
#[derive(Clone, Copy, Debug)]
pub struct Setter(&'static AtomicI64);

impl Setter {
    /// Sets the time forward, or back where it is negative. Timeouts do not change, as with any monotonic clock.
    pub fn jump(self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Corrects the time.
    pub fn reset(self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Clock {
    /// Starts at the wall clock time and advances with tokio's clock.
    pub fn system() -> Self {
        Self::starting_at(Timestamp::from_microsecond(crate::unix_micros()).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Starts at `epoch` and advances with tokio's clock, for deterministic runs.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now(), offset: None }
    }

    /// A clock with the same time that can be set, as on a machine whose time is corrected. The offset is never freed, so this
    /// is for tests.
    pub fn settable(self) -> (Self, Setter) {
        let offset: &'static AtomicI64 = Box::leak(Box::default());
        (Self { offset: Some(offset), ..self }, Setter(offset))
    }

    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::ZERO);
        let offset = self.offset.map_or(0, |offset| offset.load(Ordering::Relaxed));
        let elapsed = elapsed.saturating_add(SignedDuration::from_secs(offset));
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The time in the format of `metav1.Time`: whole seconds.
    pub fn time(&self) -> String {
        time(self.now())
    }

    /// The time in the format of `metav1.MicroTime`: microseconds.
    pub fn micro_time(&self) -> String {
        micro_time(self.now())
    }
}

/// The format of `metav1.Time`, rounded down.
pub fn time(at: Timestamp) -> String {
    let seconds = at.as_microsecond().div_euclid(1_000_000);
    Timestamp::from_second(seconds).unwrap_or(at).to_string()
}

/// The format of `metav1.MicroTime`.
pub fn micro_time(at: Timestamp) -> String {
    let micros = at.as_microsecond().rem_euclid(1_000_000);
    let mut text = time(at);
    text.truncate(text.len() - 1);
    format!("{text}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn paused_runtime_advances_the_clock() {
        let clock = Clock::starting_at("2026-01-01T00:00:00.25Z".parse().unwrap());
        assert_eq!(clock.time(), "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_hours(24)).await;
        assert_eq!(clock.time(), "2026-01-02T00:00:00Z");
        assert_eq!(clock.micro_time(), "2026-01-02T00:00:00.250000Z");
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn set_clock_jumps_alone() {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().unwrap());
        let (set, setter) = clock.settable();
        setter.jump(-3_600);
        assert_eq!(
            (set.time(), clock.time()),
            ("2026-01-01T11:00:00Z".to_owned(), "2026-01-01T12:00:00Z".to_owned())
        );
        setter.reset();
        assert_eq!(set.time(), clock.time());
    }
}
