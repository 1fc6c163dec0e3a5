//! One scenario played through: victims leave, everybody takes turns, the rules judge.

use super::ask::Part;
use super::rules::{Before, Refusal, Rules, Victims};
use super::turns::{Turns, Waiting};
use crate::cluster::group::PodSet;
use crate::cluster::pod::PodState;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, NodeIdx, PodIdx, QueueIdx};
use crate::node_set::{Marked, NodeSet};
use crate::order::member::{Selection, pods_to_place};
use crate::order::tree_walk::{asks_of, leaf_of};
use crate::place::Step;
use crate::plan::Plan;
use crate::plugin::VictimBatch as Batch;
use crate::share::{Ledger, Triple, fits};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What simulations need to know.
pub(crate) struct Stage<'a> {
    pub rules: &'a Rules<'a>,
    pub waiting: &'a Waiting,
    pub disruptions: &'a Disruptions,
    pub total: Triple,
    pub seed: u64,
}

/// Who finds a place first in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum First {
    /// Whoever the queue tree says: what the next cycle would do with the room.
    ByQueue,
    /// The preemptor: the room is kept for it until it has it.
    Preemptor,
}

/// How a simulation ended.
#[derive(Debug)]
pub(crate) enum Played {
    /// The pods have places, and the rules are content: the plan shows the result.
    Solved(Solution),
    /// The pods found no places; nothing is changed.
    NoPlace,
    /// They did, but a rule says no; nothing is changed.
    Refused(Refusal),
}

/// A plan that works.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The batches of which a pod lost its place or was moved.
    pub batches: Vec<Batch>,
    /// Everybody who was asked to give way, as they were before.
    pub before: BTreeMap<PodIdx, PodState>,
    /// Waiting pods of their groups that got a place along with them.
    pub joined: Vec<PodIdx>,
    /// The queues involved, as they were before.
    pub ledgers: BTreeMap<QueueIdx, Ledger>,
}

impl Stage<'_> {
    /// Evicts all batches and lets everybody involved find a place, in the order of the queue tree. On success the
    /// plan stays as the simulation left it.
    pub(crate) fn play(
        &self,
        plan: &mut Plan<'_>,
        part: &Part<'_>,
        batches: &[Batch],
        start: &NodeSet,
        first: First,
    ) -> Played {
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
        if !self.take_turns(plan, part, &victims, &nodes, first) {
            plan.rollback(mark);
            return Played::NoPlace;
        }
        if !put_back(plan, &before) {
            plan.rollback(mark);
            return Played::Refused(Refusal::Fresh);
        }
        let queues = Before::new(plan, &ledgers, &before);
        match self.rules.check(plan, &queues, part, &victims, self.disruptions) {
            Ok(()) => {
                let joined = joined(plan, &victims, &before);
                let batches = actual(plan, batches, &before);
                Played::Solved(Solution { batches, before, joined, ledgers })
            }
            Err(refusal) => {
                plan.rollback(mark);
                Played::Refused(refusal)
            }
        }
    }

    /// Places the pods on room that evictions of this cycle left over; nobody gives way.
    pub(crate) fn play_nobody(&self, plan: &mut Plan<'_>, part: &Part<'_>) -> Option<Solution> {
        let mut step = Step::new(self.rules.policy, self.seed, part.group, Selection::Simulated);
        let leaf = leaf_of(plan, part.group);
        let ledgers = Before::record(plan, leaf);
        let nobody = Solution { batches: Vec::new(), before: BTreeMap::new(), joined: Vec::new(), ledgers };
        step.run(plan, part.pods, &NodeSet::All).then_some(nobody)
    }

    /// Lets victims keep their places where everybody else's stay as they are and the rules remain content.
    pub(crate) fn spare(&self, plan: &mut Plan<'_>, part: &Part<'_>, mut solution: Solution) -> Solution {
        let victims = victims_of(&solution.batches);
        for (group, pods) in victims.iter().rev() {
            let hit: Vec<PodIdx> =
                pods.iter().copied().filter(|pod| plan.pods[*pod].state != solution.before[pod]).collect();
            // What was moved earlier in the cycle has been evicted already.
            if hit.is_empty() || hit.iter().any(|pod| solution.before[pod].leaving.is_some()) {
                continue;
            }
            let may_part = plan.groups[*group].members.iter().all(|member| member.topology.is_none());
            let joined = |pod: &PodIdx| plan.pods[*pod].group == Some(*group);
            // Those who wait got their places near the others' new ones.
            if !may_part && solution.joined.iter().any(joined) {
                continue;
            }
            if self.try_stay(plan, part, *group, &hit, (&solution, &victims)) {
                continue;
            }
            // One by one only where pods may be apart from each other.
            for &pod in hit.iter().rev().filter(|_| may_part) {
                let set = plan.pods[pod].member.and_then(|m| plan.groups[*group].members[m].pod_set());
                if set.is_some_and(PodSet::is_satisfied) {
                    self.try_stay(plan, part, *group, &[pod], (&solution, &victims));
                }
            }
        }
        solution
            .batches
            .retain(|batch| batch.pods.iter().any(|pod| plan.pods[*pod].state != solution.before[pod]));
        solution
    }

    /// Lets pods of a group keep their places if everything allows it.
    fn try_stay(
        &self,
        plan: &mut Plan<'_>,
        part: &Part<'_>,
        group: GroupIdx,
        pods: &[PodIdx],
        (solution, victims): (&Solution, &Victims),
    ) -> bool {
        let mark = plan.mark();
        let stays =
            self.stay(plan, group, pods, &solution.before) && within_limits(plan, &solution.ledgers) && {
                let queues = Before::new(plan, &solution.ledgers, &solution.before);
                self.rules.check(plan, &queues, part, victims, self.disruptions).is_ok()
            };
        if !stays {
            plan.rollback(mark);
        }
        stays
    }

    /// Puts pods of a group back where they were; false when that does not work out.
    fn stay(
        &self,
        plan: &mut Plan<'_>,
        group: GroupIdx,
        pods: &[PodIdx],
        before: &BTreeMap<PodIdx, PodState>,
    ) -> bool {
        for &pod in pods {
            if plan.pods[pod].state.leaving.is_some() {
                plan.evict(pod);
            }
        }
        pods.iter().all(|pod| {
            let Some(node) = before[pod].node() else { return false };
            if is_plain(plan, *pod, &before[pod]) {
                plan.set_state(*pod, before[pod].clone());
                return plan.nodes[node].is_sound();
            }
            let mut step = Step::new(self.rules.policy, self.seed, group, Selection::Simulated);
            if !step.run(plan, &[*pod], &NodeSet::Some([node].into())) {
                return false;
            }
            // The node takes it; on a GPU that all others leave it would open a new group, but it may keep its own.
            if plan.pods[*pod].state.place != before[pod].place && !plan.pods[*pod].has_claims() {
                plan.set_state(*pod, before[pod].clone());
            }
            let back = &plan.pods[*pod].state;
            (&back.place, &back.leaving) == (&before[pod].place, &before[pod].leaving)
                && plan.nodes[node].is_sound()
        })
    }

    fn take_turns(
        &self,
        plan: &mut Plan<'_>,
        part: &Part<'_>,
        victims: &Victims,
        nodes: &NodeSet,
        first: First,
    ) -> bool {
        let policy = self.rules.policy;
        let registry = &policy.registry;
        let mut involved: BTreeMap<GroupIdx, Triple> =
            victims.iter().map(|(group, _)| (*group, asks_of(plan, registry, *group))).collect();
        let mut placed = false;
        match first {
            First::ByQueue => {
                involved.insert(part.group, part.amounts(plan));
            }
            First::Preemptor => {
                let mut step = Step::new(policy, self.seed, part.group, Selection::Simulated);
                placed = step.run(plan, part.pods, nodes);
                if !placed {
                    return false;
                }
            }
        }
        let mut turns = Turns::new(plan, registry, self.total, self.waiting, &involved, part.group);
        while let Some(group) = turns.next(plan, &involved) {
            let mut step = Step::new(policy, self.seed, group, Selection::Simulated);
            if group == part.group {
                placed = step.run(plan, part.pods, nodes);
                if !placed {
                    return false;
                }
            } else {
                let pods = pods_to_place(plan, registry, group, Selection::Simulated);
                step.run(plan, &pods, nodes);
            }
        }
        placed
    }
}

/// Whether no queue that the plan involves is beyond its limit.
fn within_limits(plan: &Plan<'_>, involved: &BTreeMap<QueueIdx, Ledger>) -> bool {
    involved
        .keys()
        .all(|queue| fits(&plan.queues[*queue].ledger.allocated, &plan.queues[*queue].ledger.limit))
}

/// Whether room is all that a pod needs to keep its place beside those that are new on its node.
fn is_plain(plan: &Plan<'_>, pod: PodIdx, before: &PodState) -> bool {
    let (p, shape) = (&plan.pods[pod], plan.shape(pod));
    let aligned = before.place.as_ref().is_some_and(|place| place.numa.is_some());
    !plan.terms.affects(p.label_set, &shape.terms)
        && shape.spec.ports.is_empty()
        && !p.has_claims()
        && !plan.wants_devices(pod)
        && !plan.has_volumes(pod)
        && !aligned
}

/// The pods of all batches by group, each once, in the order of the batches.
fn victims_of(batches: &[Batch]) -> Victims {
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
