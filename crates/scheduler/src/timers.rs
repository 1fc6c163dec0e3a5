//! When the mere passing of time next changes what is allowed.
//!
//! A gang's grace below its minimum ends, a delay before evictions ends, a protection of what has just started ends, a
//! pod is stuck in leaving. Each object's instants are kept by time, so that the next one is known without looking at
//! the others.

use kai_engine::input::Key;
use kai_units::{Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// What an instant belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A group.
    Group(Key),
    /// A pod that leaves.
    Pod(Key),
}

/// What of a group ends with time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupTimes {
    /// Since when it runs below its minimum, and how long it may.
    pub(crate) stale: Option<(Timestamp, Span)>,
    /// From when it waits before it may cause evictions, and how long.
    pub(crate) delay: Option<(Timestamp, Span)>,
    /// When it last started to run.
    pub(crate) start: Option<Timestamp>,
}

/// All instants.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    instants: BTreeSet<(Timestamp, Owner)>,
    of: BTreeMap<Owner, Vec<Timestamp>>,
    groups: BTreeMap<Key, GroupTimes>,
    /// How long something that started may be protected.
    protections: BTreeSet<Span>,
}

impl Timers {
    /// Sets what of a group ends with time.
    pub(crate) fn set_group(&mut self, key: &Key, times: GroupTimes) {
        if times == GroupTimes::default() {
            self.groups.remove(key);
        } else {
            self.groups.insert(key.clone(), times);
        }
        self.set(Owner::Group(key.clone()), self.instants_of(times));
    }

    /// Sets when a leaving pod counts as stuck; nothing when it does not leave.
    pub(crate) fn set_pod(&mut self, key: &Key, stuck: Option<Timestamp>) {
        self.set(Owner::Pod(key.clone()), stuck.into_iter().collect());
    }

    /// Sets how long something that started may be protected.
    pub(crate) fn set_protections(&mut self, protections: BTreeSet<Span>) {
        if self.protections == protections {
            return;
        }
        self.protections = protections;
        for (key, times) in self.groups.clone() {
            self.set(Owner::Group(key), self.instants_of(times));
        }
    }

    /// The next instant after `now`. What is over is forgotten.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Timestamp> {
        while let Some((at, owner)) = self.instants.first() {
            if *at > now {
                return Some(*at);
            }
            if let Some(known) = self.of.get_mut(owner) {
                known.retain(|instant| instant > at);
                if known.is_empty() {
                    let owner = owner.clone();
                    self.of.remove(&owner);
                }
            }
            self.instants.pop_first();
        }
        None
    }

    fn instants_of(&self, times: GroupTimes) -> Vec<Timestamp> {
        let end = |(from, span): (Timestamp, Span)| from + span;
        let protected =
            times.start.into_iter().flat_map(|at| self.protections.iter().map(move |span| at + *span));
        times.stale.map(end).into_iter().chain(times.delay.map(end)).chain(protected).collect()
    }

    fn set(&mut self, owner: Owner, instants: Vec<Timestamp>) {
        for at in self.of.remove(&owner).unwrap_or_default() {
            self.instants.remove(&(at, owner.clone()));
        }
        if instants.is_empty() {
            return;
        }
        for at in &instants {
            self.instants.insert((*at, owner.clone()));
        }
        self.of.insert(owner, instants);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    #[test]
    fn the_next_instant_is_the_earliest_that_is_not_over() {
        let mut timers = Timers::default();
        let group = Key::new("a", "g");
        timers.set_protections(BTreeSet::from([Span::from_secs(30)]));
        timers.set_group(
            &group,
            GroupTimes {
                stale: Some((at(100), Span::from_secs(60))),
                start: Some(at(100)),
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
