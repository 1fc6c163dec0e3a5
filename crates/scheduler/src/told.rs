//! What groups and pods have been told about why they wait, so that nobody is told the same twice.

use crate::effect::condition;
use kai_api::pod_group::SchedulingCondition;
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// What one waiting group has been told.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    /// Since when it waits.
    pub(crate) since: Instant,
    /// What its condition says.
    pub(crate) message: Option<String>,
    /// What that was said about: the verdict, and the state of the group's pods.
    pub(crate) about: Option<(GroupVerdict, Option<u64>)>,
    /// What the conditions of its pods say, by pod and uid.
    pub(crate) pods: BTreeMap<(Key, String), String>,
    /// The conditions as they were last written.
    pub(crate) conditions: Option<Vec<SchedulingCondition>>,
}

/// Everybody who waits, and who still carries conditions.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) waiting: BTreeMap<Key, Telling>,
    /// Groups that carry conditions.
    pub(crate) conditioned: BTreeSet<Key>,
    /// The nodes on which pods wait for room, as last told.
    pub(crate) pipelined: BTreeMap<Key, String>,
}

impl Told {
    /// Notes who waits.
    pub(crate) fn note(&mut self, waiting: BTreeSet<Key>, now: Instant) {
        self.waiting.retain(|group, _| waiting.contains(group));
        for group in waiting {
            self.waiting.entry(group).or_insert_with(|| Telling {
                since: now,
                message: None,
                about: None,
                pods: BTreeMap::new(),
                conditions: None,
            });
        }
    }

    /// Groups that carry conditions and wait no longer.
    pub(crate) fn over(&mut self) -> Vec<Key> {
        let over: Vec<Key> =
            self.conditioned.iter().filter(|group| !self.waiting.contains_key(*group)).cloned().collect();
        for group in &over {
            self.conditioned.remove(group);
        }
        over
    }

    /// The conditions to write for a group, if they say something new.
    pub(crate) fn condition(
        &mut self,
        group: &Key,
        stored: &[SchedulingCondition],
        new: SchedulingCondition,
    ) -> Option<Vec<SchedulingCondition>> {
        let telling = self.waiting.get_mut(group)?;
        let known = telling.conditions.as_deref().unwrap_or(stored);
        let list = condition::upsert(known, new)?;
        telling.conditions = Some(list.clone());
        self.conditioned.insert(group.clone());
        Some(list)
    }
}
