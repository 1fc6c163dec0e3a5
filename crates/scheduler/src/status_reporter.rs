//! The conditions and events that pending groups and pods already carry, so that an unchanged one is not written again.

use crate::effect::condition::{self, PodCondition};
use kai_api::pod_group::SchedulingCondition;
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// What has been reported on one pending group.
#[derive(Clone, Debug)]
pub(crate) struct ReportedStatus {
    pub(crate) pending_since: Instant,
    /// The message of its condition, without a hint.
    pub(crate) message: Option<String>,
    /// The hint of its condition.
    pub(crate) hint: Option<String>,
    /// What that message was rendered from: the verdict, and the version of the group's pods.
    pub(crate) source: Option<(GroupVerdict, Option<u64>)>,
    /// The messages of its pods' conditions, by pod and uid.
    pub(crate) pods: BTreeMap<(Key, String), String>,
}

/// Conditions whose write conflicted with another one, by the time of the next attempt. By then the watch has delivered
/// the state that the write conflicted with.
#[derive(Debug, Default)]
pub(crate) struct ConditionRetries {
    pods: BTreeMap<Key, (Instant, PodCondition)>,
    groups: BTreeMap<Key, Instant>,
}

impl ConditionRetries {
    pub(crate) fn add_pod(&mut self, condition: PodCondition, at: Instant) {
        self.pods.insert(condition.pod.clone(), (at, condition));
    }

    pub(crate) fn add_group(&mut self, group: Key, at: Instant) {
        self.groups.insert(group, at);
    }

    /// A later condition of the pod is written, or it is bound.
    pub(crate) fn forget_pod(&mut self, pod: &Key) {
        self.pods.remove(pod);
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.pods.values().map(|(at, _)| *at).chain(self.groups.values().copied()).min()
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> (Vec<PodCondition>, Vec<Key>) {
        let pods = self.pods.extract_if(.., |_, (at, _)| *at <= now).map(|(_, (_, condition))| condition);
        let pods = pods.collect();
        (pods, self.groups.extract_if(.., |_, at| *at <= now).map(|(group, _)| group).collect())
    }
}

/// The latest resource versions that the watch has delivered.
#[derive(Debug, Default)]
pub(crate) struct ObservedVersions {
    /// Of pending pods.
    pub(crate) pods: FxHashMap<Key, u64>,
    /// Of groups of this node pool.
    pub(crate) groups: FxHashMap<Key, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct StatusReporter {
    pub(crate) pending: BTreeMap<Key, ReportedStatus>,
    /// Groups whose status carries scheduling conditions.
    pub(crate) with_conditions: BTreeSet<Key>,
    /// The nodes that pods are pipelined to, as last reported.
    pub(crate) pipelined: BTreeMap<Key, String>,
    pub(crate) retries: ConditionRetries,
    pub(crate) versions: ObservedVersions,
}

impl StatusReporter {
    /// Replaces the set of pending groups; what was reported on those that remain is kept.
    pub(crate) fn set_pending(&mut self, pending: BTreeSet<Key>, now: Instant) {
        self.pending.retain(|group, _| pending.contains(group));
        for group in pending {
            self.pending.entry(group).or_insert_with(|| ReportedStatus {
                pending_since: now,
                message: None,
                hint: None,
                source: None,
                pods: BTreeMap::new(),
            });
        }
    }

    /// Reports on a group again, whose conditions could not be written.
    pub(crate) fn report_again(&mut self, group: Key) {
        match self.pending.get_mut(&group) {
            Some(status) => (status.message, status.source) = (None, None),
            None => {
                self.with_conditions.insert(group);
            }
        }
    }

    /// Renders the condition of a group again.
    pub(crate) fn render_again(&mut self, group: &Key) {
        if let Some(status) = self.pending.get_mut(group) {
            status.source = None;
        }
    }

    /// Takes the groups that carry conditions and are no longer pending.
    pub(crate) fn take_resolved(&mut self) -> Vec<Key> {
        let is_resolved = |group: &&Key| !self.pending.contains_key(*group);
        let resolved: Vec<Key> = self.with_conditions.iter().filter(is_resolved).cloned().collect();
        for group in &resolved {
            self.with_conditions.remove(group);
        }
        resolved
    }

    /// The conditions to write for a group; `None` when they are unchanged.
    pub(crate) fn update_conditions(
        &mut self,
        group: &Key,
        stored: &[SchedulingCondition],
        new: SchedulingCondition,
    ) -> Option<Vec<SchedulingCondition>> {
        let list = condition::upsert(stored, new)?;
        self.with_conditions.insert(group.clone());
        Some(list)
    }
}
