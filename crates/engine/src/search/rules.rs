//! Who may be evicted for a group, and which plans are valid.

use super::pending_request::RequestPart;
use crate::cluster::Cluster;
use crate::cluster::group::{Group, PodSet};
use crate::cluster::pod::{PodState, Status};
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, MemberIdx, PodIdx, QueueIdx};
use crate::input::Key;
use crate::order::tree_walk::leaf_of;
use crate::outcome::Cause;
use crate::plugin::Proportion;
use crate::policy::Policy;
use crate::resource::QueueResource;
use crate::share::min_runtime;
use crate::share::reclaim::{self, ReclaimAmount, Reclaimer, VictimPod};
use crate::share::{Ledger, Preemptibility, QueueTree, levelled_pair, root_path};
use crate::verdict::ScenarioRejection;
use kai_units::Timestamp;
use rustc_hash::FxHashSet;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The rules of one search.
pub(crate) struct Rules<'a> {
    pub policy: &'a Policy,
    pub cause: Cause,
    pub now: Timestamp,
    pub preemptor: GroupIdx,
    /// The preemptor as reclaim sees it, with everything that its next step asks for.
    pub reclaimer: Reclaimer,
    /// Most victim groups; none is unlimited.
    pub max_victims: Option<u32>,
    /// Pods were evicted in this cycle, so that there may be room that nobody looked at yet.
    pub capacity_was_freed: bool,
    /// Groups from which nothing may be taken for what was taken before, and one of them that would have been asked.
    pub excluded: FxHashSet<GroupIdx>,
    pub matched_excluded: OnceCell<GroupIdx>,
}

/// The pods that were asked to give way, by group, in the order of their turns.
pub(crate) type Victims = Vec<(GroupIdx, Vec<PodIdx>)>;

/// Why a plan is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It takes from a queue what that queue is entitled to, or leaves the taker better off than those it took from.
    Unfair,
    /// A group would fall below its minimum before its minimum run time is over.
    MinRuntime(GroupIdx),
    /// A group that must be moved has nowhere to go.
    NotMoved,
    /// A pod that was placed in this cycle would lose its place.
    PlacedThisCycle,
    /// More groups than may be moved.
    TooMany,
    /// A disruption budget.
    DisruptionBudget(Key),
    /// A user's validator, in its own words.
    Plugin(String),
}

impl Rejection {
    /// The same with names.
    pub(crate) fn named(&self, cluster: &Cluster) -> ScenarioRejection {
        match self {
            Self::Unfair => ScenarioRejection::Unfair,
            Self::MinRuntime(group) => ScenarioRejection::MinRuntime(cluster.group_key(*group)),
            Self::NotMoved => ScenarioRejection::NotMoved,
            Self::PlacedThisCycle => ScenarioRejection::PlacedThisCycle,
            Self::TooMany => ScenarioRejection::TooManyMoved,
            Self::DisruptionBudget(budget) => ScenarioRejection::DisruptionBudget(budget.clone()),
            Self::Plugin(words) => ScenarioRejection::Plugin(words.clone()),
        }
    }
}

impl<'a> Rules<'a> {
    pub(crate) fn new(
        cluster: &Cluster,
        policy: &'a Policy,
        cause: Cause,
        now: Timestamp,
        whole: &RequestPart<'_>,
    ) -> Option<Self> {
        let group = &cluster.groups[whole.group];
        let preemptibility =
            if group.preemptible { Preemptibility::Preemptible } else { Preemptibility::NonPreemptible };
        let reclaimer = Reclaimer {
            queue: leaf_of(cluster, whole.group)?,
            preemptibility,
            request: whole.claim(cluster),
        };
        let max_victims = match cause {
            Cause::Consolidation => policy.params.max_consolidation_victims,
            Cause::Reclaim | Cause::Preempt | Cause::Stale => None,
        };
        Some(Self {
            policy,
            cause,
            now,
            preemptor: whole.group,
            reclaimer,
            max_victims,
            capacity_was_freed: false,
            excluded: FxHashSet::default(),
            matched_excluded: OnceCell::new(),
        })
    }

    /// Fair share, where it rules reclaim.
    pub(crate) fn shares(&self) -> Option<Proportion> {
        self.policy.registry.builtin.proportion.filter(|proportion| proportion.rules_reclaim)
    }

    /// Whether groups of a leaf queue may be victims at all.
    pub(crate) fn allow_leaf(&self, cluster: &Cluster, leaf: QueueIdx) -> bool {
        match self.cause {
            Cause::Consolidation => true,
            Cause::Preempt => leaf == self.reclaimer.queue,
            Cause::Reclaim => {
                leaf != self.reclaimer.queue
                    && (self.shares().is_none() || reclaim::may_have_victims(cluster, &self.reclaimer, leaf))
            }
            Cause::Stale => false,
        }
    }

    /// Whether groups of an allowed leaf may lose something, as its queue stands. Others may only be moved.
    pub(crate) fn may_lose(&self, cluster: &Cluster, leaf: QueueIdx) -> bool {
        if self.cause != Cause::Reclaim || self.shares().is_none() {
            return true;
        }
        let (taking, giving) = levelled_pair(cluster, self.reclaimer.queue, leaf);
        let (taking, giving) = (cluster.ledger(taking), cluster.ledger(giving));
        reclaim::may_lose(taking, &self.reclaimer.request.amounts, giving, &giving.allocated)
    }

    /// Whether a preemptible group of an allowed leaf may be a victim.
    pub(crate) fn allow_group(&self, cluster: &Cluster, victim: GroupIdx) -> bool {
        let g = &cluster.groups[victim];
        let by_cause = match self.cause {
            Cause::Preempt => g.priority < cluster.groups[self.preemptor].priority,
            Cause::Consolidation | Cause::Reclaim | Cause::Stale => true,
        };
        let may = victim != self.preemptor
            && by_cause
            && (self.capacity_was_freed || !is_fresh(cluster, victim))
            && (g.is_elastic() || !self.is_protected(cluster, victim))
            && self
                .policy
                .registry
                .victim_filters
                .iter()
                .all(|filter| filter.may_be_victim(cluster, self.cause, self.preemptor, victim));
        if may && self.excluded.contains(&victim) {
            self.matched_excluded.get_or_init(|| victim);
            return false;
        }
        may
    }

    /// Whether a group's minimum run time is not over.
    fn is_protected(&self, cluster: &Cluster, victim: GroupIdx) -> bool {
        let (Some(args), Some(queue)) =
            (&self.policy.registry.builtin.min_runtime, cluster.groups[victim].queue)
        else {
            return false;
        };
        let taker = self.reclaimer.queue;
        let span = match self.cause {
            Cause::Reclaim => args
                .reclaim
                .map(|default| min_runtime::before_reclaim(cluster, args.resolution, taker, queue, default)),
            Cause::Preempt => {
                args.preempt.map(|default| min_runtime::before_preempt(cluster, queue, default))
            }
            Cause::Consolidation | Cause::Stale => None,
        };
        let start = cluster.groups[victim].last_start;
        span.is_some_and(|span| min_runtime::is_protected(start, span, self.now))
    }

    /// Whether a plan in which these pods were evicted, some of them placed again, may be carried out.
    pub(crate) fn check(
        &self,
        cluster: &Cluster,
        before: &Before<'_>,
        part: &RequestPart<'_>,
        victims: &Victims,
        disruptions: Option<&Disruptions>,
    ) -> Result<(), Rejection> {
        let gone = |pod: &PodIdx| cluster.pods[*pod].state != before.pods[pod];
        let hit: Vec<PodIdx> = victims.iter().flat_map(|(_, pods)| pods).copied().filter(gone).collect();
        // What was moved earlier in the cycle has been evicted already.
        let first_time = |pod: &PodIdx| before.pods[pod].leaving.is_none();
        let evicted: Vec<PodIdx> = hit.iter().copied().filter(first_time).collect();
        for (group, pods) in victims {
            // What this cycle placed beside the victims must not be left alone.
            let g = &cluster.groups[*group];
            let alone =
                !g.is_satisfied(Group::root()) || g.pod_sets().any(|(_, set)| waits_for(cluster, set));
            if pods.iter().any(gone) && g.active_allocated() > 0 && alone {
                return Err(Rejection::PlacedThisCycle);
            }
        }
        match self.cause {
            Cause::Consolidation => {
                let leaves = |pod: &PodIdx| cluster.pods[*pod].state.status == Status::Releasing;
                if hit.iter().any(leaves) {
                    return Err(Rejection::NotMoved);
                }
                let groups = victims.iter().filter(|(_, pods)| pods.iter().any(gone)).count();
                if self.max_victims.is_some_and(|most| groups > most as usize) {
                    return Err(Rejection::TooMany);
                }
            }
            Cause::Reclaim => {
                if !self.is_fair(cluster, before, part, victims) {
                    return Err(Rejection::Unfair);
                }
                self.check_min_runtime(cluster, victims)?;
            }
            Cause::Preempt => self.check_min_runtime(cluster, victims)?,
            Cause::Stale => {}
        }
        if let Some(budget) = disruptions.and_then(|left| left.broken_by(cluster, &evicted)) {
            return Err(Rejection::DisruptionBudget(budget.clone()));
        }
        for validator in &self.policy.registry.validators {
            validator.accepts(cluster, self.cause, self.preemptor, &evicted).map_err(Rejection::Plugin)?;
        }
        Ok(())
    }

    fn check_min_runtime(&self, cluster: &Cluster, victims: &Victims) -> Result<(), Rejection> {
        for (group, pods) in victims {
            let group = *group;
            let g = &cluster.groups[group];
            if !g.is_elastic() || !self.is_protected(cluster, group) {
                continue;
            }
            let of =
                |member: MemberIdx| pods.iter().filter(|p| cluster.pods[**p].member == Some(member)).count();
            // Pods that earlier searches of this cycle evicted are still on their nodes, and lost all the same.
            let lost = |pod: &&PodIdx| {
                let now = cluster.pods[**pod].state.status;
                now == Status::Releasing && now != cluster.told_status(**pod) && !pods.contains(pod)
            };
            let used = |set: &PodSet| set.active_used() - set.pods.iter().filter(lost).count() as u32;
            let sets = g.pod_sets().map(|(member, set)| (used(set), of(member) as u32, set.min));
            if min_runtime::breaks_minimum(sets.filter(|(_, victims, _)| *victims > 0)) {
                return Err(Rejection::MinRuntime(group));
            }
        }
        Ok(())
    }

    fn is_fair(
        &self,
        cluster: &Cluster,
        before: &Before<'_>,
        part: &RequestPart<'_>,
        victims: &Victims,
    ) -> bool {
        let Some(proportion) = self.shares() else { return true };
        let mut losses: Vec<(u32, QueueIdx, ReclaimAmount)> = Vec::new();
        for (group, pods) in victims {
            let group = *group;
            let Some(queue) = cluster.groups[group].queue else { continue };
            let rank = cluster.queues[queue].rank;
            losses.extend(
                self.losses(cluster, before, group, pods).into_iter().map(|claim| (rank, queue, claim)),
            );
        }
        losses.sort_by_key(|(rank, _, _)| *rank);
        let losses: Vec<(QueueIdx, ReclaimAmount)> =
            losses.into_iter().map(|(_, queue, claim)| (queue, claim)).collect();
        let reclaimer = Reclaimer { request: part.claim(cluster), ..self.reclaimer };
        reclaim::scenario_is_fair(before, &reclaimer, &losses, proportion.saturation_multiplier)
    }

    /// What a group loses, in portions.
    fn losses(
        &self,
        cluster: &Cluster,
        before: &Before<'_>,
        group: GroupIdx,
        pods: &[PodIdx],
    ) -> Vec<ReclaimAmount> {
        let g = &cluster.groups[group];
        let sets: Vec<(MemberIdx, u32)> = g.pod_sets().map(|(member, set)| (member, set.min)).collect();
        let consolidating = self.policy.params.allow_consolidating_reclaim;
        let victim = |pod: &PodIdx| {
            let p = &cluster.pods[*pod];
            let pod_set = sets.iter().position(|(member, _)| p.member == Some(*member))?;
            // What stays is not lost, and where moving is free, what got another place is not either.
            let kept = p.state == before.pods[pod] || (consolidating && p.state.status.is_active_allocated());
            Some(VictimPod { pod_set, holds: (!kept).then(|| held_claim(cluster, *pod)) })
        };
        let pods: Vec<VictimPod> = pods.iter().filter_map(victim).collect();
        let minimums: Vec<u32> = sets.iter().map(|(_, min)| *min).collect();
        reclaim::portions(&pods, &minimums).into_vec()
    }
}

/// Whether a group got a place in this cycle. Such pods keep their places, so that asking them to give way helps only
/// where evictions made room since: everybody finds their place again, and the preemptor finds the room.
pub(crate) fn is_fresh(cluster: &Cluster, group: GroupIdx) -> bool {
    cluster.groups[group].pods.iter().any(|pod| cluster.is_fresh(*pod))
}

/// Whether pods that this cycle binds would wait for others of their minimum.
fn waits_for(cluster: &Cluster, set: &PodSet) -> bool {
    let bound = |pod: &PodIdx| cluster.is_fresh(*pod) && cluster.pods[*pod].state.status != Status::Pipelined;
    set.active_allocated() - set.count(Status::Pipelined) < set.min && set.pods.iter().any(bound)
}

/// What a pod holds, or held before it was moved.
fn held_claim(cluster: &Cluster, pod: PodIdx) -> ReclaimAmount {
    let state = &cluster.pods[pod].state;
    let place = state.leaving.as_ref().or(state.place.as_ref());
    let mut claim = ReclaimAmount::all_involved(place.map_or([0; 3], |place| cluster.accepted(pod, place)));
    claim.involved[QueueResource::Gpu] = claim.amounts[QueueResource::Gpu] > cluster.shape(pod).mig_quota;
    claim
}

/// The queues and victims as they were before a simulation.
pub(crate) struct Before<'c> {
    cluster: &'c Cluster,
    ledgers: &'c BTreeMap<QueueIdx, Ledger>,
    pods: &'c BTreeMap<PodIdx, PodState>,
}

impl<'c> Before<'c> {
    pub(crate) fn new(
        cluster: &'c Cluster,
        ledgers: &'c BTreeMap<QueueIdx, Ledger>,
        pods: &'c BTreeMap<PodIdx, PodState>,
    ) -> Self {
        Self { cluster, ledgers, pods }
    }

    /// The ledgers on the ways from some leaves to the root.
    pub(crate) fn record(
        cluster: &Cluster,
        leaves: impl IntoIterator<Item = QueueIdx>,
    ) -> BTreeMap<QueueIdx, Ledger> {
        let mut ledgers = BTreeMap::new();
        for leaf in leaves {
            for queue in root_path(cluster, leaf) {
                if ledgers.contains_key(&queue) {
                    break;
                }
                ledgers.insert(queue, cluster.ledger(queue).clone());
            }
        }
        ledgers
    }
}

impl QueueTree for Before<'_> {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.cluster.parent(queue)
    }
    fn ledger(&self, queue: QueueIdx) -> &Ledger {
        self.ledgers.get(&queue).unwrap_or_else(|| self.cluster.ledger(queue))
    }
}
