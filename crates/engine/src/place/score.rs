//! Scores a node for a pod: the sum of all scores, with KAI's weights.
//!
//! Built-in scores are steps that differ by 10 or more, except bin-packing (0 to 9), NUMA and the low-weight scores.
//! Ties are broken by name.

use super::score_steps;
use super::trial::Trial;
use crate::cluster::Cluster;
use crate::ids::NodeIdx;
use crate::plugin::Strategy;
use crate::resource::{self, Dim};

/// The nominated node.
pub const NOMINATED: f64 = 10_000_000.0;
/// One unit of preferred pod affinity.
pub const POD_AFFINITY: f64 = 1_000_000.0;
/// A shared GPU that fits.
pub const GPU_SHARING: f64 = 10_000.0;
/// Fits now.
pub const AVAILABLE: f64 = 1_000.0;
/// A CPU-only pod on a CPU-only node.
pub const RESOURCE_TYPE: f64 = 10.0;
/// Maximum of bin-packing.
pub const PLACEMENT: f64 = 9.0;

/// Smallest and largest free amount over the candidate nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeRange {
    pub min: i64,
    pub max: i64,
}

/// The resource and strategy of node placement for a pod.
pub(crate) fn placement_key(cluster: &Cluster, trial: &Trial<'_>) -> Option<(Dim, Strategy)> {
    let placement = trial.policy.registry.builtin.placement?;
    let cpu_only = cluster.shape(trial.pod).is_cpu_only() && cluster.pods[trial.pod].claim_gpus == 0;
    Some(if cpu_only { (resource::CPU, placement.cpu) } else { (resource::GPU, placement.gpu) })
}

/// The range of free amounts that bin-packing is relative to.
pub(crate) fn free_range(cluster: &Cluster, dim: Dim, nodes: &[NodeIdx]) -> FreeRange {
    let mut range = FreeRange { min: i64::MAX, max: 0 };
    for &node in nodes {
        let n = &cluster.nodes[node];
        if n.allocatable.get(dim) > 0 {
            let free = n.free(dim);
            range.min = range.min.min(free);
            range.max = range.max.max(free);
        }
    }
    range
}

/// The score of a node; `None` rules the node out.
pub(crate) fn score(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx, range: FreeRange) -> Option<f64> {
    let builtin = &trial.policy.registry.builtin;
    let n = &cluster.nodes[node];
    let mut sum = 0.0;
    if let Some(scores) = trial.topology {
        sum += scores.score(node)?;
    }
    if trial.nominated == Some(node) {
        sum += NOMINATED;
    }
    if trial.term_scores {
        let p = &cluster.pods[trial.pod];
        let raw = cluster.terms.score(p.label_set, &cluster.shape(trial.pod).terms, &n.labels);
        sum += POD_AFFINITY * raw as f64;
    }
    sum += score_steps::sum(cluster, trial, node);
    if let Some((requests, ignored)) = &trial.numa {
        sum += crate::numa::score(n.ledger.numa.as_deref(), requests, ignored, cluster.figures.numa_zones);
    }
    if let Some((dim, strategy)) = placement_key(cluster, trial) {
        sum += placement(cluster, node, dim, strategy, range);
    }
    if builtin.soft_scores {
        sum += soft(cluster, trial, node);
    }
    for (_, custom) in &trial.policy.registry.scores {
        sum += custom.score(cluster, trial.pod, node)?;
    }
    Some(sum)
}

/// Score of the placement strategy.
pub(crate) fn placement(
    cluster: &Cluster,
    node: NodeIdx,
    dim: Dim,
    strategy: Strategy,
    range: FreeRange,
) -> f64 {
    let n = &cluster.nodes[node];
    match strategy {
        Strategy::Binpack => {
            if n.allocatable.get(dim) <= 0 || range.max == 0 {
                return 0.0;
            }
            packed(n.free(dim), range)
        }
        Strategy::Spread => {
            let count = if dim == resource::GPU {
                n.gpus_total() * resource::WHOLE_GPU
            } else {
                n.allocatable.get(dim)
            };
            if count == 0 { 0.0 } else { n.free(dim) as f64 / count as f64 }
        }
    }
}

/// 9 for the fullest candidate node, 0 for the emptiest.
pub fn packed_score(free: i64, min: i64, max: i64) -> f64 {
    packed(free, FreeRange { min, max })
}

fn packed(free: i64, range: FreeRange) -> f64 {
    if range.max == range.min {
        return PLACEMENT;
    }
    PLACEMENT * (1.0 - (free - range.min) as f64 / (range.max - range.min) as f64)
}

/// Low-weight scores; together below 1.
fn soft(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> f64 {
    let n = &cluster.nodes[node];
    let shape = cluster.shape(trial.pod);
    let spread = trial.spread.as_ref().map_or(0.0, |s| s.soft_score(&n.labels));
    spread + cluster.classes.soft_score(shape.class, n.name, &n.labels, &n.taints, &cluster.names)
}

/// Whether only steps and the placement strategy differ between nodes, so that a ranked list can be used.
pub(crate) fn is_indexable(cluster: &Cluster, trial: &Trial<'_>) -> bool {
    let registry = &trial.policy.registry;
    let shape = cluster.shape(trial.pod);
    let soft = registry.builtin.soft_scores
        && (!shape.spec.node_preferences.is_empty()
            || cluster.figures.soft_taints
            || shape.terms.has_soft_spread());
    trial.topology.is_none()
        && trial.nominated.is_none()
        && !trial.term_scores
        && trial.numa.is_none()
        && !soft
        && !trial.has_volumes
        && registry.scores.is_empty()
}
