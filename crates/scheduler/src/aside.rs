//! Groups for which decisions could not be carried out: they are left out for a while, the longer the more often.
//!
//! Without that, a group whose pods can never be bound would be placed again and again, and hold room that its
//! neighbours could use.

use kai_engine::input::Key;
use kai_engine::verdict::Verdict;
use kai_units::{Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How long a group is left out after a first failure, and at most.
const FIRST: Span = Span::from_secs(2);
const LONGEST: Span = Span::from_secs(300);
/// A group that has not failed for this long starts over.
const FORGIVEN: Span = Span::from_secs(600);

/// A failure.
#[derive(Clone, Debug)]
struct Failing {
    why: String,
    failures: u32,
    last: Timestamp,
    until: Timestamp,
}

/// All groups that failed.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    groups: BTreeMap<Key, Failing>,
}

impl Aside {
    /// Leaves a group out, because this failed.
    pub(crate) fn put(&mut self, group: &Key, why: String, now: Timestamp) {
        let known = self.groups.get(group).filter(|known| (now - known.last).0 < FORGIVEN.0);
        // Pods of one gang fail together, and that is one failure.
        let failures = known.map_or(1, |known| known.failures + u32::from(known.until <= now));
        let wait = FIRST.0.saturating_mul(1 << failures.min(16).saturating_sub(1)).min(LONGEST.0);
        let until = now + Span(wait);
        self.groups.insert(group.clone(), Failing { why, failures, last: now, until });
    }

    /// The group is gone, or its pods run.
    pub(crate) fn forget(&mut self, group: &Key) {
        self.groups.remove(group);
    }

    /// The groups that are left out now.
    pub(crate) fn now(&self, now: Timestamp) -> BTreeSet<Key> {
        self.groups.iter().filter(|(_, failing)| failing.until > now).map(|(key, _)| key.clone()).collect()
    }

    /// When the next one comes back.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.groups.values().map(|failing| failing.until).filter(|until| *until > now).min()
    }

    /// Why a group is left out.
    pub(crate) fn verdict(&self, group: &Key, now: Timestamp) -> Option<Verdict> {
        let failing = self.groups.get(group).filter(|failing| failing.until > now)?;
        Some(Verdict::InBackoff {
            why: failing.why.clone(),
            failures: failing.failures,
            until: failing.until.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_fails_again_waits_longer() {
        let group = Key::new("a", "g");
        let mut aside = Aside::default();
        let mut now = Timestamp(0);
        let mut waits = Vec::new();
        for _ in 0..10 {
            aside.put(&group, "no".to_owned(), now);
            aside.put(&group, "a pod of the same gang".to_owned(), now);
            let until = aside.next(now).expect("it is left out");
            waits.push((until - now).0 / 1_000_000);
            now = until;
            assert!(aside.now(now).is_empty());
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        aside.put(&group, "much later".to_owned(), now + Span::from_secs(3_600));
        assert_eq!(aside.next(now + Span::from_secs(3_600)), Some(now + Span::from_secs(3_602)));
    }
}
