//! Allocation, fair share and requests of queues over time: exact sums, and series of bounded length.

use kai_engine::outcome::{Outcome, QueueReport};
use kai_units::{Span, Timestamp};

/// The queues at one point in time; valid until the next sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at: Timestamp,
    /// Capacity of the cluster: cpu, memory, gpu.
    pub total: [i64; 3],
    /// The queues, in the order of the report's queues.
    pub queues: Vec<QueueSample>,
}

/// A queue at one point in time: cpu in millicores, memory in bytes, GPUs in millionths of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSample {
    /// Allocated to its groups.
    pub held: [i64; 3],
    pub fair_share: [i64; 3],
    /// Allocated and pending requests.
    pub requested: [i64; 3],
}

/// Amounts times microseconds.
pub(crate) type Sums = [i128; 3];

#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The queues as the first cycle reported them.
    pub(crate) queues: Vec<QueueReport>,
    pub(crate) totals: Vec<Totals>,
    /// Allocation of the top-level queues together.
    pub(crate) held: Sums,
    pub(crate) capacity: Sums,
    current: Option<Sample>,
    series: Series,
}

/// The sums of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) held: Sums,
    pub(crate) fair_share: Sums,
    pub(crate) requested: Sums,
    pub(crate) least: [i64; 3],
    pub(crate) most: [i64; 3],
}

impl History {
    pub(crate) fn new(period: Span, samples_max: Option<usize>) -> Self {
        Self {
            queues: Vec::new(),
            totals: Vec::new(),
            held: Sums::default(),
            capacity: Sums::default(),
            current: None,
            series: Series { kept: Vec::new(), gap: Span(0), period, max: samples_max },
        }
    }

    /// The state since the last cycle.
    pub(crate) fn current(&self) -> Option<&Sample> {
        self.current.as_ref()
    }

    /// Extends the current sample to `now` in the sums.
    pub(crate) fn advance_to(&mut self, now: Timestamp) {
        let Some(sample) = &self.current else { return };
        let micros = i128::from((now - sample.at).0);
        let add = |sums: &mut Sums, amounts: &[i64; 3]| {
            for (sum, amount) in sums.iter_mut().zip(amounts) {
                *sum += i128::from(*amount) * micros;
            }
        };
        add(&mut self.capacity, &sample.total);
        for ((queue, totals), report) in sample.queues.iter().zip(&mut self.totals).zip(&self.queues) {
            add(&mut totals.held, &queue.held);
            add(&mut totals.fair_share, &queue.fair_share);
            add(&mut totals.requested, &queue.requested);
            if report.parent.is_none() {
                add(&mut self.held, &queue.held);
            }
        }
    }

    /// Takes in the queues as a cycle left them.
    pub(crate) fn record(&mut self, now: Timestamp, outcome: &Outcome) {
        let queue = |report: &QueueReport| QueueSample {
            held: report.allocated_after,
            fair_share: report.fair_share,
            requested: report.requested,
        };
        let queues: Vec<QueueSample> = outcome.queues.iter().map(queue).collect();
        if self.current.is_none() {
            self.queues.clone_from(&outcome.queues);
            let first = |q: &QueueSample| Totals { least: q.held, most: q.held, ..Totals::default() };
            self.totals = queues.iter().map(first).collect();
        }
        for (queue, totals) in queues.iter().zip(&mut self.totals) {
            for r in 0..3 {
                totals.least[r] = totals.least[r].min(queue.held[r]);
                totals.most[r] = totals.most[r].max(queue.held[r]);
            }
        }
        let sample = Sample { at: now, total: outcome.total, queues };
        if let Some(old) = self.current.replace(sample) {
            self.series.keep(old, now);
        }
    }

    /// The series, with the last sample.
    pub(crate) fn samples(self) -> Vec<Sample> {
        let mut samples = self.series.kept;
        samples.extend(self.current);
        samples.dedup_by(|later, earlier| later.total == earlier.total && later.queues == earlier.queues);
        samples
    }
}

/// Samples that differ; short-lived ones are dropped once there are too many.
#[derive(Clone, Debug)]
struct Series {
    kept: Vec<Sample>,
    /// Samples that were valid for less than this are dropped.
    gap: Span,
    period: Span,
    max: Option<usize>,
}

impl Series {
    /// Keeps a sample that was valid until `until`.
    fn keep(&mut self, sample: Sample, until: Timestamp) {
        let last = self.kept.last();
        let is_same = last.is_some_and(|last| last.total == sample.total && last.queues == sample.queues);
        if !is_same && is_significant(last, &sample, until, self.gap) {
            self.kept.push(sample);
        }
        if self.max.is_some_and(|max| self.kept.len() > max.max(2)) {
            self.thin(until);
        }
    }

    /// Doubles the gap until at most half of the samples are left.
    fn thin(&mut self, end: Timestamp) {
        let half = self.kept.len() / 2;
        while self.kept.len() > half.max(1) {
            self.gap = Span(self.gap.0.saturating_mul(2).max(self.period.0).max(1));
            let old = std::mem::take(&mut self.kept);
            let ends: Vec<Timestamp> = old.iter().skip(1).map(|s| s.at).chain([end]).collect();
            for (sample, until) in old.into_iter().zip(ends) {
                if is_significant(self.kept.last(), &sample, until, self.gap) {
                    self.kept.push(sample);
                }
            }
        }
    }
}

/// Whether a sample was valid for at least `gap`, or follows the last one by at least that.
fn is_significant(last: Option<&Sample>, sample: &Sample, until: Timestamp, gap: Span) -> bool {
    last.is_none_or(|last| sample.at - last.at >= gap || until - sample.at >= gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn outcome(held: i64) -> Outcome {
        let queue = QueueReport { allocated_after: [0, 0, held], ..QueueReport::default() };
        Outcome { queues: vec![queue], total: [0, 0, 10], ..Outcome::default() }
    }

    fn history(max: Option<usize>, held: impl IntoIterator<Item = (i64, i64)>) -> History {
        let mut history = History::new(Span::from_secs(1), max);
        for (seconds, held) in held {
            history.advance_to(at(seconds));
            history.record(at(seconds), &outcome(held));
        }
        history
    }

    #[test]
    fn sums_weight_samples_by_their_duration() {
        let history = history(None, [(0, 4), (10, 8), (15, 0)]);
        assert_eq!(history.held[2], 80_000_000);
        assert_eq!(history.capacity[2], 150_000_000);
        assert_eq!((history.totals[0].least[2], history.totals[0].most[2]), (0, 8));
    }

    #[test]
    fn equal_samples_are_kept_once() {
        let samples = history(None, [(0, 4), (1, 4), (2, 4), (3, 5), (4, 5)]).samples();
        let times: Vec<i64> = samples.iter().map(|s| s.at.0 / 1_000_000).collect();
        assert_eq!(times, [0, 3]);
    }

    #[test]
    fn long_series_are_thinned_and_keep_lasting_samples() {
        let busy = (0..1_000).map(|t| (t, t % 2));
        let samples = history(Some(100), busy.chain([(5_000, 7), (9_000, 1)])).samples();
        assert!(samples.len() <= 101, "{}", samples.len());
        assert_eq!(samples[0].at, at(0));
        assert!(samples.iter().any(|s| s.at == at(5_000)));
        assert_eq!(samples.last().map(|s| s.at), Some(at(9_000)));
    }
}
