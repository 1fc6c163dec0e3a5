//! Victims that need not give way after all: they keep their places.
//!
//! A search asks groups to give way before it knows what it needs, and a later search of the same cycle may make room
//! that an earlier one had to take. Whoever can be put back with everybody else's place as it is, and all rules
//! content, is put back: group by group, and inside a search also pod by pod.

use super::pending_request::{PendingRequest, RequestPart};
use super::rules::{Before, Rules, Victims};
use super::simulation::{Simulation, Solution, victims_of};
use crate::cluster::Cluster;
use crate::cluster::group::PodSet;
use crate::cluster::pod::PodState;
use crate::ids::{GroupIdx, PodIdx, QueueIdx};
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

/// Pods as they were.
type States = BTreeMap<PodIdx, PodState>;

/// Where pods are put back: the policy, and the seed that names GPU groups.
#[derive(Clone, Copy)]
pub(crate) struct RestoreContext<'a> {
    pub policy: &'a Policy,
    pub seed: u64,
}

impl Simulation<'_> {
    /// Lets victims keep their places where everybody else's stay as they are and the rules remain content.
    pub(crate) fn reduce(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        mut solution: Solution,
    ) -> Solution {
        let victims = victims_of(&solution.batches);
        // Whoever goes home leaves the place that was found elsewhere, which may be what another one lacked.
        while self.reduce_once(plan, part, &solution, &victims) {}
        solution
            .batches
            .retain(|batch| batch.pods.iter().any(|pod| plan.pods[*pod].state != solution.before[pod]));
        solution
    }

    /// Goes over all victims, the last first; true when one of them goes home from another place.
    fn reduce_once(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        solution: &Solution,
        victims: &Victims,
    ) -> bool {
        let mut left_a_place = false;
        for (group, pods) in victims.iter().rev() {
            let hit: Vec<PodIdx> =
                pods.iter().copied().filter(|pod| plan.pods[*pod].state != solution.before[pod]).collect();
            // What was moved earlier in the cycle has been evicted already.
            if hit.is_empty() || hit.iter().any(|pod| solution.before[pod].leaving.is_some()) {
                continue;
            }
            if is_tied(plan, *group, &solution.joined) {
                continue;
            }
            let moved = hit.iter().any(|pod| plan.pods[*pod].state.leaving.is_some());
            if self.try_keep(plan, part, *group, &hit, (solution, victims)) {
                left_a_place |= moved;
                continue;
            }
            // One by one only where pods may be apart from each other.
            let may_part = plan.groups[*group].members.iter().all(|member| member.topology.is_none());
            for &pod in hit.iter().rev().filter(|_| may_part) {
                let set = plan.pods[pod].member.and_then(|m| plan.groups[*group].members[m].pod_set());
                let moved = plan.pods[pod].state.leaving.is_some();
                if set.is_some_and(PodSet::is_satisfied)
                    && self.try_keep(plan, part, *group, &[pod], (solution, victims))
                {
                    left_a_place |= moved;
                }
            }
        }
        left_a_place
    }

    /// Lets pods of a group keep their places if everything allows it.
    fn try_keep(
        &self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        group: GroupIdx,
        pods: &[PodIdx],
        (solution, victims): (&Solution, &Victims),
    ) -> bool {
        let mark = plan.mark();
        let ground = RestoreContext { policy: self.rules.policy, seed: self.seed };
        let stays = ground.put_back(plan, group, pods, &solution.before)
            && within_limits(plan, &solution.ledgers, &std::iter::once((part.pods, solution)))
            && {
                let queues = Before::new(plan, &solution.ledgers, &solution.before);
                self.rules.check(plan, &queues, part, victims, Some(self.disruptions)).is_ok()
            };
        if !stays {
            plan.rollback(mark);
        }
        stays
    }
}

/// Whether waiting pods of a group got their places near the new ones of its victims.
fn is_tied(plan: &Plan<'_>, group: GroupIdx, joined: &[PodIdx]) -> bool {
    has_topology(plan, group) && joined.iter().any(|pod| plan.pods[*pod].group == Some(group))
}

fn has_topology(plan: &Plan<'_>, group: GroupIdx) -> bool {
    plan.groups[group].members.iter().any(|member| member.topology.is_some())
}

impl RestoreContext<'_> {
    /// Puts pods of a group back where they were; false when that does not work out.
    fn put_back(self, plan: &mut Plan<'_>, group: GroupIdx, pods: &[PodIdx], before: &States) -> bool {
        for &pod in pods {
            if plan.pods[pod].state.leaving.is_some() {
                plan.evict(pod);
            }
        }
        pods.iter().all(|pod| {
            let Some(node) = before[pod].node() else { return false };
            if is_plain(plan, *pod, &before[pod]) {
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
            // The node takes it; on a GPU that all others leave it would open a new group, but it may keep its own.
            if plan.pods[*pod].state.place != before[pod].place && !plan.pods[*pod].has_claims() {
                plan.set_state(*pod, before[pod].clone());
            }
            let back = &plan.pods[*pod].state;
            (&back.place, &back.leaving) == (&before[pod].place, &before[pod].leaving)
                && plan.nodes[node].is_sound()
        })
    }
}

/// Whether no queue is beyond its limit; where nothing is new it may be as far beyond as it was.
fn within_limits<'s>(
    plan: &Plan<'_>,
    before: &BTreeMap<QueueIdx, Ledger>,
    parts: &(impl Iterator<Item = (&'s [PodIdx], &'s Solution)> + Clone),
) -> bool {
    let is_moved = |pod: &&PodIdx| plan.pods[**pod].state.leaving.is_some();
    let new = |(pods, solution): (&'s [PodIdx], &'s Solution)| {
        pods.iter().chain(solution.before.keys().filter(is_moved)).chain(&solution.joined)
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

/// A search that was carried out.
pub(crate) struct CommittedSearch {
    pub cause: Cause,
    pub ask: PendingRequest,
    pub solution: Solution,
}

/// What a cycle took from a group.
struct GroupLoss {
    group: GroupIdx,
    /// The first taking that hit it.
    first: usize,
    pods: Vec<PodIdx>,
    /// As the cycle found them.
    before: States,
}

/// The groups that the cycle took from, the last first.
fn losses(plan: &Plan<'_>, takings: &[CommittedSearch]) -> Vec<GroupLoss> {
    let mut losses: Vec<GroupLoss> = Vec::new();
    let mut at: FxHashMap<GroupIdx, usize> = FxHashMap::default();
    for (first, taking) in takings.iter().enumerate() {
        for (&pod, state) in &taking.solution.before {
            // What was moved by an earlier taking is known from there.
            let Some(group) = plan.pods[pod].group.filter(|_| state.leaving.is_none()) else { continue };
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

/// Puts groups back that later takings made room for; gives back their pods.
pub(crate) fn restore_unneeded_victims(
    plan: &mut Plan<'_>,
    ground: RestoreContext<'_>,
    now: Timestamp,
    takings: &[CommittedSearch],
) -> Vec<PodIdx> {
    let mut back = Vec::new();
    let review = Review::new(plan, ground.policy, now, takings);
    let mut losses = losses(plan, takings);
    // Whoever goes home leaves the place that was found elsewhere, which may be what another one lacked.
    loop {
        let before = losses.len();
        losses.retain(|loss| {
            let stays = review.try_return(plan, ground, loss);
            if stays {
                back.extend(&loss.pods);
            }
            !stays
        });
        if losses.len() == before {
            return back;
        }
    }
}

/// The takings of a cycle, judged once more when it ends.
struct Review<'a> {
    policy: &'a Policy,
    now: Timestamp,
    takings: &'a [CommittedSearch],
    /// The last taking that found a pod in a place: what happened then is not the doing of those before.
    last_placed: FxHashMap<PodIdx, usize>,
    /// Groups of which pods that waited got a place along with victims.
    joined: FxHashSet<GroupIdx>,
}

impl<'a> Review<'a> {
    fn new(plan: &Plan<'_>, policy: &'a Policy, now: Timestamp, takings: &'a [CommittedSearch]) -> Self {
        let mut last_placed = FxHashMap::default();
        for (at, taking) in takings.iter().enumerate() {
            let placed =
                taking.solution.before.iter().filter(|(_, state)| state.status.is_active_allocated());
            last_placed.extend(placed.map(|(pod, _)| (*pod, at)));
        }
        let joined = takings.iter().flat_map(|taking| &taking.solution.joined);
        let joined = joined.filter_map(|pod| plan.pods[*pod].group).collect();
        Self { policy, now, takings, last_placed, joined }
    }

    /// Puts a group back if there is room and all takings since remain valid.
    fn try_return(&self, plan: &mut Plan<'_>, ground: RestoreContext<'_>, loss: &GroupLoss) -> bool {
        if self.joined.contains(&loss.group) && has_topology(plan, loss.group) {
            return false;
        }
        let mark = plan.mark();
        let leaf = leaf_of(plan, loss.group);
        let queues: Vec<QueueIdx> = leaf.map_or_else(Vec::new, |leaf| root_path(&**plan, leaf).collect());
        let lost = lost_amounts(plan, loss);
        let parts = self.takings.iter().map(|taking| (&taking.ask.pods[..], &taking.solution));
        let stays = ground.put_back(plan, loss.group, &loss.pods, &loss.before)
            && within_limits(plan, &self.takings[loss.first].solution.ledgers, &parts)
            && (loss.first..self.takings.len()).all(|at| {
                let more = (at > loss.first).then_some((&queues[..], &lost));
                self.is_valid(plan, at, more)
            });
        if !stays {
            plan.rollback(mark);
        }
        stays
    }

    /// Whether the rules are content with a taking, had these queues held so much more before it.
    fn is_valid(&self, cluster: &Cluster, at: usize, more: Option<(&[QueueIdx], &QueueAmounts)>) -> bool {
        let taking = &self.takings[at];
        let (part, solution) = (taking.ask.whole(), &taking.solution);
        // Where nobody gives way, or everybody is only moved, one less changes nothing for the others.
        if solution.before.is_empty() || taking.cause == Cause::Consolidation {
            return true;
        }
        let Some(rules) = Rules::new(cluster, self.policy, taking.cause, self.now, &part) else {
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
        let entitled = taking.cause != Cause::Reclaim
            || rules.shares().is_none()
            || ledgers.get(&reclaimer.queue).is_none_or(|ledger| {
                reclaim::may_reclaim(ledger, reclaimer.preemptibility, &reclaimer.request.amounts)
            });
        let mut victims = victims_of(&solution.batches);
        for (_, pods) in &mut victims {
            pods.retain(|pod| self.last_placed.get(pod).is_none_or(|last| *last <= at));
        }
        let queues = Before::new(cluster, &ledgers, &solution.before);
        // Whoever comes back draws on no disruption budget.
        entitled && rules.check(cluster, &queues, &part, &victims, None).is_ok()
    }
}

/// What a group has lost for good.
fn lost_amounts(plan: &Plan<'_>, loss: &GroupLoss) -> QueueAmounts {
    let lost = loss.pods.iter().filter(|pod| !plan.pods[**pod].state.status.is_active_allocated());
    lost.fold([0; 3], |all, pod| {
        let place = loss.before[pod].place.as_ref();
        sum(&all, &place.map_or([0; 3], |place| plan.accepted(*pod, place)))
    })
}
