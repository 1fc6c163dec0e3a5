//! The cluster model together with what planning keeps beside it between cycles.
//!
//! [`ClusterState::apply`] takes in changes, [`plan`](fn@crate::plan) plans a cycle. Filters, scores and reports read the
//! [`Cluster`] alone, to which the state dereferences.
//! Invariant: dropping the memos changes what the next cycle costs, never its outcome.

use crate::cluster::{Changes, Cluster};
use crate::delta::Delta;
use crate::input::PodInput;
use crate::place::failed_searches::FailedSearches;
use crate::place::ranked::RankedLists;
use crate::policy::Policy;
use crate::search::node_capacity::NodeCapacity;
use crate::search::victims::KnownCandidates;
use kai_units::Timestamp;
use std::ops::{Deref, DerefMut};

/// A cluster, the changes since its derived values were last refreshed, and memos of earlier searches.
#[derive(Default)]
pub struct ClusterState {
    pub(crate) cluster: Cluster,
    pub(crate) changes: Changes,
    pub(crate) memo: Memo,
}

/// Results of earlier searches that later ones reuse.
#[derive(Default)]
pub(crate) struct Memo {
    /// Searches for a node that failed, by the state of the node ledgers; valid within one cycle.
    pub(crate) failed_searches: FailedSearches,
    /// Nodes ranked by free capacity, per scheduling class.
    pub(crate) ranked_nodes: RankedLists,
    /// Eviction candidates of each leaf queue as the last cycle listed them.
    pub(crate) victims: KnownCandidates,
    /// Free capacity of the nodes as the last cycle with a search for victims knew it.
    pub(crate) capacity: Option<NodeCapacity>,
}

impl ClusterState {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one change; derived values follow before the next cycle.
    pub fn apply(&mut self, delta: Delta) {
        self.cluster.apply(delta, &mut self.changes);
    }

    /// Whether no built-in rule tells two states of a pod on a node apart: only its labels differ, and every affinity
    /// term, spread constraint and disruption budget selects both or neither.
    pub fn decides_alike(&mut self, mut before: PodInput, after: &PodInput) -> bool {
        let labels = std::mem::replace(&mut before.labels, after.labels.clone());
        after.node.is_some()
            && before == *after
            && self.cluster.selects_alike(&before.key, &labels, &after.labels)
    }

    /// Brings derived values up to date for a cycle at a moment.
    pub(crate) fn refresh(&mut self, policy: &Policy, now: Timestamp) {
        self.memo.failed_searches.clear();
        if self.changes.node_set || !self.changes.described.is_empty() || self.changes.devices {
            self.memo.capacity = None;
        }
        if self.changes.node_set {
            // Ranks change.
            self.memo.ranked_nodes.clear();
        }
        let groups = self.cluster.refresh(&mut self.changes, policy, now);
        self.memo.victims.note_changed(&groups);
    }

    /// Drops memos and derived values after a panic interrupted an edit: the next cycle derives them again.
    pub(crate) fn invalidate(&mut self) {
        self.memo.ranked_nodes.clear();
        self.memo.victims = KnownCandidates::default();
        self.memo.capacity = None;
        self.changes.ledgers = self.cluster.nodes.indices().collect();
        self.changes.queues = true;
        self.changes.terms = true;
    }
}

impl Deref for ClusterState {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for ClusterState {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}
