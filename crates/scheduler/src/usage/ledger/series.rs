//! An amount over time: its integral in buckets of equal length, and its value since the last change.
//!
//! The last value holds until another one is set, so an amount that does not change needs no record. With a half-life, each
//! bucket is weighted by the age at its own end; ageing multiplies whole buckets and is exact. Only the bucket in which the
//! window begins is divided, as if its content were spread evenly.

use super::Amounts;
use kai_units::{Span, Timestamp};
use std::collections::VecDeque;

/// Complete buckets of a series. An amount that is misplaced within one of them changes the result by less than 1 %.
pub(super) const BUCKETS: i64 = 64;
/// Usage that is older than so many half-lives weighs less than a thousandth.
const HALF_LIVES: i64 = 10;
const SECOND: f64 = 1e6;

/// The length of buckets, and how they are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) bucket: Span,
    pub(super) half_life: Option<Span>,
}

impl Resolution {
    /// For a window of this length.
    pub(super) fn of(window: Span, half_life: Option<Span>) -> Self {
        let half_life = half_life.filter(|half_life| half_life.0 > 0);
        let relevant = half_life.map_or(i64::MAX, |half_life| half_life.0.saturating_mul(HALF_LIVES));
        Self { bucket: Span((window.0.min(relevant) / BUCKETS).max(1)), half_life }
    }

    /// The integral of the weight from `from` to `to` in seconds; the weight is 1 at `at`.
    fn weight(self, from: Timestamp, to: Timestamp, at: Timestamp) -> f64 {
        match self.half_life {
            None => (to - from).0 as f64 / SECOND,
            Some(half_life) => {
                let scale = half_life.0 as f64 / SECOND / std::f64::consts::LN_2;
                scale * (self.decay(at - to) - self.decay(at - from))
            }
        }
    }

    /// The weight of an age; above 1 for a negative one.
    fn decay(self, age: Span) -> f64 {
        self.half_life.map_or(1.0, |half_life| (-(age.0 as f64) / half_life.0 as f64).exp2())
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) resolution: Resolution,
    /// Start of the first bucket; not after `since`.
    pub(super) start: Timestamp,
    /// Weighted integrals by bucket. Buckets at the end that are missing are empty.
    pub(super) sums: VecDeque<Amounts>,
    /// The amounts since `since`.
    pub(super) current: Amounts,
    pub(super) since: Timestamp,
}

impl Series {
    pub(super) fn new(resolution: Resolution, at: Timestamp) -> Self {
        Self { resolution, start: at, sums: VecDeque::new(), current: [0.0; 3], since: at }
    }

    /// Sets the amounts from `now` on.
    pub(super) fn set(&mut self, now: Timestamp, amounts: Amounts) {
        self.advance(now);
        self.current = amounts;
    }

    /// Whether nothing of it counts any more.
    pub(super) fn is_empty(&self) -> bool {
        is_zero(&self.current) && self.sums.iter().all(is_zero)
    }

    /// Drops everything before `begin`.
    pub(super) fn restart(&mut self, begin: Timestamp) {
        if self.start < begin {
            self.sums.clear();
            self.start = begin;
            self.since = self.since.max(begin);
        }
    }

    /// Adds the current amounts up to `now`, and drops buckets that are too old. A clock that was set back adds nothing.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let length = self.resolution.bucket.0;
        let old = (now.0.saturating_sub(self.start.0) / length).saturating_sub(BUCKETS);
        if let Ok(old) = usize::try_from(old) {
            self.sums.drain(..old.min(self.sums.len()));
            self.start = self.bucket_start(old);
            self.since = self.since.max(self.start);
        }
        while self.since < now {
            let index = usize::try_from((self.since - self.start).0 / length).unwrap_or(0);
            let end = self.bucket_start(index + 1);
            let until = now.min(end);
            if !is_zero(&self.current) {
                let weight = self.resolution.weight(self.since, until, end);
                if self.sums.len() <= index {
                    self.sums.resize(index + 1, [0.0; 3]);
                }
                if let Some(sums) = self.sums.get_mut(index) {
                    add(sums, self.current, weight);
                }
            }
            self.since = until;
        }
    }

    /// The integral from `begin` to `now` in amount-seconds, weighted by the age at `now`.
    pub(super) fn integral(&mut self, begin: Timestamp, now: Timestamp) -> Amounts {
        self.advance(now);
        let mut total = [0.0; 3];
        for (index, sums) in self.sums.iter().enumerate() {
            let (start, end) = (self.bucket_start(index), self.bucket_start(index + 1));
            let until = end.min(now);
            if until <= begin || until <= start {
                continue;
            }
            let part = (until - begin.max(start)).0 as f64 / (until - start).0 as f64;
            add(&mut total, *sums, part * self.resolution.decay(now - end));
        }
        total
    }

    /// The mean amount of each bucket from the oldest on.
    pub(super) fn means(&self, now: Timestamp) -> Vec<(Timestamp, Amounts)> {
        let mean = |(index, sums): (usize, &Amounts)| {
            let (start, end) = (self.bucket_start(index), self.bucket_start(index + 1));
            let weight = self.resolution.weight(start, end.min(now), end);
            (start, sums.map(|sum| if weight > 0.0 { sum / weight } else { 0.0 }))
        };
        self.sums.iter().enumerate().map(mean).collect()
    }

    /// The same amounts in other buckets; the content of each old one is spread evenly.
    pub(super) fn with_resolution(&self, resolution: Resolution) -> Self {
        if resolution == self.resolution {
            return self.clone();
        }
        let mut changed = Self::new(resolution, self.start);
        for (start, mean) in self.means(self.since) {
            changed.set(start, mean);
        }
        changed.set(self.since.min(self.bucket_start(self.sums.len())), [0.0; 3]);
        changed.set(self.since, self.current);
        changed
    }

    fn bucket_start(&self, index: usize) -> Timestamp {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        Timestamp(self.start.0.saturating_add(index.saturating_mul(self.resolution.bucket.0)))
    }
}

/// Amounts are sums of base units, so equal ones have equal bits.
pub(super) fn same(a: Amounts, b: Amounts) -> bool {
    a.map(f64::to_bits) == b.map(f64::to_bits)
}

pub(super) fn is_zero(amounts: &Amounts) -> bool {
    same(*amounts, [0.0; 3])
}

fn add(sums: &mut Amounts, amounts: Amounts, weight: f64) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum += amount * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn gpus(count: f64) -> Amounts {
        [0.0, 0.0, count]
    }

    fn series(window: i64, half_life: Option<i64>) -> Series {
        Series::new(Resolution::of(Span::from_secs(window), half_life.map(Span::from_secs)), at(0))
    }

    fn assert_close(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual - expected).abs() <= tolerance, "{actual} is not {expected}");
    }

    #[test]
    fn integral_counts_each_second_with_its_amount() {
        let mut series = series(64 * MINUTE, None);
        series.set(at(0), gpus(4.0));
        series.set(at(90), gpus(1.0));
        assert_close(series.integral(at(0), at(120))[2], 4.0 * 90.0 + 30.0, 1e-9);
        assert_close(series.integral(at(60), at(120))[2], 4.0 * 30.0 + 30.0, 1e-9);
    }

    #[test]
    fn usage_before_the_window_is_dropped_and_the_number_of_buckets_is_bounded() {
        let mut series = series(64 * MINUTE, None);
        series.set(at(0), gpus(8.0));
        series.set(at(10 * MINUTE), gpus(0.0));
        let now = at(1_000_000 * MINUTE);
        assert!(is_zero(&series.integral(now + Span::from_secs(-64 * MINUTE), now)));
        assert!(series.is_empty());
        series.set(now, gpus(2.0));
        series.advance(now + Span::from_secs(500 * MINUTE));
        assert!(series.sums.len() <= 65, "{}", series.sums.len());
    }

    #[test]
    fn half_life_weights_each_second_exactly() {
        let mut series = series(7 * 24 * 3_600, Some(3_600));
        series.set(at(0), gpus(10.0));
        series.set(at(3_600), gpus(0.0));
        series.set(at(7_200), gpus(10.0));
        let now = at(3 * 3_600);
        let scale = 3_600.0 / std::f64::consts::LN_2;
        // The last hour weighs 1 - 1/2, the first of three 1/4 - 1/8.
        assert_close(series.integral(at(0), now)[2], 10.0 * scale * (0.5 + 0.125), 1e-6);
    }

    #[test]
    fn time_that_goes_backwards_adds_nothing() {
        let mut series = series(64 * MINUTE, None);
        series.set(at(100), gpus(1.0));
        series.set(at(40), gpus(2.0));
        assert_close(series.integral(at(0), at(110))[2], 20.0, 1e-9);
    }

    #[test]
    fn window_that_was_reset_counts_from_its_beginning() {
        let mut series = series(64 * MINUTE, None);
        series.set(at(0), gpus(3.0));
        series.restart(at(600));
        assert_close(series.integral(at(600), at(630))[2], 90.0, 1e-9);
    }

    #[test]
    fn other_buckets_keep_the_amounts() {
        let mut series = series(64 * 60 * MINUTE, Some(6 * 3_600));
        for hour in 0..12 {
            series.set(at(hour * 3_600), gpus((hour % 3) as f64));
        }
        let now = at(12 * 3_600);
        let expected = {
            let mut unweighted = self::series(64 * 60 * MINUTE, None);
            for hour in 0..12 {
                unweighted.set(at(hour * 3_600), gpus((hour % 3) as f64));
            }
            unweighted.integral(at(0), now)[2]
        };
        let resolution = Resolution::of(Span::from_secs(64 * 60 * MINUTE), None);
        let mut changed = series.with_resolution(resolution);
        let actual = changed.integral(at(0), now)[2];
        assert_close(actual / expected, 1.0, 0.02);
        assert!(same(changed.current, series.current));
    }
}
