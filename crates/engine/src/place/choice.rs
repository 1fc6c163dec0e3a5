//! The nodes for a pod, best first.

use super::score::{self, FreeRange};
use super::trial::Trial;
use super::{empty_fit, filter};
use crate::cluster::node::When;
use crate::ids::NodeIdx;
use crate::node_set::NodeSet;
use crate::plan::Plan;
use crate::verdict::{NodeFit, NodeMiss};
use std::collections::BTreeMap;

/// Nodes that a pod's request fits, by score, then by name.
pub(crate) struct Candidates {
    /// Worst first, so that the best is taken from the end.
    nodes: Vec<(f64, u32, NodeIdx)>,
    sorted: bool,
}

impl Candidates {
    pub(crate) fn new(plan: &mut Plan<'_>, trial: &Trial<'_>, set: &NodeSet) -> Self {
        let list = set.nodes(plan);
        let range = score::placement_key(plan, trial)
            .map_or(FreeRange { min: 0, max: 0 }, |(dim, _)| score::free_range(plan, dim, list));
        let fitting = list.iter().filter(|node| trial.fits(plan, **node, When::Eventually));
        let nodes = fitting
            .filter_map(|&node| Some((score::score(plan, trial, node, range)?, plan.nodes[node].rank, node)))
            .collect();
        Self { nodes, sorted: false }
    }

    /// The next best node.
    pub(crate) fn next(&mut self, _plan: &Plan<'_>, _trial: &Trial<'_>) -> Option<NodeIdx> {
        if !self.sorted {
            self.nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            self.sorted = true;
        }
        self.nodes.pop().map(|(_, _, node)| node)
    }
}

/// Why each node of a set does not take a pod, counted by reason.
pub(crate) fn explain(plan: &Plan<'_>, trial: &Trial<'_>, set: &NodeSet) -> NodeFit {
    let mut reasons: BTreeMap<NodeMiss, u32> = BTreeMap::new();
    let mut fit = empty_fit(plan, trial.pod);
    for &node in set.nodes(plan) {
        fit.nodes += 1;
        if trial.topology.is_some_and(|t| t.score(node).is_none()) {
            *reasons.entry(NodeMiss::OutsideDomain).or_default() += 1;
            continue;
        }
        let lacks = filter::lacks(plan, trial, node);
        let refusal = if lacks.is_empty() { filter::refusal(plan, trial, node) } else { None };
        for reason in lacks.into_iter().chain(refusal) {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    fit.reasons = reasons.into_iter().collect();
    fit
}
