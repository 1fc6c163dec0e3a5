//! Filters the victims of a search and validates its scenarios.

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

pub(crate) struct Rules<'a> {
    pub policy: &'a Policy,
    pub cause: Cause,
    pub now: Timestamp,
    pub preemptor: GroupIdx,
    /// The preemptor as a reclaimer, with the request of its next step.
    pub reclaimer: Reclaimer,
    /// Maximum number of victim groups; `None` is unlimited.
    pub max_victims: Option<u32>,
    /// Pods were evicted in this cycle, so that capacity may be free that no search has considered.
    pub capacity_was_freed: bool,
    /// Groups excluded by [`crate::carry_over`], and one of them that would have been a candidate.
    pub excluded: FxHashSet<GroupIdx>,
    pub matched_excluded: OnceCell<GroupIdx>,
}

/// The selected victims by group, in eviction order.
pub(crate) type Victims = Vec<(GroupIdx, Vec<PodIdx>)>;

/// Why a scenario is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// A queue would lose what it is entitled to, or the reclaimer would end more saturated than a victim.
    Unfair,
    /// A group would fall below its minimum before its minimum run time has elapsed.
    MinRuntime(GroupIdx),
    /// A pod that must be moved fits on no other node.
    NotMoved,
    /// A pod placed in this cycle would lose its node.
    PlacedThisCycle,
    /// More groups would be moved than configured.
    TooMany,
    /// A disruption budget would be exceeded.
    DisruptionBudget(Key),
    /// A user's validator rejected it, with its message.
    Plugin(String),
}

impl Rejection {
    /// The rejection with names instead of indices.
    pub(crate) fn named(&self, cluster: &Cluster) -> ScenarioRejection {
        match self {
            Self::Unfair => ScenarioRejection::Unfair,
            Self::MinRuntime(group) => ScenarioRejection::MinRuntime(cluster.group_key(*group)),
            Self::NotMoved => ScenarioRejection::NotMoved,
            Self::PlacedThisCycle => ScenarioRejection::PlacedThisCycle,
            Self::TooMany => ScenarioRejection::TooManyMoved,
            Self::DisruptionBudget(budget) => ScenarioRejection::DisruptionBudget(budget.clone()),
            Self::Plugin(message) => ScenarioRejection::Plugin(message.clone()),
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
            request: whole.reclaim_amount(cluster),
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

    /// The proportion plugin, where it validates reclaim.
    pub(crate) fn shares(&self) -> Option<Proportion> {
        self.policy.registry.builtin.proportion.filter(|proportion| proportion.rules_reclaim)
    }

    /// Whether groups of a leaf queue may be victims.
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

    /// Whether groups of an allowed leaf queue may lose resources; otherwise they may only be moved.
    pub(crate) fn may_lose(&self, cluster: &Cluster, leaf: QueueIdx) -> bool {
        if self.cause != Cause::Reclaim || self.shares().is_none() {
            return true;
        }
        let (reclaimer, victim) = levelled_pair(cluster, self.reclaimer.queue, leaf);
        let (reclaimer, victim) = (cluster.ledger(reclaimer), cluster.ledger(victim));
        reclaim::may_lose(reclaimer, &self.reclaimer.request.amounts, victim, &victim.allocated)
    }

    /// Whether a preemptible group of an allowed leaf queue may be a victim.
    pub(crate) fn allow_group(&self, cluster: &Cluster, victim: GroupIdx) -> bool {
        let g = &cluster.groups[victim];
        let allowed_by_action = match self.cause {
            Cause::Preempt => g.priority < cluster.groups[self.preemptor].priority,
            Cause::Consolidation | Cause::Reclaim | Cause::Stale => true,
        };
        let is_allowed = victim != self.preemptor
            && allowed_by_action
            && (self.capacity_was_freed || !has_pod_placed_this_cycle(cluster, victim))
            && (g.is_elastic() || !self.is_protected(cluster, victim))
            && self
                .policy
                .registry
                .victim_filters
                .iter()
                .all(|filter| filter.may_be_victim(cluster, self.cause, self.preemptor, victim));
        if is_allowed && self.excluded.contains(&victim) {
            self.matched_excluded.get_or_init(|| victim);
            return false;
        }
        is_allowed
    }

    /// Whether the minimum run time of a group has not elapsed. It does not outlast the maximum run time.
    fn is_protected(&self, cluster: &Cluster, victim: GroupIdx) -> bool {
        if cluster.groups[victim].exceeds_time_limit {
            return false;
        }
        let (Some(args), Some(queue)) =
            (&self.policy.registry.builtin.min_runtime, cluster.groups[victim].queue)
        else {
            return false;
        };
        let reclaimer_queue = self.reclaimer.queue;
        let duration = match self.cause {
            Cause::Reclaim => args.reclaim.map(|default| {
                min_runtime::before_reclaim(cluster, args.resolution, reclaimer_queue, queue, default)
            }),
            Cause::Preempt => {
                args.preempt.map(|default| min_runtime::before_preempt(cluster, queue, default))
            }
            Cause::Consolidation | Cause::Stale => None,
        };
        let start = cluster.groups[victim].last_start;
        duration.is_some_and(|duration| min_runtime::is_protected(start, duration, self.now))
    }

    /// Validates a simulated scenario in which the victims were evicted and some of them placed again.
    pub(crate) fn check(
        &self,
        cluster: &Cluster,
        before: &Before<'_>,
        part: &RequestPart<'_>,
        victims: &Victims,
        disruptions: Option<&Disruptions>,
    ) -> Result<(), Rejection> {
        let is_affected = |pod: &PodIdx| cluster.pods[*pod].state != before.pods[pod];
        let affected: Vec<PodIdx> =
            victims.iter().flat_map(|(_, pods)| pods).copied().filter(is_affected).collect();
        // A pod moved earlier in the cycle is evicted already.
        let first_time = |pod: &PodIdx| before.pods[pod].releasing.is_none();
        let evicted: Vec<PodIdx> = affected.iter().copied().filter(first_time).collect();
        for (group, pods) in victims {
            // Pods that this cycle placed beside the victims must not fall below their minimum.
            let g = &cluster.groups[*group];
            let is_incomplete = !g.is_satisfied(Group::root())
                || g.pod_sets().any(|(_, set)| binds_incomplete_gang(cluster, set));
            if pods.iter().any(is_affected) && g.active_allocated() > 0 && is_incomplete {
                return Err(Rejection::PlacedThisCycle);
            }
        }
        match self.cause {
            Cause::Consolidation => {
                let is_evicted = |pod: &PodIdx| cluster.pods[*pod].state.status == Status::Releasing;
                if affected.iter().any(is_evicted) {
                    return Err(Rejection::NotMoved);
                }
                let groups = victims.iter().filter(|(_, pods)| pods.iter().any(is_affected)).count();
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
            // Pods evicted by earlier searches of this cycle still hold their nodes but are lost.
            let lost = |pod: &&PodIdx| {
                let now = cluster.pods[**pod].state.status;
                now == Status::Releasing && now != cluster.observed_status(**pod) && !pods.contains(pod)
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
                self.losses(cluster, before, group, pods).into_iter().map(|amount| (rank, queue, amount)),
            );
        }
        losses.sort_by_key(|(rank, _, _)| *rank);
        let losses: Vec<(QueueIdx, ReclaimAmount)> =
            losses.into_iter().map(|(_, queue, amount)| (queue, amount)).collect();
        let reclaimer = Reclaimer { request: part.reclaim_amount(cluster), ..self.reclaimer };
        reclaim::scenario_is_fair(before, &reclaimer, &losses, proportion.saturation_multiplier)
    }

    /// Losses of a group in the portions that reclaim compares.
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
            // A kept pod is no loss; with `allowConsolidatingReclaim` neither is one that was moved.
            let is_kept =
                p.state == before.pods[pod] || (consolidating && p.state.status.is_active_allocated());
            Some(VictimPod { pod_set, holds: (!is_kept).then(|| allocated_amount(cluster, *pod)) })
        };
        let pods: Vec<VictimPod> = pods.iter().filter_map(victim).collect();
        let minimums: Vec<u32> = sets.iter().map(|(_, min)| *min).collect();
        reclaim::portions(&pods, &minimums).into_vec()
    }
}

/// Whether a pod of a group was placed in this cycle. Such pods keep their nodes, so that selecting them helps only
/// after other evictions: they return to their nodes, and the preemptor uses the capacity freed meanwhile.
pub(crate) fn has_pod_placed_this_cycle(cluster: &Cluster, group: GroupIdx) -> bool {
    cluster.groups[group].pods.iter().any(|pod| cluster.is_placed_this_cycle(*pod))
}

/// Whether pods bound in this cycle would wait for other pods of their minimum.
fn binds_incomplete_gang(cluster: &Cluster, set: &PodSet) -> bool {
    let bound = |pod: &PodIdx| {
        cluster.is_placed_this_cycle(*pod) && cluster.pods[*pod].state.status != Status::Pipelined
    };
    set.active_allocated() - set.count(Status::Pipelined) < set.min && set.pods.iter().any(bound)
}

/// Amounts of a pod, or of the node that it is moved from.
fn allocated_amount(cluster: &Cluster, pod: PodIdx) -> ReclaimAmount {
    let state = &cluster.pods[pod].state;
    let place = state.releasing.as_ref().or(state.place.as_ref());
    let mut amount = ReclaimAmount::all_involved(place.map_or([0; 3], |place| cluster.accepted(pod, place)));
    amount.involved[QueueResource::Gpu] = amount.amounts[QueueResource::Gpu] > cluster.shape(pod).mig_quota;
    amount
}

/// Queues and victims before a simulation.
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

    /// The ledgers on the paths from some leaf queues to the root.
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
