//! Yields the feasible nodes for a pod, best first.
//!
//! If only score steps and the placement strategy differ between nodes, a ranked list yields them without visiting
//! every node: step combinations from the highest down, and within a combination in list order. Otherwise every node
//! of the set is scored.

use super::ranked::{ListKey, Position, RankedList, Summary};
use super::score::{self, FreeRange};
use super::score_steps::StepCombination;
use super::trial::Trial;
use super::{empty_fit, filter};
use crate::cluster::Cluster;
use crate::cluster::node::When;
use crate::ids::NodeIdx;
use crate::node_set::{Marked, NodeSet};
use crate::plan::Plan;
use crate::plugin::Strategy;
use crate::resource;
use crate::verdict::{NodeFit, NodeRejection};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes that a pod's request fits, by score, then by name.
pub(crate) enum Candidates {
    /// Scored one by one; worst first, so that the best is popped from the end.
    Scored { nodes: Vec<(f64, u32, NodeIdx)>, sorted: bool },
    /// Read from a ranked list, by step combination.
    Listed(Box<Listed>),
}

/// A search through a ranked list.
pub(crate) struct Listed {
    list: RankedList,
    /// Remaining step combinations, the next one last.
    steps: SmallVec<[StepCombination; 4]>,
    start: Position,
    at: Position,
    required: Requirement,
    /// Restricts the search to these nodes.
    only: Option<Arc<Marked>>,
}

/// Below this many nodes, scoring each is faster than a ranked list of all.
const FEW_NODES: usize = 24;

/// Lower bounds of a request, for skipping blocks.
#[derive(Clone, Copy, Debug)]
struct Requirement {
    /// CPU, memory, GPUs, pod slots; GPUs of shared requests are not included.
    amounts: [i64; 4],
    /// Smallest MiB on a shared GPU, for shared requests.
    shared: Option<i64>,
}

impl Candidates {
    pub(crate) fn new(plan: &mut Plan<'_>, trial: &Trial<'_>, set: &NodeSet) -> Self {
        let only = match set {
            NodeSet::All => Some(None),
            NodeSet::Marked(marked) if marked.nodes.len() > FEW_NODES => Some(Some(Arc::clone(marked))),
            NodeSet::Marked(_) | NodeSet::Some(_) => None,
        };
        if let (Some(only), false) = (only, trial.policy.literal)
            && score::is_indexable(plan, trial)
        {
            return Self::Listed(Box::new(Listed::new(plan, trial, only)));
        }
        plan.add_work(set.nodes(plan).len());
        let list = set.nodes(plan);
        let range = score::placement_key(plan, trial)
            .map_or(FreeRange { min: 0, max: 0 }, |(dim, _)| score::free_range(plan, dim, list));
        let fitting = list.iter().filter(|node| trial.fits(plan, **node, When::Eventually));
        let nodes = fitting
            .filter_map(|&node| Some((score::score(plan, trial, node, range)?, plan.nodes[node].rank, node)))
            .collect();
        Self::Scored { nodes, sorted: false }
    }

    /// The next best node.
    pub(crate) fn next(&mut self, plan: &Plan<'_>, trial: &Trial<'_>) -> Option<NodeIdx> {
        match self {
            Self::Scored { nodes, sorted } => {
                if !std::mem::replace(sorted, true) {
                    nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
                }
                nodes.pop().map(|(_, _, node)| node)
            }
            Self::Listed(listed) => listed.next(plan, trial),
        }
    }

    /// Returns the list to the memo for the next search.
    pub(crate) fn finish(self, plan: &mut Plan<'_>) {
        if let Self::Listed(listed) = self {
            plan.memo_mut().ranked_nodes.put_back(listed.list);
        }
    }
}

impl Listed {
    fn new(plan: &mut Plan<'_>, trial: &Trial<'_>, only: Option<Arc<Marked>>) -> Self {
        let builtin = &trial.policy.registry.builtin;
        let shape = plan.shape(trial.pod);
        let placement = score::placement_key(plan, trial);
        let key = ListKey::new(builtin.predicates.then_some(shape.class), placement);
        let required = Requirement::of(plan, trial);
        let steps = StepCombination::all(plan, trial);
        let list = plan.memo_mut().ranked_nodes.take(key);
        let list = match list {
            Some(mut list) => {
                list.refresh(plan);
                list
            }
            None => RankedList::new(key, plan),
        };
        let start = match placement {
            // Nodes with less than the request come first and are skipped at once.
            Some((dim, Strategy::Binpack)) if required.shared.is_none() => {
                list.start(required.amounts[dim.0 as usize])
            }
            _ => list.start(i64::MIN),
        };
        Self { list, steps, start, at: start, required, only }
    }

    fn next(&mut self, cluster: &Cluster, trial: &Trial<'_>) -> Option<NodeIdx> {
        while let Some(&step) = self.steps.last() {
            let (required, only) = (self.required, self.only.as_deref());
            let found = self.list.next(
                &mut self.at,
                |summary| required.may(summary, step),
                |node| {
                    only.is_none_or(|marked| marked.contains(node))
                        && step.is_earned(cluster, trial, node)
                        && trial.fits(cluster, node, When::Eventually)
                },
            );
            if found.is_some() {
                return found;
            }
            self.steps.pop();
            self.at = self.start;
        }
        None
    }
}

impl Requirement {
    fn of(cluster: &Cluster, trial: &Trial<'_>) -> Self {
        let shape = cluster.shape(trial.pod);
        let request = &shape.request;
        // Shared requests also fit GPU groups, and a pod that shares a claimed device needs fewer GPUs: free whole
        // GPUs are no bound in either case.
        let gpus = if shape.is_shared() || trial.has_claims { i64::MIN } else { request.get(resource::GPU) };
        let amounts =
            [request.get(resource::CPU), request.get(resource::MEMORY), gpus, request.get(resource::PODS)];
        let least = cluster.figures.gpu_memory_least;
        Self { amounts, shared: shape.is_shared().then(|| shape.memory_on(least)) }
    }

    /// Whether a block can contain a feasible node that earns these steps.
    fn may(&self, summary: &Summary, steps: StepCombination) -> bool {
        let most = if steps.requires_availability() { &summary.idle } else { &summary.free };
        if self.amounts.iter().zip(most).any(|(required, most)| required > most) {
            return false;
        }
        let whole_gpu = most[resource::GPU.0 as usize] >= resource::WHOLE_GPU;
        self.shared.is_none_or(|mib| whole_gpu || summary.shared >= mib)
            && steps.is_possible(summary, self.shared)
    }
}

/// Why the nodes of a set are infeasible for a pod, counted by reason.
pub(crate) fn explain(plan: &Plan<'_>, trial: &Trial<'_>, set: &NodeSet) -> NodeFit {
    let mut reasons: BTreeMap<NodeRejection, u32> = BTreeMap::new();
    let mut fit = empty_fit(plan, trial.pod);
    for &node in set.nodes(plan) {
        fit.nodes += 1;
        if trial.topology.is_some_and(|t| t.score(node).is_none()) {
            *reasons.entry(NodeRejection::OutsideDomain).or_default() += 1;
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
