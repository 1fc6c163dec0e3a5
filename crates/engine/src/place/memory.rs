//! Searches that failed, remembered for as long as no ledger is different.
//!
//! Thousands of equal pods wait for the same room: the first that finds none answers for the others.

use super::trial::Trial;
use crate::cluster::Cluster;
use crate::ids::{LabelSetIdx, ShapeIdx};
use crate::node_set::NodeSet;
use crate::plugin::Depends;
use crate::verdict::NodeRejection;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What makes two searches the same, besides the state of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SearchKey {
    shape: ShapeIdx,
    /// Where labels matter.
    labels: Option<LabelSetIdx>,
    predicates: bool,
    /// The nodes: all, or a set with a number.
    nodes: Option<u64>,
}

/// What is known of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'a> {
    /// Nothing.
    Nothing,
    /// It failed; nobody asked why.
    Failed,
    /// It failed for these reasons.
    FailedFor(&'a Reasons),
}

/// Counts of nodes per reason.
pub(crate) type Reasons = Arc<Vec<(NodeRejection, u32)>>;

/// Failed searches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(FxHashMap<SearchKey, (u64, Option<Reasons>)>);

impl Failures {
    /// What is known of a search in exactly this state.
    pub(crate) fn find(&self, key: SearchKey, epoch: u64) -> Known<'_> {
        match self.0.get(&key) {
            Some((seen, Some(reasons))) if *seen == epoch => Known::FailedFor(reasons),
            Some((seen, None)) if *seen == epoch => Known::Failed,
            Some(_) | None => Known::Nothing,
        }
    }
    /// Remembers a failed search.
    pub(crate) fn note(&mut self, key: SearchKey, epoch: u64, reasons: Option<Reasons>) {
        self.0.insert(key, (epoch, reasons));
    }
    /// Forgets everything: what failed may depend on more than the ledgers from one cycle to the next.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The key of a search whose answer depends on nothing but the specification and the nodes.
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
