//! Timestamps that the scheduler writes to groups as annotations and that the API server has not confirmed.
//!
//! A timestamp counts from the moment it is decided. Until the patch is answered it is laid over every state of the group
//! that the watch delivers, so an older state cannot reset it.

use crate::event_queue::AnnotationError;
use crate::resources::POD_GROUP;
use kai_api::PodGroup;
use kai_api::well_known::annotation;
use kai_engine::input::Key;
use kai_runtime::writer::{Done, Retry, Write, WritePriority};
use kai_units::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupTimestamp {
    LastStart,
    LastEviction,
    StaleSince,
    LimitWarned,
    Ended,
}

impl GroupTimestamp {
    fn annotation(self) -> &'static str {
        match self {
            Self::LastStart => annotation::LAST_START,
            Self::LastEviction => annotation::LAST_EVICTION,
            Self::StaleSince => annotation::STALE_SINCE,
            Self::LimitWarned => annotation::MAX_RUNTIME_WARNING,
            Self::Ended => annotation::MAX_RUNTIME_ENDED,
        }
    }
}

/// The unconfirmed annotations of one group; `None` removes an annotation.
#[derive(Clone, Debug, Default)]
struct Unconfirmed {
    values: BTreeMap<GroupTimestamp, Option<String>>,
    /// Counts the changes, so that a response can be matched with the values it confirms.
    generation: u64,
    /// Whether no rule reads its start, which its pods carry: it is written together with another timestamp, or once a rule
    /// reads it.
    is_deferred: bool,
}

#[derive(Debug, Default)]
pub(crate) struct PendingAnnotations {
    groups: BTreeMap<Key, Unconfirmed>,
}

impl PendingAnnotations {
    /// Sets or removes a timestamp; [`PendingAnnotations::patch`] writes it.
    pub(crate) fn set(&mut self, group: &Key, timestamp: GroupTimestamp, at: Option<Timestamp>) {
        let unconfirmed = self.groups.entry(group.clone()).or_default();
        unconfirmed.values.insert(timestamp, at.map(whole_seconds));
        unconfirmed.generation += 1;
    }

    /// Lays the unconfirmed annotations over a group as the server has it; returns whether that changed the group.
    pub(crate) fn overlay(&self, key: &Key, group: &mut PodGroup) -> bool {
        let Some(unconfirmed) = self.groups.get(key) else { return false };
        let annotations = group.metadata.annotations.get_or_insert_default();
        let mut changed = false;
        for (timestamp, value) in &unconfirmed.values {
            let name = timestamp.annotation();
            changed |= annotations.get(name) != value.as_ref();
            match value {
                Some(value) => annotations.insert(name.to_owned(), value.clone()),
                None => annotations.remove(name),
            };
        }
        changed
    }

    /// Leaves the start of a group unwritten until [`PendingAnnotations::patch`] is called for it.
    pub(crate) fn defer(&mut self, group: &Key) {
        if let Some(unconfirmed) = self.groups.get_mut(group) {
            unconfirmed.is_deferred = true;
        }
    }

    pub(crate) fn deferred(&self) -> impl Iterator<Item = &Key> {
        self.groups.iter().filter(|(_, unconfirmed)| unconfirmed.is_deferred).map(|(group, _)| group)
    }

    /// The start of a group that is deferred, as pods carry it.
    pub(crate) fn deferred_start(&self, group: &Key) -> Option<&str> {
        let unconfirmed = self.groups.get(group).filter(|unconfirmed| unconfirmed.is_deferred)?;
        unconfirmed.values.get(&GroupTimestamp::LastStart)?.as_deref()
    }

    /// What the pod of an implicit group is to carry. It stays unconfirmed, since no object of the group ever has it.
    pub(crate) fn of_pod(&mut self, group: &Key) -> Map<String, Value> {
        let Some(unconfirmed) = self.groups.get_mut(group) else { return Map::new() };
        unconfirmed.is_deferred = true;
        let is_kept = |timestamp: &GroupTimestamp| match timestamp {
            GroupTimestamp::LastStart | GroupTimestamp::LimitWarned | GroupTimestamp::Ended => true,
            // The group goes with its evicted pod, and one pod cannot run below its minimum.
            GroupTimestamp::LastEviction | GroupTimestamp::StaleSince => false,
        };
        let kept =
            unconfirmed.values.iter().filter(|(timestamp, value)| is_kept(timestamp) && value.is_some());
        kept.map(|(timestamp, value)| (timestamp.annotation().to_owned(), json!(value))).collect()
    }

    /// A patch with all unconfirmed annotations of a group; `done` gets the generation that it writes.
    pub(crate) fn patch(&mut self, group: &Key, done: impl FnOnce(u64) -> Done) -> Option<Write> {
        let unconfirmed = self.groups.get_mut(group)?;
        unconfirmed.is_deferred = false;
        let key = group.clone();
        let annotations: Map<String, Value> = unconfirmed
            .values
            .iter()
            .map(|(timestamp, value)| (timestamp.annotation().to_owned(), json!(value)))
            .collect();
        Some(Write {
            priority: WritePriority::Status,
            path: POD_GROUP.path_of(&key),
            object: (POD_GROUP.clone(), key),
            slot: Some("timestamps"),
            method: "PATCH",
            content_type: "application/merge-patch+json",
            body: json!({"metadata": {"annotations": annotations}}),
            retry: Retry::UntilAnswered,
            done: Some(done(unconfirmed.generation)),
        })
    }

    /// Handles the response to a patch that wrote a generation. A rejected patch is not repeated: the values are
    /// dropped, and the state of the server counts again.
    pub(crate) fn confirm(&mut self, group: &Key, generation: u64, outcome: Result<(), AnnotationError>) {
        let is_latest = self.groups.get(group).is_some_and(|known| known.generation == generation);
        match outcome {
            Err(AnnotationError::NotFound) => {
                self.groups.remove(group);
            }
            Ok(()) | Err(AnnotationError::Rejected) if is_latest => {
                self.groups.remove(group);
            }
            Ok(()) | Err(AnnotationError::Rejected) => {}
        }
    }

    pub(crate) fn forget(&mut self, group: &Key) {
        self.groups.remove(group);
    }
}

/// KAI writes these annotations with a resolution of one second.
fn whole_seconds(at: Timestamp) -> String {
    let second = 1_000_000;
    Timestamp(at.0.div_euclid(second) * second).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_counts_until_its_latest_patch_is_confirmed() {
        let key = Key::new("a", "g");
        let mut annotations = PendingAnnotations::default();
        annotations.set(&key, GroupTimestamp::LastStart, Some(Timestamp(1_700_000_000_500_000)));
        annotations.set(&key, GroupTimestamp::StaleSince, None);
        let mut group = PodGroup::default();
        assert!(annotations.overlay(&key, &mut group));
        let overlaid = group.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(overlaid[annotation::LAST_START], "2023-11-14T22:13:20Z");
        let write = annotations.patch(&key, |_| Box::new(|_| ())).expect("a patch");
        assert_eq!(
            write.body,
            json!({"metadata": {"annotations": {
                annotation::LAST_START: "2023-11-14T22:13:20Z", annotation::STALE_SINCE: null,
            }}})
        );
        annotations.set(&key, GroupTimestamp::LastEviction, Some(Timestamp(0)));
        annotations.confirm(&key, 2, Ok(()));
        assert!(annotations.overlay(&key, &mut PodGroup::default()), "a newer value is not confirmed");
        annotations.confirm(&key, 3, Ok(()));
        assert!(!annotations.overlay(&key, &mut PodGroup::default()));
    }
}
