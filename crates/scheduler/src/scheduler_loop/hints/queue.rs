//! The order in which hints of pending groups are searched.
//!
//! Groups without a search come first, those that are pending longest before others; then those whose search is the oldest.
//! Both are sorted, so that the next one is found without looking at every pending group.

use super::PENDING_MIN;
use kai_engine::input::Key;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Pending since then, and not searched.
    New(Instant),
    /// Searched after so many cycles.
    Searched(u64),
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    places: BTreeMap<Key, Place>,
    new: BTreeSet<(Instant, Key)>,
    searched: BTreeSet<(u64, Key)>,
}

impl Queue {
    /// Replaces the groups that may get a hint, given with the time since when each is pending. The places of those that
    /// remain are kept.
    pub(super) fn set(&mut self, groups: &BTreeMap<&Key, Instant>) {
        let gone: Vec<Key> = self.places.keys().filter(|key| !groups.contains_key(key)).cloned().collect();
        for key in gone {
            self.remove(&key);
        }
        for (key, since) in groups {
            if !self.places.contains_key(*key) {
                self.insert((*key).clone(), Place::New(*since));
            }
        }
    }

    pub(super) fn remove(&mut self, group: &Key) {
        match self.places.remove(group) {
            Some(Place::New(since)) => {
                self.new.remove(&(since, group.clone()));
            }
            Some(Place::Searched(cycle)) => {
                self.searched.remove(&(cycle, group.clone()));
            }
            None => {}
        }
    }

    /// Records that a hint of a group was searched after so many cycles.
    pub(super) fn searched(&mut self, group: &Key, cycle: u64) {
        if self.places.contains_key(group) {
            self.remove(group);
            self.insert(group.clone(), Place::Searched(cycle));
        }
    }

    /// Since when a search is due, or from when on, after so many cycles: a verdict changes in a cycle only.
    pub(super) fn next(&self, cycles: u64) -> Option<Due> {
        if self.searched.first().is_some_and(|(cycle, _)| *cycle < cycles) {
            return Some(Due::AtOnce);
        }
        self.new.first().map(|(since, _)| Due::At(*since + PENDING_MIN))
    }

    /// The groups to search now, at most so many.
    pub(super) fn due(&self, now: Instant, cycles: u64, count_max: usize) -> Vec<Key> {
        let new = self.new.iter().take_while(|(since, _)| *since + PENDING_MIN <= now).map(|(_, key)| key);
        let again = self.searched.iter().take_while(|(cycle, _)| *cycle < cycles).map(|(_, key)| key);
        new.chain(again).take(count_max).cloned().collect()
    }

    fn insert(&mut self, group: Key, place: Place) {
        self.places.insert(group.clone(), place);
        match place {
            Place::New(since) => self.new.insert((since, group)),
            Place::Searched(cycle) => self.searched.insert((cycle, group)),
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    AtOnce,
    At(Instant),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn new_groups_come_first_then_those_with_the_oldest_search() {
        let start = Instant::now();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Key::new("ns", name));
        let later = start + Duration::from_secs(1);
        let all = BTreeMap::from([(&a, later), (&b, start), (&c, start), (&d, start)]);
        let mut queue = Queue::default();
        assert_eq!(queue.next(1), None);
        queue.set(&all);
        assert_eq!(queue.next(1), Some(Due::At(start + PENDING_MIN)));
        assert_eq!(queue.due(start + PENDING_MIN, 1, 20), [b.clone(), c.clone(), d.clone()]);
        assert_eq!(queue.due(later + PENDING_MIN, 1, 2), [b.clone(), c.clone()]);
        queue.searched(&c, 1);
        queue.searched(&b, 2);
        queue.set(&all);
        assert_eq!(queue.next(1), Some(Due::At(start + PENDING_MIN)), "no cycle has run since");
        assert_eq!(queue.next(2), Some(Due::AtOnce));
        assert_eq!(queue.due(later + PENDING_MIN, 3, 20), [d, a.clone(), c, b.clone()]);
        queue.set(&BTreeMap::from([(&b, start)]));
        assert_eq!((queue.due(later, 2, 20), queue.due(later, 3, 20)), (vec![], vec![b.clone()]));
        queue.remove(&b);
        queue.searched(&b, 3);
        assert_eq!((queue.next(9), queue.places.len()), (None, 0));
    }
}
