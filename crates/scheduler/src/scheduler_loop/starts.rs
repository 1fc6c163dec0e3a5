//! Starts of groups, from which minimum and maximum run times count.
//!
//! KAI records each as an annotation of the group, which costs a write. Where the pods of the group are bound by this process
//! and no run time is configured that counts from the start, their Bindings carry it instead: it counts at once, survives a
//! restart on the pods, and becomes an annotation of the group as soon as a rule reads it.

use super::SchedulerLoop;
use crate::pending_annotations::GroupTimestamp;
use kai_api::PodGroup;
use kai_api::well_known::annotation;
use kai_cache::translate::{group as groups, pod as pods};
use kai_engine::input::Key;
use kai_units::Timestamp;
use std::collections::BTreeMap;

impl SchedulerLoop {
    /// Records that a group starts now; returns whether an annotation of the group is due.
    pub(super) fn record_start(&mut self, group: &Key, now: Timestamp) -> bool {
        self.annotations.set(group, GroupTimestamp::LastStart, Some(now));
        if self.timers.read_start_of(group) && !self.is_implicit(group) {
            return true;
        }
        self.annotations.defer(group);
        self.apply_annotations(group);
        false
    }

    /// Writes the start of a group that was deferred, if a rule reads it by now.
    pub(super) fn write_start_if_read(&mut self, group: &Key) {
        if self.annotations.deferred_start(group).is_some() && self.timers.read_start_of(group) {
            self.write_annotations(group);
        }
    }

    /// As [`SchedulerLoop::write_start_if_read`], of all groups.
    pub(super) fn write_starts_that_are_read(&mut self) {
        let read = |group: &&Key| self.timers.read_start_of(group) && !self.is_implicit(group);
        let groups: Vec<Key> = self.annotations.deferred().filter(read).cloned().collect();
        for group in groups {
            self.write_annotations(&group);
        }
    }

    /// Reads starts from pods whose groups lack them: an earlier process deferred them. Who may write a pod can change its
    /// annotation: a start in the future, which would protect the group until then, does not count.
    pub(super) fn recover_starts(&mut self) {
        let now = self.now();
        let objects = self.cache.store().objects();
        let mut starts: BTreeMap<Key, Timestamp> = BTreeMap::new();
        for pod in objects.pods.values() {
            let start = pod.metadata.annotation(annotation::LAST_START).and_then(|text| text.parse().ok());
            let start = start.filter(|start| *start <= now);
            let Some((start, group)) = start.zip(pods::named_group(pod)) else { continue };
            let lacks_start = |group: &PodGroup| {
                let annotations = group.metadata.annotations.as_ref();
                annotations.is_none_or(|of| !of.contains_key(annotation::LAST_START))
                    && groups::is_selected(group, &self.options.settings)
            };
            if objects.pod_groups.get(&group).is_some_and(|group| lacks_start(group)) {
                let latest = starts.entry(group).or_insert(start);
                *latest = start.max(*latest);
            }
        }
        for (group, start) in starts {
            if self.record_start(&group, start) {
                self.write_annotations(&group);
            }
        }
    }
}
