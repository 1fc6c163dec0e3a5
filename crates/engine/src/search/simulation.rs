//! Simulates a scenario: evicts the victims, places all involved groups and validates the result.

use super::pending_request::RequestPart;
use super::rules::{Before, Rejection, Rules, Victims};
use super::simulation_order::{PendingGroups, SimulationOrder};
use crate::cluster::pod::PodState;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, NodeIdx, PodIdx, QueueIdx};
use crate::node_set::{Marked, NodeSet};
use crate::order::member::{Selection, pods_to_place};
use crate::order::tree_walk::{leaf_of, next_request};
use crate::place::Step;
use crate::plan::Plan;
use crate::plugin::VictimBatch as Batch;
use crate::share::{Ledger, QueueAmounts};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Simulation<'a> {
    pub rules: &'a Rules<'a>,
    pub pending: &'a PendingGroups,
    pub disruptions: &'a Disruptions,
    pub total: QueueAmounts,
    pub seed: u64,
}

/// Which group is placed first in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlacementOrder {
    /// The order of the queue tree, as the next cycle would use it.
    QueueOrder,
    /// The preemptor first: the freed capacity is reserved for it.
    PreemptorFirst,
}

#[derive(Debug)]
pub(crate) enum SimulationResult {
    /// All pods were placed and the rules hold; the plan contains the result.
    Solved(Solution),
    /// The pods do not fit; the plan is unchanged.
    Unplaced,
    /// The pods fit but a rule rejects the scenario; the plan is unchanged.
    Rejected(Rejection),
}

/// A valid scenario.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The batches with a pod that was evicted or moved.
    pub batches: Vec<Batch>,
    /// The states of all selected victims before the simulation.
    pub before: BTreeMap<PodIdx, PodState>,
    /// Pending pods of the victims' groups that were placed as well.
    pub also_placed: Vec<PodIdx>,
    /// The involved queues before the simulation.
    pub ledgers: BTreeMap<QueueIdx, Ledger>,
}

impl Simulation<'_> {
    /// Evicts all batches and places all involved groups in the given order. On success the plan keeps the result.
    pub(crate) fn simulate(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        batches: &[Batch],
        start: &NodeSet,
        first: PlacementOrder,
    ) -> SimulationResult {
        let mark = plan.mark();
        let victims = victims_of(batches);
        let leaves = victims
            .iter()
            .map(|(group, _)| group)
            .chain([&part.group])
            .filter_map(|group| leaf_of(plan, *group));
        let ledgers = Before::record(plan, leaves);
        let nodes = with_victims(plan, &victims, start);
        let before: BTreeMap<PodIdx, PodState> = victims
            .iter()
            .flat_map(|(_, pods)| pods)
            .map(|pod| (*pod, plan.pods[*pod].state.clone()))
            .collect();
        for &pod in victims.iter().flat_map(|(_, pods)| pods) {
            plan.evict(pod);
        }
        if !self.place_in_order(plan, part, &victims, &nodes, first) {
            plan.rollback(mark);
            return SimulationResult::Unplaced;
        }
        if !restore_returned(plan, &before) {
            plan.rollback(mark);
            return SimulationResult::Rejected(Rejection::PlacedThisCycle);
        }
        let queues = Before::new(plan, &ledgers, &before);
        match self.rules.check(plan, &queues, part, &victims, Some(self.disruptions)) {
            Ok(()) => {
                let also_placed = also_placed(plan, &victims, &before);
                let batches = affected(plan, batches, &before);
                SimulationResult::Solved(Solution { batches, before, also_placed, ledgers })
            }
            Err(rejection) => {
                plan.rollback(mark);
                SimulationResult::Rejected(rejection)
            }
        }
    }

    /// Places the pods on capacity that other evictions of this cycle freed; there are no victims.
    pub(crate) fn simulate_without_victims(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
    ) -> Option<Solution> {
        let mut step = Step::new(self.rules.policy, self.seed, part.group, Selection::Simulated);
        let leaf = leaf_of(plan, part.group);
        let ledgers = Before::record(plan, leaf);
        let solution =
            Solution { batches: Vec::new(), before: BTreeMap::new(), also_placed: Vec::new(), ledgers };
        step.run(plan, part.pods, &NodeSet::All).then_some(solution)
    }

    fn place_in_order(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        victims: &Victims,
        nodes: &NodeSet,
        first: PlacementOrder,
    ) -> bool {
        let policy = self.rules.policy;
        let registry = &policy.registry;
        let mut involved: BTreeMap<GroupIdx, QueueAmounts> =
            victims.iter().map(|(group, _)| (*group, next_request(plan, registry, *group))).collect();
        let mut placed = false;
        match first {
            PlacementOrder::QueueOrder => {
                involved.insert(part.group, part.amounts(plan));
            }
            PlacementOrder::PreemptorFirst => {
                let mut step = Step::new(policy, self.seed, part.group, Selection::Simulated);
                placed = step.run(plan, part.pods, nodes);
                if !placed {
                    return false;
                }
            }
        }
        let mut turns = SimulationOrder::new(plan, registry, self.total, self.pending, &involved, part.group);
        while let Some(group) = turns.next(plan, &involved) {
            let mut step = Step::new(policy, self.seed, group, Selection::Simulated);
            if group == part.group {
                placed = step.run(plan, part.pods, nodes);
                if !placed {
                    return false;
                }
            } else {
                let mut pods = pods_to_place(plan, registry, group, Selection::Simulated);
                // In queue order a group has one step at a time; otherwise all its evicted pods may be placed.
                while step.run(plan, &pods, nodes)
                    && first == PlacementOrder::PreemptorFirst
                    && victims.iter().any(|(victim, pods)| *victim == group && any_unplaced(plan, pods))
                {
                    pods = pods_to_place(plan, registry, group, Selection::Simulated);
                }
            }
        }
        placed
    }
}

/// The pods of all batches by group, without duplicates, in the order of the batches.
pub(super) fn victims_of(batches: &[Batch]) -> Victims {
    let mut victims = Victims::new();
    let mut at: FxHashMap<GroupIdx, usize> = FxHashMap::default();
    let mut seen: FxHashSet<PodIdx> = FxHashSet::default();
    for batch in batches {
        let at = *at.entry(batch.group).or_insert_with(|| {
            victims.push((batch.group, Vec::new()));
            victims.len() - 1
        });
        victims[at].1.extend(batch.pods.iter().copied().filter(|pod| seen.insert(*pod)));
    }
    victims
}

/// Whether one of these pods is not placed.
fn any_unplaced(plan: &Plan<'_>, pods: &[PodIdx]) -> bool {
    pods.iter().any(|pod| !plan.pods[*pod].state.status.is_active_allocated())
}

/// The starting nodes and the nodes of the victims.
fn with_victims(plan: &mut Plan<'_>, victims: &Victims, start: &NodeSet) -> NodeSet {
    if *start == NodeSet::All {
        return NodeSet::All;
    }
    let of_victims =
        || victims.iter().flat_map(|(_, pods)| pods).filter_map(|pod| plan.pods[*pod].state.node());
    if let NodeSet::Marked(marked) = start
        && of_victims().all(|node| marked.contains(node))
    {
        return start.clone();
    }
    let mut nodes: Vec<NodeIdx> = start.nodes(plan).iter().copied().chain(of_victims()).collect();
    nodes.sort_unstable_by_key(|node| plan.nodes[*node].rank);
    nodes.dedup();
    let id = plan.cluster_mut().fresh_version();
    NodeSet::Marked(Arc::new(Marked::new(plan, nodes.into(), id)))
}

/// Undoes evictions of pods that returned to their nodes; false when a pod placed in this cycle did not return.
fn restore_returned(plan: &mut Plan<'_>, before: &BTreeMap<PodIdx, PodState>) -> bool {
    for (&pod, old) in before {
        let now = &plan.pods[pod].state;
        let returned = (&old.place, &old.releasing) == (&now.place, &now.releasing)
            && now.status.is_active_allocated() == old.status.is_active_allocated();
        if returned && old != now {
            plan.set_state(pod, old.clone());
        } else if !returned && old.releasing.is_none() && old.status != plan.observed_status(pod) {
            return false;
        }
    }
    true
}

/// Pending pods of the victims' groups that the simulation placed.
fn also_placed(plan: &Plan<'_>, victims: &Victims, before: &BTreeMap<PodIdx, PodState>) -> Vec<PodIdx> {
    let sets = victims.iter().flat_map(|(group, _)| plan.groups[*group].pod_sets());
    let pods = sets.flat_map(|(_, set)| set.pods.iter().copied());
    pods.filter(|pod| {
        plan.is_placed_this_cycle(*pod) && plan.pods[*pod].state.is_virtual && !before.contains_key(pod)
    })
    .collect()
}

/// The batches with a pod that was evicted or moved.
fn affected(plan: &Plan<'_>, batches: &[Batch], before: &BTreeMap<PodIdx, PodState>) -> Vec<Batch> {
    let hit = |pod: &PodIdx| plan.pods[*pod].state != before[pod];
    batches.iter().filter(|batch| batch.pods.iter().any(hit)).cloned().collect()
}
