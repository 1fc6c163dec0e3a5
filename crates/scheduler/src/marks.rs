//! Times that groups carry as annotations: when they started, lost a pod, fell below their minimum.
//!
//! A mark counts from the moment it is made. Until the server shows it, it is laid over whatever the watch brings, so
//! that an older state of the group cannot set a clock back.

use crate::inbox::MarkFailure;
use crate::resources::{POD_GROUP, api_key};
use kai_api::PodGroup;
use kai_api::well_known::annotation;
use kai_engine::input::Key;
use kai_runtime::writer::{Done, Retry, Write, WritePriority};
use kai_units::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    Started,
    Evicted,
    StaleSince,
}

impl Mark {
    fn annotation(self) -> &'static str {
        match self {
            Self::Started => annotation::LAST_START,
            Self::Evicted => annotation::LAST_EVICTION,
            Self::StaleSince => annotation::STALE_SINCE,
        }
    }
}

/// The marks of one group that the server does not show yet; no value takes the mark away.
#[derive(Clone, Debug, Default)]
struct Outstanding {
    values: BTreeMap<Mark, Option<String>>,
    /// Counts changes, so that an answer tells which of them it is about.
    changes: u64,
}

/// All marks that the server does not show yet.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    groups: BTreeMap<Key, Outstanding>,
}

impl Marks {
    /// Makes a mark; it is to be written with [`Marks::write`].
    pub(crate) fn set(&mut self, group: &Key, mark: Mark, at: Option<Timestamp>) {
        let outstanding = self.groups.entry(group.clone()).or_default();
        outstanding.values.insert(mark, at.map(whole_seconds));
        outstanding.changes += 1;
    }

    /// Lays the marks over a group as the server has it; says whether that changed anything.
    pub(crate) fn lay_over(&self, key: &Key, group: &mut PodGroup) -> bool {
        let Some(outstanding) = self.groups.get(key) else { return false };
        let annotations = group.metadata.annotations.get_or_insert_default();
        let mut changed = false;
        for (mark, value) in &outstanding.values {
            let name = mark.annotation();
            changed |= annotations.get(name) != value.as_ref();
            match value {
                Some(value) => annotations.insert(name.to_owned(), value.clone()),
                None => annotations.remove(name),
            };
        }
        changed
    }

    /// The write of all outstanding marks of a group.
    pub(crate) fn write(&self, group: &Key, done: impl FnOnce(u64) -> Done) -> Option<Write> {
        let outstanding = self.groups.get(group)?;
        let key = api_key(group);
        let annotations: Map<String, Value> = outstanding
            .values
            .iter()
            .map(|(mark, value)| (mark.annotation().to_owned(), json!(value)))
            .collect();
        Some(Write {
            priority: WritePriority::Status,
            path: POD_GROUP.path_of(&key),
            object: (POD_GROUP, key),
            slot: Some("marks"),
            method: "PATCH",
            content_type: "application/merge-patch+json",
            body: json!({"metadata": {"annotations": annotations}}),
            retry: Retry::UntilAnswered,
            done: Some(done(outstanding.changes)),
        })
    }

    /// The server wrote the marks that there were after so many changes, or refused to.
    pub(crate) fn written(&mut self, group: &Key, changes: u64, outcome: Result<(), MarkFailure>) {
        let over = self.groups.get(group).is_some_and(|outstanding| outstanding.changes == changes);
        match outcome {
            Err(MarkFailure::Gone) => {
                self.groups.remove(group);
            }
            Ok(()) | Err(MarkFailure::Refused) if over => {
                self.groups.remove(group);
            }
            Ok(()) | Err(MarkFailure::Refused) => {}
        }
    }

    /// The group is gone.
    pub(crate) fn forget(&mut self, group: &Key) {
        self.groups.remove(group);
    }
}

/// A time as annotations carry it.
fn whole_seconds(at: Timestamp) -> String {
    let second = 1_000_000;
    Timestamp(at.0.div_euclid(second) * second).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_before_the_server_shows_it() {
        let key = Key::new("a", "g");
        let mut marks = Marks::default();
        marks.set(&key, Mark::Started, Some(Timestamp(1_700_000_000_500_000)));
        marks.set(&key, Mark::StaleSince, None);
        let mut group = PodGroup::default();
        assert!(marks.lay_over(&key, &mut group));
        let annotations = group.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(annotations[annotation::LAST_START], "2023-11-14T22:13:20Z");
        let write = marks.write(&key, |_| Box::new(|_| ())).expect("a write");
        assert_eq!(
            write.body,
            json!({"metadata": {"annotations": {
                annotation::LAST_START: "2023-11-14T22:13:20Z", annotation::STALE_SINCE: null,
            }}})
        );
        marks.set(&key, Mark::Evicted, Some(Timestamp(0)));
        marks.written(&key, 2, Ok(()));
        assert!(marks.lay_over(&key, &mut PodGroup::default()), "something newer is still to be written");
        marks.written(&key, 3, Ok(()));
        assert!(!marks.lay_over(&key, &mut PodGroup::default()));
    }
}
