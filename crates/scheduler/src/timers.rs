//! Deadlines at which the passing of time alone changes a decision.
//!
//! A staleness grace period, a preemption delay, a minimum or a maximum run time ends, or a terminating pod counts as
//! stuck. The deadlines are kept sorted, so that the next one is found without a scan.

use kai_engine::input::{Key, TimeLimit};
use kai_units::{Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Group(Key),
    /// A terminating pod.
    Pod(Key),
}

/// The timings of a group that have a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupTimes {
    /// Since when it runs below its minimum, and its grace period.
    pub(crate) stale: Option<(Timestamp, Span)>,
    /// Start and length of its preemption delay.
    pub(crate) delay: Option<(Timestamp, Span)>,
    /// When it last started; minimum and maximum run times count from here.
    pub(crate) last_start: Option<Timestamp>,
    /// Its own maximum run time.
    pub(crate) limit: Option<TimeLimit>,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: BTreeSet<(Timestamp, Owner)>,
    by_owner: BTreeMap<Owner, Vec<Timestamp>>,
    groups: BTreeMap<Key, GroupTimes>,
    /// All run times after which decisions change, of every queue.
    run_times: BTreeSet<Span>,
}

impl Timers {
    pub(crate) fn set_group(&mut self, key: &Key, times: GroupTimes) {
        if times == GroupTimes::default() {
            self.groups.remove(key);
        } else {
            self.groups.insert(key.clone(), times);
        }
        self.set(Owner::Group(key.clone()), self.deadlines_of(times));
    }

    /// Sets when a terminating pod counts as stuck; `None` for a pod that is not terminating.
    pub(crate) fn set_pod(&mut self, key: &Key, stuck: Option<Timestamp>) {
        self.set(Owner::Pod(key.clone()), stuck.into_iter().collect());
    }

    pub(crate) fn set_run_times(&mut self, run_times: BTreeSet<Span>) {
        if self.run_times == run_times {
            return;
        }
        self.run_times = run_times;
        for (key, times) in self.groups.clone() {
            self.set(Owner::Group(key), self.deadlines_of(times));
        }
    }

    /// Whether a minimum or a maximum run time counts from the start of a group.
    pub(crate) fn read_start_of(&self, group: &Key) -> bool {
        !self.run_times.is_empty() || self.groups.get(group).is_some_and(|times| times.limit.is_some())
    }

    /// The next deadline after `now`; drops those that have passed.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Timestamp> {
        while let Some((at, owner)) = self.deadlines.first() {
            if *at > now {
                return Some(*at);
            }
            if let Some(known) = self.by_owner.get_mut(owner) {
                known.retain(|deadline| deadline > at);
                if known.is_empty() {
                    let owner = owner.clone();
                    self.by_owner.remove(&owner);
                }
            }
            self.deadlines.pop_first();
        }
        None
    }

    fn deadlines_of(&self, times: GroupTimes) -> Vec<Timestamp> {
        let end = |(from, span): (Timestamp, Span)| from + span;
        let limit = times.limit.map(|limit| limit.deadlines());
        let of_queues =
            times.last_start.into_iter().flat_map(|at| self.run_times.iter().map(move |span| at + *span));
        let own = times.last_start.zip(limit).into_iter().flat_map(|(at, spans)| spans.map(|span| at + span));
        times.stale.map(end).into_iter().chain(times.delay.map(end)).chain(of_queues).chain(own).collect()
    }

    fn set(&mut self, owner: Owner, deadlines: Vec<Timestamp>) {
        for at in self.by_owner.remove(&owner).unwrap_or_default() {
            self.deadlines.remove(&(at, owner.clone()));
        }
        if deadlines.is_empty() {
            return;
        }
        for at in &deadlines {
            self.deadlines.insert((*at, owner.clone()));
        }
        self.by_owner.insert(owner, deadlines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    #[test]
    fn next_deadline_is_the_earliest_that_has_not_passed() {
        let mut timers = Timers::default();
        let group = Key::new("a", "g");
        timers.set_run_times(BTreeSet::from([Span::from_secs(30)]));
        timers.set_group(
            &group,
            GroupTimes {
                stale: Some((at(100), Span::from_secs(60))),
                last_start: Some(at(100)),
                ..GroupTimes::default()
            },
        );
        timers.set_pod(&Key::new("a", "p"), Some(at(140)));
        assert_eq!(timers.next(at(100)), Some(at(130)));
        assert_eq!(timers.next(at(130)), Some(at(140)));
        timers.set_pod(&Key::new("a", "p"), None);
        assert_eq!(timers.next(at(130)), Some(at(160)));
        timers.set_group(&group, GroupTimes::default());
        assert_eq!(timers.next(at(130)), None);
    }
}
