//! Groups without an object: what is reported and recorded on a group goes to its pod.
//!
//! The store forms such a group from its pod ([`kai_cache::Store::is_implicit`]). Its start is carried by the pod's Binding, and
//! what else is recorded on it by annotations of the pod, so that nothing is lost by a restart.

use super::SchedulerLoop;
use crate::pending_annotations::GroupTimestamp;
use crate::resources::POD_GROUP;
use kai_api::well_known::{annotation, label_value};
use kai_cache::Kind;
use kai_engine::input::Key;
use kai_runtime::event::Regarding;
use kai_runtime::kind::POD;
use kai_runtime::writer::{Retry, Write, WritePriority};
use kai_units::Timestamp;
use serde_json::{Value, json};

impl SchedulerLoop {
    pub(super) fn is_implicit(&self, group: &Key) -> bool {
        self.cache.store().is_implicit(group)
    }

    /// Updates what is kept beside implicit groups that have appeared, changed or gone.
    pub(super) fn follow_implicit_groups(&mut self) {
        for group in self.cache.store_mut().take_changed_implicit() {
            if self.is_implicit(&group) {
                self.recover_start_of_implicit(&group);
                self.apply_annotations(&group);
                let object = self.cache.store().objects().pod_groups.get(&group).cloned();
                if let Some(object) = object {
                    self.set_group_timers(&group, &object);
                }
            } else if !self.cache.store().objects().pod_groups.contains_key(&group) {
                self.forget(Kind::PodGroup, &group);
            }
        }
    }

    /// Reads the start of a group from its pod, where no later one is known. Who may write a pod can change its annotation: a
    /// start in the future, which would protect the group until then, does not count.
    fn recover_start_of_implicit(&mut self, group: &Key) {
        if self.annotations.deferred_start(group).is_some() {
            return;
        }
        let store = self.cache.store();
        let pod = store.pod_of_implicit(group).and_then(|pod| store.objects().pods.get(pod));
        let start = pod.and_then(|pod| pod.metadata.annotation(annotation::LAST_START)?.parse().ok());
        if let Some(start) = start.filter(|start: &Timestamp| *start <= self.now()) {
            self.annotations.set(group, GroupTimestamp::LastStart, Some(start));
            self.annotations.defer(group);
        }
    }

    /// The object that events of a group are recorded on; none where the group is not known.
    pub(super) fn regarding(&self, group: &Key) -> Option<Regarding> {
        let store = self.cache.store();
        let uid = store.objects().pod_groups.get(group)?.metadata.uid.clone().unwrap_or_default();
        Some(match store.pod_of_implicit(group) {
            Some(pod) => Regarding { kind: POD, key: pod.clone(), uid },
            None => Regarding { kind: POD_GROUP.clone(), key: group.clone(), uid },
        })
    }

    /// Writes what is recorded on an implicit group to its pod; returns whether the group is one.
    pub(super) fn write_record_of_implicit(&mut self, group: &Key) -> bool {
        let store = self.cache.store();
        let Some(key) = store.pod_of_implicit(group).cloned() else { return false };
        let Some(pod) = store.objects().pods.get(&key) else { return true };
        let uid = pod.metadata.uid.to_string();
        let mut annotations = self.annotations.of_pod(group);
        if annotations.is_empty() {
            return true;
        }
        annotations.insert(annotation::IMPLICIT_GROUP.to_owned(), Value::from(label_value::TRUE));
        self.writer.submit(Write {
            priority: WritePriority::Status,
            path: POD.path_of(&key),
            object: (POD, key),
            slot: Some("record"),
            method: "PATCH",
            content_type: "application/merge-patch+json",
            body: json!({"metadata": {"uid": uid, "annotations": annotations}}),
            retry: Retry::UntilAnswered,
            done: None,
        });
        true
    }
}
