//! Removes unnecessary victims: they keep their nodes.
//!
//! Generators select whole batches, and a later search of the same cycle may free capacity that an earlier one evicted
//! for. A victim is restored when every other placement restored as it is and all rules still hold: group by group, and
//! within a search also pod by pod.

use super::pending_request::{PendingRequest, RequestPart};
use super::rules::{Before, Rules, Victims};
use super::simulation::{Simulation, Solution, victims_of};
use crate::cluster::Cluster;
use crate::cluster::group::PodSet;
use crate::cluster::pod::PodState;
use crate::ids::{GroupIdx, NodeIdx, PodIdx, QueueIdx};
use crate::node_set::NodeSet;
use crate::order::member::Selection;
use crate::order::tree_walk::leaf_of;
use crate::outcome::Cause;
use crate::place::Step;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::resource::QueueResource;
use crate::share::{Ledger, QueueAmounts, RESOURCES, reclaim, root_path, sum};
use kai_units::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Pod states before the evictions.
type States = BTreeMap<PodIdx, PodState>;

/// Inputs for restoring pods; the seed names GPU groups.
#[derive(Clone, Copy)]
pub(crate) struct RestoreContext<'a> {
    pub policy: &'a Policy,
    pub seed: u64,
}

impl Simulation<'_> {
    /// Restores victims of a solution where the other placements and the rules allow it.
    pub(crate) fn reduce(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        mut solution: Solution,
    ) -> Solution {
        let victims = victims_of(&solution.batches);
        // A restored pod releases the node found for it, which may be what another victim needs.
        while self.reduce_once(plan, part, &solution, &victims) {}
        solution
            .batches
            .retain(|batch| batch.pods.iter().any(|pod| plan.pods[*pod].state != solution.before[pod]));
        solution
    }

    /// Tries all victims in reverse order; true when a restored one had been moved.
    fn reduce_once(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        solution: &Solution,
        victims: &Victims,
    ) -> bool {
        let mut freed_a_node = false;
        for (group, pods) in victims.iter().rev() {
            let affected: Vec<PodIdx> =
                pods.iter().copied().filter(|pod| plan.pods[*pod].state != solution.before[pod]).collect();
            // A pod moved earlier in the cycle is evicted already.
            if affected.is_empty() || affected.iter().any(|pod| solution.before[pod].releasing.is_some()) {
                continue;
            }
            if is_placed_with_victims(plan, *group, &solution.also_placed) {
                continue;
            }
            let moved = affected.iter().any(|pod| plan.pods[*pod].state.releasing.is_some());
            if self.try_keep(plan, part, *group, &affected, (solution, victims)) {
                freed_a_node |= moved;
                continue;
            }
            // Pods are restored one by one only without topology constraints.
            let may_restore_single_pods =
                plan.groups[*group].members.iter().all(|member| member.topology.is_none());
            for &pod in affected.iter().rev().filter(|_| may_restore_single_pods) {
                let set = plan.pods[pod].member.and_then(|m| plan.groups[*group].members[m].pod_set());
                let moved = plan.pods[pod].state.releasing.is_some();
                if set.is_some_and(PodSet::is_satisfied)
                    && self.try_keep(plan, part, *group, &[pod], (solution, victims))
                {
                    freed_a_node |= moved;
                }
            }
        }
        freed_a_node
    }

    /// Restores pods of a group if the placements and rules allow it.
    fn try_keep(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        group: GroupIdx,
        pods: &[PodIdx],
        (solution, victims): (&Solution, &Victims),
    ) -> bool {
        let mark = plan.mark();
        let context = RestoreContext { policy: self.rules.policy, seed: self.seed };
        let restored = context.restore(plan, group, pods, &solution.before)
            && within_limits(plan, &solution.ledgers, &std::iter::once((part.pods, solution)))
            && {
                let queues = Before::new(plan, &solution.ledgers, &solution.before);
                self.rules.check(plan, &queues, part, victims, Some(self.disruptions)).is_ok()
            };
        if !restored {
            plan.rollback(mark);
        }
        restored
    }
}

/// Whether pending pods of a group were placed by a topology constraint together with its victims.
fn is_placed_with_victims(plan: &Plan<'_>, group: GroupIdx, also_placed: &[PodIdx]) -> bool {
    has_topology(plan, group) && also_placed.iter().any(|pod| plan.pods[*pod].group == Some(group))
}

fn has_topology(plan: &Plan<'_>, group: GroupIdx) -> bool {
    plan.groups[group].members.iter().any(|member| member.topology.is_some())
}

impl RestoreContext<'_> {
    /// Restores pods of a group to their nodes; false when one does not fit.
    fn restore(self, plan: &mut Plan<'_>, group: GroupIdx, pods: &[PodIdx], before: &States) -> bool {
        for &pod in pods {
            if plan.pods[pod].state.releasing.is_some() {
                plan.evict(pod);
            }
        }
        pods.iter().all(|pod| {
            let Some(node) = before[pod].node() else { return false };
            if needs_only_capacity(plan, *pod, &before[pod]) {
                plan.set_state(*pod, before[pod].clone());
                if !plan.nodes[node].ledger.gpus.is_empty() {
                    plan.renew_ledger(node);
                }
                return plan.nodes[node].is_sound();
            }
            let mut step = Step::new(self.policy, self.seed, group, Selection::Simulated);
            if !step.run(plan, &[*pod], &NodeSet::Some([node].into())) {
                return false;
            }
            // The node fits; a shared GPU that all others release would open a new group, but the pod may keep its own.
            if plan.pods[*pod].state.place != before[pod].place && !plan.pods[*pod].has_claims() {
                plan.set_state(*pod, before[pod].clone());
            }
            let restored = &plan.pods[*pod].state;
            (&restored.place, &restored.releasing) == (&before[pod].place, &before[pod].releasing)
                && plan.nodes[node].is_sound()
                && keeps_zones(plan, *pod, node)
        })
    }
}

/// Whether the NUMA zones that a restored pod holds are not taken by the new pods. A running pod keeps its zones.
fn keeps_zones(plan: &Plan<'_>, pod: PodIdx, node: NodeIdx) -> bool {
    let held = plan.pods[pod].state.place.as_ref().and_then(|place| place.numa.as_ref());
    match (&plan.nodes[node].ledger.numa, held) {
        (Some(numa), Some(held)) => numa.covers(held),
        (Some(_) | None, _) => true,
    }
}

/// Whether every queue is within its limit; without new pods it may exceed it by as much as before.
fn within_limits<'s>(
    plan: &Plan<'_>,
    before: &BTreeMap<QueueIdx, Ledger>,
    parts: &(impl Iterator<Item = (&'s [PodIdx], &'s Solution)> + Clone),
) -> bool {
    let is_moved = |pod: &&PodIdx| plan.pods[**pod].state.releasing.is_some();
    let new = |(pods, solution): (&'s [PodIdx], &'s Solution)| {
        pods.iter().chain(solution.before.keys().filter(is_moved)).chain(&solution.also_placed)
    };
    let added = |queue: QueueIdx, r: QueueResource| {
        parts.clone().flat_map(new).any(|pod| {
            let p = &plan.pods[*pod];
            let leaf = p.group.and_then(|group| leaf_of(plan, group));
            let cost = p.state.place.as_ref().map_or([0; 3], |place| plan.accepted(*pod, place));
            cost[r] > 0 && leaf.is_some_and(|leaf| root_path(&**plan, leaf).any(|q| q == queue))
        })
    };
    before.iter().all(|(&queue, before)| {
        let now = &plan.queues[queue].ledger;
        RESOURCES.into_iter().all(|r| {
            now.limit[r].is_none_or(|limit| {
                now.allocated[r] <= limit || (now.allocated[r] <= before.allocated[r] && !added(queue, r))
            })
        })
    })
}

/// Whether free capacity is all that a pod needs to keep its node beside the new pods.
fn needs_only_capacity(plan: &Plan<'_>, pod: PodIdx, before: &PodState) -> bool {
    let (p, shape) = (&plan.pods[pod], plan.shape(pod));
    let aligned = before.place.as_ref().is_some_and(|place| place.numa.is_some());
    !plan.terms.affects(p.label_set, &shape.terms)
        && shape.spec.ports.is_empty()
        && !p.has_claims()
        && !plan.requests_devices(pod)
        && !plan.has_volumes(pod)
        && !aligned
}

/// A committed search.
pub(crate) struct CommittedSearch {
    pub cause: Cause,
    pub request: PendingRequest,
    pub solution: Solution,
}

/// The pods that a group lost in a cycle.
struct GroupLoss {
    group: GroupIdx,
    /// Index of the first committed search with victims of the group.
    first: usize,
    pods: Vec<PodIdx>,
    /// States at the start of the cycle.
    before: States,
}

/// The groups that lost pods in this cycle, last first.
fn losses(plan: &Plan<'_>, searches: &[CommittedSearch]) -> Vec<GroupLoss> {
    let mut losses: Vec<GroupLoss> = Vec::new();
    let mut at: FxHashMap<GroupIdx, usize> = FxHashMap::default();
    for (first, search) in searches.iter().enumerate() {
        for (&pod, state) in &search.solution.before {
            // A pod moved by an earlier search is recorded there.
            let Some(group) = plan.pods[pod].group.filter(|_| state.releasing.is_none()) else { continue };
            let at = *at.entry(group).or_insert_with(|| {
                losses.push(GroupLoss { group, first, pods: Vec::new(), before: States::new() });
                losses.len() - 1
            });
            let loss = &mut losses[at];
            if !loss.before.contains_key(&pod) && plan.pods[pod].state != *state {
                loss.before.insert(pod, state.clone());
                loss.pods.push(pod);
            }
        }
    }
    losses.retain(|loss| !loss.pods.is_empty());
    losses.reverse();
    losses
}

/// Restores groups whose eviction later searches made unnecessary; returns their pods.
pub(crate) fn restore_unneeded_victims(
    plan: &mut Plan<'_>,
    context: RestoreContext<'_>,
    now: Timestamp,
    searches: &[CommittedSearch],
) -> Vec<PodIdx> {
    let mut restored_pods = Vec::new();
    let review = Review::new(plan, context.policy, now, searches);
    let mut losses = losses(plan, searches);
    // A restored pod releases the node found for it, which may be what another victim needs.
    loop {
        let before = losses.len();
        losses.retain(|loss| {
            let restored = review.try_restore(plan, context, loss);
            if restored {
                restored_pods.extend(&loss.pods);
            }
            !restored
        });
        if losses.len() == before {
            return restored_pods;
        }
    }
}

/// Validates the committed searches of a cycle again at its end.
struct Review<'a> {
    policy: &'a Policy,
    now: Timestamp,
    searches: &'a [CommittedSearch],
    /// Index of the last search that found a pod placed: it decides about later states of the pod.
    last_placed: FxHashMap<PodIdx, usize>,
    /// Groups with pending pods that were placed together with victims.
    also_placed: FxHashSet<GroupIdx>,
}

impl<'a> Review<'a> {
    fn new(plan: &Plan<'_>, policy: &'a Policy, now: Timestamp, searches: &'a [CommittedSearch]) -> Self {
        let mut last_placed = FxHashMap::default();
        for (at, search) in searches.iter().enumerate() {
            let placed =
                search.solution.before.iter().filter(|(_, state)| state.status.is_active_allocated());
            last_placed.extend(placed.map(|(pod, _)| (*pod, at)));
        }
        let also_placed = searches.iter().flat_map(|search| &search.solution.also_placed);
        let also_placed = also_placed.filter_map(|pod| plan.pods[*pod].group).collect();
        Self { policy, now, searches, last_placed, also_placed }
    }

    /// Restores a group if it fits and all later searches remain valid.
    fn try_restore(&self, plan: &mut Plan<'_>, context: RestoreContext<'_>, loss: &GroupLoss) -> bool {
        if self.also_placed.contains(&loss.group) && has_topology(plan, loss.group) {
            return false;
        }
        let mark = plan.mark();
        let leaf = leaf_of(plan, loss.group);
        let queues: Vec<QueueIdx> = leaf.map_or_else(Vec::new, |leaf| root_path(&**plan, leaf).collect());
        let lost = lost_amounts(plan, loss);
        let parts = self.searches.iter().map(|search| (&search.request.pods[..], &search.solution));
        let restored = context.restore(plan, loss.group, &loss.pods, &loss.before)
            && within_limits(plan, &self.searches[loss.first].solution.ledgers, &parts)
            && (loss.first..self.searches.len()).all(|at| {
                let more = (at > loss.first).then_some((&queues[..], &lost));
                self.is_valid(plan, at, more)
            });
        if !restored {
            plan.rollback(mark);
        }
        restored
    }

    /// Whether a search is valid if these queues had held more before it.
    fn is_valid(&self, cluster: &Cluster, at: usize, more: Option<(&[QueueIdx], &QueueAmounts)>) -> bool {
        let search = &self.searches[at];
        let (part, solution) = (search.request.whole(), &search.solution);
        // Without victims, or with moves only, one victim less changes nothing for the others.
        if solution.before.is_empty() || search.cause == Cause::Consolidation {
            return true;
        }
        let Some(rules) = Rules::new(cluster, self.policy, search.cause, self.now, &part) else {
            return false;
        };
        let mut ledgers: BTreeMap<QueueIdx, Ledger> = solution.ledgers.clone();
        let (queues, amounts) = more.unwrap_or((&[], &[0; 3]));
        for queue in queues {
            if let Some(ledger) = ledgers.get_mut(queue) {
                ledger.allocated = sum(&ledger.allocated, amounts);
            }
        }
        let reclaimer = &rules.reclaimer;
        let entitled = search.cause != Cause::Reclaim
            || rules.shares().is_none()
            || ledgers.get(&reclaimer.queue).is_none_or(|ledger| {
                reclaim::may_reclaim(ledger, reclaimer.preemptibility, &reclaimer.request.amounts)
            });
        let mut victims = victims_of(&solution.batches);
        for (_, pods) in &mut victims {
            pods.retain(|pod| self.last_placed.get(pod).is_none_or(|last| *last <= at));
        }
        let queues = Before::new(cluster, &ledgers, &solution.before);
        // A restored pod uses no disruption budget.
        entitled && rules.check(cluster, &queues, &part, &victims, None).is_ok()
    }
}

/// Amounts of the pods of a group that have no node.
fn lost_amounts(plan: &Plan<'_>, loss: &GroupLoss) -> QueueAmounts {
    let lost = loss.pods.iter().filter(|pod| !plan.pods[**pod].state.status.is_active_allocated());
    lost.fold([0; 3], |all, pod| {
        let place = loss.before[pod].place.as_ref();
        sum(&all, &place.map_or([0; 3], |place| plan.accepted(*pod, place)))
    })
}
