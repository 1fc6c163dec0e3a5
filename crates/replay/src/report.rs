//! What became of a simulation.

use crate::history::Sample;
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use kai_units::{Span, Timestamp};

/// What became of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// From one cycle to the next.
    pub period: Span,
    /// Cycles that passed, those included that could not change anything.
    pub cycles: u64,
    /// Cycles that were planned.
    pub planned: u64,
    /// Nothing was left that could happen.
    pub settled: bool,
    /// What the cluster had on average: cpu, memory, gpu.
    pub capacity: [f64; 3],
    /// What the queues held of it on average.
    pub held: [f64; 3],
    /// The queues, in the order of the samples.
    pub queues: Vec<QueueResult>,
    /// The queues over time.
    pub samples: Vec<Sample>,
    /// Groups that had pods, by name.
    pub groups: Vec<GroupResult>,
    /// Waiting times of all groups.
    pub waits: Waits,
    /// Evictions in the order in which they were decided.
    pub evictions: Vec<Eviction>,
    /// Groups that the last cycle left pending, with its reasons, by name.
    pub pending: Vec<GroupVerdict>,
    /// Hash of the outcomes of all cycles.
    pub hash: u64,
}

/// What became of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueResult {
    /// Its name.
    pub name: String,
    /// Its parent.
    pub parent: Option<String>,
    /// Guaranteed; `None` is unlimited.
    pub quota: [Option<i64>; 3],
    /// Ceiling; `None` is unlimited.
    pub limit: [Option<i64>; 3],
    /// What it held on average.
    pub held: [f64; 3],
    /// The least that it held.
    pub held_least: [i64; 3],
    /// The most that it held.
    pub held_most: [i64; 3],
    /// What it could count on, on average.
    pub fair_share: [f64; 3],
    /// What it held and wanted, on average.
    pub requested: [f64; 3],
    /// Pods of its groups, and of those below it, that were evicted.
    pub evictions: usize,
    /// Waiting times of its groups and of those below it.
    pub waits: Waits,
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResult {
    /// Namespace and name.
    pub group: Key,
    /// Its queue.
    pub queue: String,
    /// When it was submitted; the beginning for groups that were there.
    pub submitted: Timestamp,
    /// All pods that it cannot do without ran when the simulation began.
    pub ran_before: bool,
    /// When all pods that it cannot do without ran for the first time in the simulation.
    pub started: Option<Timestamp>,
    /// When all its pods had done their work or were gone for good.
    pub finished: Option<Timestamp>,
    /// How long it waited after evictions had taken it below its minimum.
    pub waited_again: Span,
    /// It lacks pods that it cannot do without.
    pub waits: bool,
    /// Pods of it that were evicted.
    pub evictions: usize,
    /// Its pods.
    pub pods: usize,
}

impl GroupResult {
    /// How long it waited for its first start.
    pub fn waited(&self) -> Option<Span> {
        self.started.filter(|_| !self.ran_before).map(|started| started - self.submitted)
    }
}

/// An eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// When it was decided.
    pub at: Timestamp,
    /// The pod.
    pub pod: Key,
    /// Its group.
    pub group: Option<Key>,
    /// The queue of the group.
    pub queue: Option<String>,
    /// For whom.
    pub preemptor: Option<Key>,
    /// The deciding action.
    pub action: &'static str,
}

/// Waiting times, from submission until all pods ran that a group cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Groups that started.
    pub started: usize,
    /// Groups that wait for their first start.
    pub waiting: usize,
    /// The mean.
    pub mean: Span,
    /// Half of the groups waited no longer.
    pub p50: Span,
    /// Nine in ten groups waited no longer.
    pub p90: Span,
    /// The longest.
    pub max: Span,
}

impl Waits {
    /// The waiting times of groups. Those that ran before the simulation began have none.
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
        // The smallest that at least so many hundredths of all do not exceed.
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
    fn waiting_times_are_of_groups_that_started() {
        let groups: Vec<GroupResult> = (1..=10).map(|w| group(Some(w * 10))).chain([group(None)]).collect();
        let waits = Waits::of(groups.iter());
        let expected =
            Waits { started: 10, waiting: 1, mean: Span(55), p50: Span(50), p90: Span(90), max: Span(100) };
        assert_eq!(waits, expected);
    }

    #[test]
    fn no_groups_wait_no_time() {
        let before = GroupResult { ran_before: true, ..group(Some(5)) };
        assert_eq!(Waits::of([before].iter()), Waits::default());
    }
}
