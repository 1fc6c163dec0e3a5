//! One scenario played through: victims leave, everybody takes turns, the rules judge.

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

/// What simulations need to know.
pub(crate) struct Simulation<'a> {
    pub rules: &'a Rules<'a>,
    pub waiting: &'a PendingGroups,
    pub disruptions: &'a Disruptions,
    pub total: QueueAmounts,
    pub seed: u64,
}

/// Who finds a place first in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlacementOrder {
    /// Whoever the queue tree says: what the next cycle would do with the room.
    QueueOrder,
    /// The preemptor: the room is kept for it until it has it.
    PreemptorFirst,
}

/// How a simulation ended.
#[derive(Debug)]
pub(crate) enum SimulationResult {
    /// The pods have places, and the rules are content: the plan shows the result.
    Solved(Solution),
    /// The pods found no places; nothing is changed.
    Unplaced,
    /// They did, but a rule says no; nothing is changed.
    Rejected(Rejection),
}

/// A plan that works.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The batches of which a pod lost its place or was moved.
    pub batches: Vec<Batch>,
    /// Everybody who was asked to give way, as they were before.
    pub before: BTreeMap<PodIdx, PodState>,
    /// PendingGroups pods of their groups that got a place along with them.
    pub joined: Vec<PodIdx>,
    /// The queues involved, as they were before.
    pub ledgers: BTreeMap<QueueIdx, Ledger>,
}

impl Simulation<'_> {
    /// Evicts all batches and lets everybody involved find a place, in the order of the queue tree. On success the
    /// plan stays as the simulation left it.
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
        if !put_back(plan, &before) {
            plan.rollback(mark);
            return SimulationResult::Rejected(Rejection::PlacedThisCycle);
        }
        let queues = Before::new(plan, &ledgers, &before);
        match self.rules.check(plan, &queues, part, &victims, Some(self.disruptions)) {
            Ok(()) => {
                let joined = joined(plan, &victims, &before);
                let batches = actual(plan, batches, &before);
                SimulationResult::Solved(Solution { batches, before, joined, ledgers })
            }
            Err(rejection) => {
                plan.rollback(mark);
                SimulationResult::Rejected(rejection)
            }
        }
    }

    /// Places the pods on room that evictions of this cycle left over; nobody gives way.
    pub(crate) fn simulate_without_victims(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
    ) -> Option<Solution> {
        let mut step = Step::new(self.rules.policy, self.seed, part.group, Selection::Simulated);
        let leaf = leaf_of(plan, part.group);
        let ledgers = Before::record(plan, leaf);
        let nobody = Solution { batches: Vec::new(), before: BTreeMap::new(), joined: Vec::new(), ledgers };
        step.run(plan, part.pods, &NodeSet::All).then_some(nobody)
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
        let mut turns = SimulationOrder::new(plan, registry, self.total, self.waiting, &involved, part.group);
        while let Some(group) = turns.next(plan, &involved) {
            let mut step = Step::new(policy, self.seed, group, Selection::Simulated);
            if group == part.group {
                placed = step.run(plan, part.pods, nodes);
                if !placed {
                    return false;
                }
            } else {
                let mut pods = pods_to_place(plan, registry, group, Selection::Simulated);
                // By the queue's order a group has one step at a time; otherwise all that it lost may find a place.
                while step.run(plan, &pods, nodes)
                    && first == PlacementOrder::PreemptorFirst
                    && victims.iter().any(|(victim, pods)| *victim == group && any_out(plan, pods))
                {
                    pods = pods_to_place(plan, registry, group, Selection::Simulated);
                }
            }
        }
        placed
    }
}

/// The pods of all batches by group, each once, in the order of the batches.
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

/// Whether one of these pods has no place.
fn any_out(plan: &Plan<'_>, pods: &[PodIdx]) -> bool {
    pods.iter().any(|pod| !plan.pods[*pod].state.status.is_active_allocated())
}

/// The nodes that a search starts from, and those of the victims.
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

/// Coming back is no change at all; false when a pod that was placed in this cycle did not.
fn put_back(plan: &mut Plan<'_>, before: &BTreeMap<PodIdx, PodState>) -> bool {
    for (&pod, old) in before {
        let now = &plan.pods[pod].state;
        let is_back = (&old.place, &old.leaving) == (&now.place, &now.leaving)
            && now.status.is_active_allocated() == old.status.is_active_allocated();
        if is_back && old != now {
            plan.set_state(pod, old.clone());
        } else if !is_back && old.leaving.is_none() && old.status != plan.told_status(pod) {
            return false;
        }
    }
    true
}

/// Pods of the victims' groups that waited and were placed by a simulation.
fn joined(plan: &Plan<'_>, victims: &Victims, before: &BTreeMap<PodIdx, PodState>) -> Vec<PodIdx> {
    let sets = victims.iter().flat_map(|(group, _)| plan.groups[*group].pod_sets());
    let pods = sets.flat_map(|(_, set)| set.pods.iter().copied());
    pods.filter(|pod| plan.is_fresh(*pod) && plan.pods[*pod].state.is_virtual && !before.contains_key(pod))
        .collect()
}

/// The batches of which a pod is gone or moved.
fn actual(plan: &Plan<'_>, batches: &[Batch], before: &BTreeMap<PodIdx, PodState>) -> Vec<Batch> {
    let hit = |pod: &PodIdx| plan.pods[*pod].state != before[pod];
    batches.iter().filter(|batch| batch.pods.iter().any(hit)).cloned().collect()
}
