//! Historical usage of queues for time-based fair share.
//!
//! The usage of a queue is its allocation over the window divided by the capacity, both weighted by one half to the power
//! of age over half-life. Allocation is constant between two samples, so the weights are integrated exactly.

use crate::options::UsageOptions;
use kai_units::{Span, Timestamp};
use std::collections::VecDeque;

/// Usage is rounded to this precision, so that rounding errors change no decision.
const PRECISION: f64 = 1e9;

/// Allocation of queues by interval, as far back as the window.
#[derive(Clone, Debug)]
pub(crate) struct UsageLedger {
    options: UsageOptions,
    intervals: VecDeque<Interval>,
}

/// A period of constant allocation.
#[derive(Clone, Debug)]
struct Interval {
    from: Timestamp,
    to: Timestamp,
    /// By queue: cpu, memory, gpu.
    held: Vec<[i64; 3]>,
    total: [i64; 3],
}

impl UsageLedger {
    pub(crate) fn new(options: UsageOptions) -> Self {
        Self { options, intervals: VecDeque::new() }
    }

    /// Adds initial usage as a constant allocation over the whole window before the start.
    pub(crate) fn begin(&mut self, now: Timestamp, usage: &[[f64; 3]], total: [i64; 3]) {
        if usage.iter().flatten().all(|share| *share == 0.0) {
            return;
        }
        let held = usage.iter().map(|share| [0, 1, 2].map(|r| (share[r] * total[r] as f64).round() as i64));
        let held = held.collect();
        let from = now + Span(self.options.window.length().0.saturating_neg());
        self.intervals.push_back(Interval { from, to: now, held, total });
    }

    /// The end of the last interval.
    pub(crate) fn recorded_until(&self) -> Timestamp {
        self.intervals.back().map_or(Timestamp(i64::MIN), |interval| interval.to)
    }

    pub(crate) fn record(
        &mut self,
        from: Timestamp,
        to: Timestamp,
        held: impl Iterator<Item = [i64; 3]>,
        total: [i64; 3],
    ) {
        if from >= to {
            return;
        }
        let held: Vec<[i64; 3]> = held.collect();
        match self.intervals.back_mut() {
            Some(last) if last.to == from && last.total == total && last.held == held => last.to = to,
            Some(_) | None => self.intervals.push_back(Interval { from, to, held, total }),
        }
    }

    /// The usage of each queue; drops intervals before the window.
    pub(crate) fn usage(&mut self, now: Timestamp) -> Vec<[f64; 3]> {
        let begins = self.options.window.begins(now);
        while self.intervals.front().is_some_and(|interval| interval.to <= begins) {
            self.intervals.pop_front();
        }
        let queues = self.intervals.iter().map(|interval| interval.held.len()).max().unwrap_or(0);
        let mut held = vec![[0.0; 3]; queues];
        let mut total = [0.0; 3];
        for interval in &self.intervals {
            let weight = self.weight(interval.from.max(begins), interval.to, now);
            for r in 0..3 {
                total[r] += weight * interval.total[r] as f64;
                for (sum, amount) in held.iter_mut().zip(&interval.held) {
                    sum[r] += weight * amount[r] as f64;
                }
            }
        }
        let share = |held: f64, total: f64| {
            if total > 0.0 { (held / total * PRECISION).round() / PRECISION } else { 0.0 }
        };
        held.into_iter().map(|held| [0, 1, 2].map(|r| share(held[r], total[r]))).collect()
    }

    /// The integral of the decay from `from` to `to`, in microseconds.
    fn weight(&self, from: Timestamp, to: Timestamp, now: Timestamp) -> f64 {
        let Some(half_life) = self.options.half_life.filter(|half_life| half_life.0 > 0) else {
            return (to - from).0 as f64;
        };
        let half_life = half_life.0 as f64;
        let at = |moment: Timestamp| (-((now - moment).0 as f64) / half_life).exp2();
        half_life / std::f64::consts::LN_2 * (at(to) - at(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Window;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn ledger(window: i64, half_life: Option<i64>) -> UsageLedger {
        UsageLedger::new(UsageOptions {
            window: Window::Sliding(Span::from_secs(window)),
            half_life: half_life.map(Span::from_secs),
            fetch_every: Span::from_secs(1),
        })
    }

    fn record(ledger: &mut UsageLedger, from: i64, to: i64, gpus: [i64; 2]) {
        ledger.record(at(from), at(to), gpus.into_iter().map(|gpu| [0, 0, gpu]), [0, 0, 10]);
    }

    #[test]
    fn usage_is_allocation_over_capacity() {
        let mut ledger = ledger(10, None);
        record(&mut ledger, 0, 4, [10, 0]);
        record(&mut ledger, 4, 8, [0, 5]);
        assert_eq!(ledger.usage(at(8)), [[0.0, 0.0, 0.5], [0.0, 0.0, 0.25]]);
    }

    #[test]
    fn intervals_before_the_window_are_dropped() {
        let mut ledger = ledger(5, None);
        record(&mut ledger, 0, 4, [10, 0]);
        record(&mut ledger, 4, 8, [0, 10]);
        assert_eq!(ledger.usage(at(8)), [[0.0, 0.0, 0.2], [0.0, 0.0, 0.8]]);
        record(&mut ledger, 8, 20, [0, 10]);
        assert_eq!(ledger.usage(at(20)), [[0.0; 3], [0.0, 0.0, 1.0]]);
        assert_eq!(ledger.intervals.len(), 1);
    }

    #[test]
    fn half_life_weights_recent_usage_more() {
        let mut ledger = ledger(1_000, Some(4));
        record(&mut ledger, 0, 4, [10, 0]);
        record(&mut ledger, 4, 8, [0, 10]);
        // The last half-life weighs 1 - 1/2, the one before 1/2 - 1/4.
        assert_eq!(ledger.usage(at(8)).map_gpu(), [0.333_333_333, 0.666_666_667]);
    }

    #[test]
    fn initial_usage_counts_for_a_whole_window() {
        let mut ledger = ledger(10, None);
        ledger.begin(at(0), &[[0.0, 0.0, 1.0], [0.0; 3]], [0, 0, 10]);
        assert_eq!(ledger.usage(at(0)).map_gpu(), [1.0, 0.0]);
        record(&mut ledger, 0, 5, [0, 10]);
        assert_eq!(ledger.usage(at(5)).map_gpu(), [0.5, 0.5]);
    }

    #[test]
    fn usage_without_capacity_is_zero() {
        let mut ledger = ledger(10, None);
        assert_eq!(ledger.usage(at(5)), Vec::<[f64; 3]>::new());
        ledger.record(at(0), at(1), std::iter::once([0, 0, 5]), [0, 0, 0]);
        assert_eq!(ledger.usage(at(1)), [[0.0; 3]]);
    }

    trait MapGpu {
        fn map_gpu(&self) -> Vec<f64>;
    }

    impl MapGpu for Vec<[f64; 3]> {
        fn map_gpu(&self) -> Vec<f64> {
            self.iter().map(|shares| (shares[2] * 1e9).round() / 1e9).collect()
        }
    }
}
