//! What queues used in the past, as a share of the cluster: the time-based part of fair share.
//!
//! The use of a queue is what it held over the window divided by what there was, both weighted by one half to the
//! power of age over half-life. What is held is constant from one sample to the next, so that the weights are summed
//! exactly, however far the samples are apart.

use crate::options::UsageOptions;
use kai_units::{Span, Timestamp};
use std::collections::VecDeque;

/// Usage is rounded to whole parts of this many, so that the last bit of a power of two moves no decision.
const PARTS: f64 = 1e9;

/// What queues held, stretch by stretch, as far as the window reaches back.
#[derive(Clone, Debug)]
pub(crate) struct UsageLedger {
    options: UsageOptions,
    stretches: VecDeque<Stretch>,
}

/// A stretch of time in which nothing changed.
#[derive(Clone, Debug)]
struct Stretch {
    from: Timestamp,
    to: Timestamp,
    /// By queue: cpu, memory, gpu.
    held: Vec<[i64; 3]>,
    total: [i64; 3],
}

impl UsageLedger {
    /// An empty ledger.
    pub(crate) fn new(options: UsageOptions) -> Self {
        Self { options, stretches: VecDeque::new() }
    }

    /// Takes usage that was measured before the beginning as what was held for the whole window before it.
    pub(crate) fn begin(&mut self, now: Timestamp, usage: &[[f64; 3]], total: [i64; 3]) {
        if usage.iter().flatten().all(|share| *share == 0.0) {
            return;
        }
        let held = usage.iter().map(|share| [0, 1, 2].map(|r| (share[r] * total[r] as f64).round() as i64));
        let held = held.collect();
        let from = now + Span(self.options.window.length().0.saturating_neg());
        self.stretches.push_back(Stretch { from, to: now, held, total });
    }

    /// Up to when everything is noted.
    pub(crate) fn noted(&self) -> Timestamp {
        self.stretches.back().map_or(Timestamp(i64::MIN), |stretch| stretch.to)
    }

    /// Notes what was held from one moment to another.
    pub(crate) fn note(
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
        match self.stretches.back_mut() {
            Some(last) if last.to == from && last.total == total && last.held == held => last.to = to,
            Some(_) | None => self.stretches.push_back(Stretch { from, to, held, total }),
        }
    }

    /// The usage of each queue, and forgets what no later window can reach.
    pub(crate) fn usage(&mut self, now: Timestamp) -> Vec<[f64; 3]> {
        let begins = self.options.window.begins(now);
        while self.stretches.front().is_some_and(|stretch| stretch.to <= begins) {
            self.stretches.pop_front();
        }
        let queues = self.stretches.iter().map(|stretch| stretch.held.len()).max().unwrap_or(0);
        let mut held = vec![[0.0; 3]; queues];
        let mut total = [0.0; 3];
        for stretch in &self.stretches {
            let weight = self.weight(stretch.from.max(begins), stretch.to, now);
            for r in 0..3 {
                total[r] += weight * stretch.total[r] as f64;
                for (sum, amount) in held.iter_mut().zip(&stretch.held) {
                    sum[r] += weight * amount[r] as f64;
                }
            }
        }
        let share = |held: f64, total: f64| {
            if total > 0.0 { (held / total * PARTS).round() / PARTS } else { 0.0 }
        };
        held.into_iter().map(|held| [0, 1, 2].map(|r| share(held[r], total[r]))).collect()
    }

    /// The sum of the weights of all moments between two, seen from now, in microseconds.
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

    fn note(ledger: &mut UsageLedger, from: i64, to: i64, gpus: [i64; 2]) {
        ledger.note(at(from), at(to), gpus.into_iter().map(|gpu| [0, 0, gpu]), [0, 0, 10]);
    }

    #[test]
    fn use_is_what_was_held_of_what_there_was() {
        let mut ledger = ledger(10, None);
        note(&mut ledger, 0, 4, [10, 0]);
        note(&mut ledger, 4, 8, [0, 5]);
        assert_eq!(ledger.usage(at(8)), [[0.0, 0.0, 0.5], [0.0, 0.0, 0.25]]);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut ledger = ledger(5, None);
        note(&mut ledger, 0, 4, [10, 0]);
        note(&mut ledger, 4, 8, [0, 10]);
        assert_eq!(ledger.usage(at(8)), [[0.0, 0.0, 0.2], [0.0, 0.0, 0.8]]);
        note(&mut ledger, 8, 20, [0, 10]);
        assert_eq!(ledger.usage(at(20)), [[0.0; 3], [0.0, 0.0, 1.0]]);
        assert_eq!(ledger.stretches.len(), 1);
    }

    #[test]
    fn with_a_half_life_the_recent_past_counts_more() {
        let mut ledger = ledger(1_000, Some(4));
        note(&mut ledger, 0, 4, [10, 0]);
        note(&mut ledger, 4, 8, [0, 10]);
        // The last half-life weighs 1 - 1/2, the one before 1/2 - 1/4.
        assert_eq!(ledger.usage(at(8)).map_gpu(), [0.333_333_333, 0.666_666_667]);
    }

    #[test]
    fn usage_from_before_the_beginning_counts_for_a_whole_window() {
        let mut ledger = ledger(10, None);
        ledger.begin(at(0), &[[0.0, 0.0, 1.0], [0.0; 3]], [0, 0, 10]);
        assert_eq!(ledger.usage(at(0)).map_gpu(), [1.0, 0.0]);
        note(&mut ledger, 0, 5, [0, 10]);
        assert_eq!(ledger.usage(at(5)).map_gpu(), [0.5, 0.5]);
    }

    #[test]
    fn nothing_is_used_where_there_is_nothing() {
        let mut ledger = ledger(10, None);
        assert_eq!(ledger.usage(at(5)), Vec::<[f64; 3]>::new());
        ledger.note(at(0), at(1), std::iter::once([0, 0, 5]), [0, 0, 0]);
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
