//! The conditions and events that pending groups and pods already carry, so that an unchanged one is not written again.

use crate::effect::condition;
use kai_api::pod_group::SchedulingCondition;
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// What has been reported on one pending group.
#[derive(Clone, Debug)]
pub(crate) struct ReportedStatus {
    pub(crate) pending_since: Instant,
    /// The message of its condition.
    pub(crate) message: Option<String>,
    /// What that message was rendered from: the verdict, and the version of the group's pods.
    pub(crate) source: Option<(GroupVerdict, Option<u64>)>,
    /// The messages of its pods' conditions, by pod and uid.
    pub(crate) pods: BTreeMap<(Key, String), String>,
    /// The conditions as they were last written.
    pub(crate) conditions: Option<Vec<SchedulingCondition>>,
}

#[derive(Debug, Default)]
pub(crate) struct StatusReporter {
    pub(crate) pending: BTreeMap<Key, ReportedStatus>,
    /// Groups whose status carries scheduling conditions.
    pub(crate) with_conditions: BTreeSet<Key>,
    /// The nodes that pods are pipelined to, as last reported.
    pub(crate) pipelined: BTreeMap<Key, String>,
}

impl StatusReporter {
    /// Replaces the set of pending groups; what was reported on those that remain is kept.
    pub(crate) fn set_pending(&mut self, pending: BTreeSet<Key>, now: Instant) {
        self.pending.retain(|group, _| pending.contains(group));
        for group in pending {
            self.pending.entry(group).or_insert_with(|| ReportedStatus {
                pending_since: now,
                message: None,
                source: None,
                pods: BTreeMap::new(),
                conditions: None,
            });
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
        let status = self.pending.get_mut(group)?;
        let known = status.conditions.as_deref().unwrap_or(stored);
        let list = condition::upsert(known, new)?;
        status.conditions = Some(list.clone());
        self.with_conditions.insert(group.clone());
        Some(list)
    }
}
