//! The results of a simulation.

use crate::history::Sample;
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use kai_units::{Span, Timestamp};

#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub start: Timestamp,
    pub end: Timestamp,
    pub period: Span,
    /// All cycles, including those that could not change anything and were skipped.
    pub cycles: u64,
    /// Cycles that were planned.
    pub planned: u64,
    /// No event was left that could change anything.
    pub settled: bool,
    /// Mean capacity of the cluster: cpu, memory, gpu.
    pub capacity: [f64; 3],
    /// Mean allocation.
    pub held: [f64; 3],
    /// The queues, in the order of the samples.
    pub queues: Vec<QueueResult>,
    pub samples: Vec<Sample>,
    /// Groups that had pods, by name.
    pub groups: Vec<GroupResult>,
    pub waits: Waits,
    /// Evictions in the order in which they were decided.
    pub evictions: Vec<Eviction>,
    /// Verdicts of the groups that are pending after the last cycle, by name.
    pub pending: Vec<GroupVerdict>,
    /// Hash of the outcomes of all cycles.
    pub hash: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueResult {
    pub name: String,
    pub parent: Option<String>,
    /// `None` is unlimited.
    pub quota: [Option<i64>; 3],
    /// `None` is unlimited.
    pub limit: [Option<i64>; 3],
    /// Mean allocation.
    pub held: [f64; 3],
    /// Minimum allocation.
    pub held_least: [i64; 3],
    /// Maximum allocation.
    pub held_most: [i64; 3],
    /// Mean fair share.
    pub fair_share: [f64; 3],
    /// Mean of allocated and pending requests.
    pub requested: [f64; 3],
    /// Evicted pods of its groups and of those of its descendants.
    pub evictions: usize,
    /// Waiting times of its groups and of those of its descendants.
    pub waits: Waits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResult {
    pub group: Key,
    pub queue: String,
    /// The start for groups that existed then.
    pub submitted: Timestamp,
    /// Its minimum was running when the simulation started.
    pub ran_before: bool,
    /// When its minimum was running for the first time.
    pub started: Option<Timestamp>,
    /// When all its pods were completed or deleted.
    pub finished: Option<Timestamp>,
    /// Time below its minimum after evictions.
    pub waited_again: Span,
    /// It is below its minimum.
    pub waits: bool,
    /// Evicted pods.
    pub evictions: usize,
    pub pods: usize,
}

impl GroupResult {
    /// Time from submission to its first start.
    pub fn waited(&self) -> Option<Span> {
        self.started.filter(|_| !self.ran_before).map(|started| started - self.submitted)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub at: Timestamp,
    pub pod: Key,
    pub group: Option<Key>,
    pub queue: Option<String>,
    /// The group that the pod was evicted for.
    pub preemptor: Option<Key>,
    pub action: &'static str,
}

/// Waiting times from submission until the minimum of a group is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Groups that started.
    pub started: usize,
    /// Groups without a first start.
    pub waiting: usize,
    pub mean: Span,
    pub p50: Span,
    pub p90: Span,
    pub max: Span,
}

impl Waits {
    /// Groups that were running when the simulation started are not counted.
    pub(crate) fn of<'a>(groups: impl Iterator<Item = &'a GroupResult>) -> Self {
        let mut spans: Vec<Span> = Vec::new();
        let mut waiting = 0;
        for group in groups.filter(|group| !group.ran_before) {
            match group.waited() {
                Some(span) => spans.push(span),
                None if group.waits => waiting += 1,
                None => {}
            }
        }
        spans.sort_unstable();
        // Nearest-rank percentile.
        let rank = |hundredths: usize| {
            let at = (spans.len() * hundredths).div_ceil(100).max(1) - 1;
            spans.get(at).copied().unwrap_or_default()
        };
        let sum: i128 = spans.iter().map(|span| i128::from(span.0)).sum();
        Self {
            started: spans.len(),
            waiting,
            mean: Span((sum / (spans.len().max(1) as i128)) as i64),
            p50: rank(50),
            p90: rank(90),
            max: spans.last().copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(waited: Option<i64>) -> GroupResult {
        GroupResult {
            group: Key::new("ns", "g"),
            queue: "q".to_owned(),
            submitted: Timestamp(100),
            ran_before: false,
            started: waited.map(|waited| Timestamp(100 + waited)),
            finished: None,
            waited_again: Span(0),
            waits: waited.is_none(),
            evictions: 0,
            pods: 1,
        }
    }

    #[test]
    fn percentiles_are_of_groups_that_started() {
        let groups: Vec<GroupResult> = (1..=10).map(|w| group(Some(w * 10))).chain([group(None)]).collect();
        let waits = Waits::of(groups.iter());
        let expected =
            Waits { started: 10, waiting: 1, mean: Span(55), p50: Span(50), p90: Span(90), max: Span(100) };
        assert_eq!(waits, expected);
    }

    #[test]
    fn groups_that_ran_before_have_no_waiting_time() {
        let before = GroupResult { ran_before: true, ..group(Some(5)) };
        assert_eq!(Waits::of([before].iter()), Waits::default());
    }
}
