//! The only source of wall clock time and of durations.
//!
//! Decisions take the time as an argument, so that they can be replayed. The two reads below are the only ones in the
//! workspace; clippy bans all others.

mod clock;

pub use clock::{Clock, Setter, micro_time, time};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch; 0 if the wall clock is before the epoch.
#[expect(clippy::disallowed_methods, reason = "time enters the workspace here")]
pub fn unix_micros() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Measures durations with a monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "time enters the workspace here")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Milliseconds since the start, with a fraction.
    pub fn elapsed_ms(&self) -> f64 {
        self.elapsed().as_secs_f64() * 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_is_plausible() {
        let micros = unix_micros();
        assert!(micros > 1_704_067_200_000_000, "{micros}");
        assert!(micros < 7_258_118_400_000_000, "{micros}");
    }

    #[test]
    fn stopwatch_is_monotonic() {
        let watch = Stopwatch::start();
        let first = watch.elapsed();
        assert!(watch.elapsed() >= first);
    }
}
