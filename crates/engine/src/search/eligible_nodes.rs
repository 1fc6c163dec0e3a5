//! The nodes that node selector, required node affinity and taints leave to the pods of a search.
//!
//! GPUs freed on other nodes do not help, so that the bounds of a search count eligible nodes alone. Without this, a
//! pod that is bound to a few nodes of a large cluster has scenarios simulated on all the others.

use super::pending_request::RequestPart;
use crate::class::ClassIdx;
use crate::cluster::Cluster;
use crate::ids::Idx;
use crate::policy::Policy;
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A set of nodes; none means all of them.
pub(crate) type Eligible = Option<Arc<FixedBitSet>>;

/// Eligible nodes by scheduling class; node descriptions do not change within a cycle.
#[derive(Debug, Default)]
pub(crate) struct EligibleNodes {
    by_class: FxHashMap<ClassIdx, Eligible>,
}

impl EligibleNodes {
    /// The nodes for pods of one class whose GPUs come from device plugins; all nodes for other pods.
    pub(crate) fn of(&mut self, cluster: &Cluster, policy: &Policy, part: &RequestPart<'_>) -> Eligible {
        let class = cluster.shape(*part.pods.first()?).class;
        let is_alike = part.pods.iter().all(|pod| cluster.shape(*pod).class == class);
        let is_bounded = is_alike && part.is_bounded_by_gpus(cluster);
        if policy.literal || !policy.registry.builtin.predicates || !is_bounded {
            return None;
        }
        self.by_class.entry(class).or_insert_with(|| of_class(cluster, class)).clone()
    }
}

fn of_class(cluster: &Cluster, class: ClassIdx) -> Eligible {
    let mut eligible = FixedBitSet::with_capacity(cluster.nodes.len());
    let mut are_all = true;
    for &node in &cluster.nodes_by_rank {
        let n = &cluster.nodes[node];
        let accepted = cluster.classes.accepts(class, n.name, &n.labels, &n.taints, &cluster.names).is_ok();
        eligible.set(node.index(), accepted);
        are_all &= accepted;
    }
    (!are_all).then(|| Arc::new(eligible))
}
