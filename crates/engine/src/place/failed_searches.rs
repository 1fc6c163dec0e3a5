//! Memo of failed node searches, valid while the node ledgers are unchanged.
//!
//! Pods of one specification fail for the same reasons: one search serves all of them.

use super::trial::Trial;
use crate::cluster::Cluster;
use crate::ids::{LabelSetIdx, ShapeIdx};
use crate::node_set::NodeSet;
use crate::plugin::Depends;
use crate::verdict::NodeRejection;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Identifies equal searches, for equal node ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SearchKey {
    shape: ShapeIdx,
    /// Label set, if pod affinity is involved.
    labels: Option<LabelSetIdx>,
    predicates: bool,
    /// The nodes: all, or a set by id.
    nodes: Option<u64>,
}

/// Memoised result of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoEntry<'a> {
    /// Not memoised.
    Absent,
    /// It failed; reasons were not computed.
    Failed,
    /// It failed for these reasons.
    FailedFor(&'a Reasons),
}

/// Counts of nodes per reason.
pub(crate) type Reasons = Arc<Vec<(NodeRejection, u32)>>;

/// Failed searches.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedSearches(FxHashMap<SearchKey, (u64, Option<Reasons>)>);

impl FailedSearches {
    /// The memoised result for an epoch.
    pub(crate) fn get(&self, key: SearchKey, epoch: u64) -> MemoEntry<'_> {
        match self.0.get(&key) {
            Some((seen, Some(reasons))) if *seen == epoch => MemoEntry::FailedFor(reasons),
            Some((seen, None)) if *seen == epoch => MemoEntry::Failed,
            Some(_) | None => MemoEntry::Absent,
        }
    }
    /// Stores a failed search.
    pub(crate) fn insert(&mut self, key: SearchKey, epoch: u64, reasons: Option<Reasons>) {
        self.0.insert(key, (epoch, reasons));
    }
    /// Drops all entries: between cycles, results can depend on more than the ledgers.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The key of a search, if its result depends on the specification and the nodes alone.
pub(crate) fn key(cluster: &Cluster, trial: &Trial<'_>, set: &NodeSet) -> Option<SearchKey> {
    let registry = &trial.policy.registry;
    let nodes = match set {
        NodeSet::All => None,
        NodeSet::Marked(marked) => Some(marked.id),
        NodeSet::Some(_) => return None,
    };
    let plain = trial.topology.is_none()
        && !trial.has_claims
        && !trial.has_volumes
        && !trial.cost_varies
        && trial.spread.is_none()
        && !registry.filters.iter().any(|(depends, _)| *depends == Depends::Global)
        && !registry.scores.iter().any(|(depends, _)| *depends == Depends::Global)
        && !trial.policy.literal;
    plain.then(|| SearchKey {
        shape: cluster.pods[trial.pod].shape,
        labels: trial.uses_terms.then(|| cluster.pods[trial.pod].label_set),
        predicates: registry.builtin.predicates,
        nodes,
    })
}
