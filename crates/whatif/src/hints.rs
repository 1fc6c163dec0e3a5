//! The smallest changes that run a pending group, each proven by a plan with it.
//!
//! Input: a cluster, the outcome of a plan of it, and a group that the plan does not place. Output: hints, those that change
//! least first, with the groups that each one affects.
//! Invariant: planning with the changes of a hint places pods of the group: its minimum where that is missing, else all of
//! its pending pods.

mod group;
mod nodes;
mod queues;
mod waiting;

use crate::change::Change;
use crate::model::Model;
use kai_cache::Store;
use kai_engine::cluster::group::{Group, MemberKind};
use kai_engine::cluster::pod::Status;
use kai_engine::ids::MemberIdx;
use kai_engine::input::Key;
use kai_engine::outcome::Decision;
use kai_engine::verdict::{GroupVerdict, QueueResource, Verdict};
use kai_engine::{Cluster, ClusterState, Outcome};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RESOURCES: [QueueResource; 3] =
    [QueueResource::Gpu, QueueResource::Cpu, QueueResource::Memory];

/// What would run a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// Why waiting does not help, whatever ends.
    pub never: Option<Never>,
    /// Those that change least first.
    pub hints: Vec<Hint>,
    /// Number of plans that the search made.
    pub plans: u32,
    /// The search ended early, because it had made as many plans as it may.
    pub is_incomplete: bool,
}

/// Why a group does not run even in a cluster without other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {
    /// Its minimum requests more than all nodes have.
    TooLarge { resource: QueueResource, needed: i64, total: i64 },
    /// The verdict of a plan without other groups.
    Alone(Box<GroupVerdict>),
}

/// Changes with which a plan places the group.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    pub changes: Vec<Change>,
    /// The group starts when evicted or terminating pods have ended.
    pub is_pipelined: bool,
    /// Groups that lose pods in this plan and not without the changes, with the number of pods.
    pub evicted: BTreeMap<Key, u32>,
    /// Groups that a plan without the changes would place, and this one does not.
    pub displaced: Vec<Key>,
}

/// Searches hints for a group with at most so many plans. The model is as before afterwards.
pub fn find(model: &mut Model<'_>, base: &Outcome, group: &Key, plans_max: u32) -> Hints {
    let Some(verdict) = base.verdicts.iter().find(|verdict| verdict.group == *group) else {
        return Hints::default();
    };
    let Some(goal) = Goal::new(model.cluster, group).filter(|goal| !goal.is_reached(base)) else {
        return Hints::default();
    };
    if !can_be_changed(&verdict.leading) {
        return Hints::default();
    }
    let plans = PlanBudget { made: 0, max: plans_max, is_exhausted: false };
    let never = never(model, base, group, &goal);
    let mut search = Search { model, base, group, verdict, goal, plans, given: Vec::new() };
    let mut found: Vec<Vec<Change>> = Vec::new();
    let (is_enough, raised) = search.bounds();
    found.extend(is_enough.then(|| raised.clone()));
    found.extend(search.gang_minimum());
    found.extend(search.topology());
    found.extend(search.priority_class());
    if never.is_none() {
        found.extend(search.waiting());
    }
    found.extend(search.reclaim_quota());
    found.extend(search.nodes());
    if found.is_empty() && !raised.is_empty() {
        // Bounds are in the way, and capacity is missing, too.
        search.given.clone_from(&raised);
        let more = [search.gang_minimum(), search.waiting(), search.nodes()];
        search.given.clear();
        found.extend(more.into_iter().flatten().map(|more| [raised.clone(), more].concat()));
    }
    let mut hints: Vec<Hint> = found.into_iter().filter_map(|changes| search.prove(changes)).collect();
    hints.sort_by_key(cost);
    let PlanBudget { made, is_exhausted, .. } = search.plans;
    // Derived values of the cluster are those of the last trial.
    model.plan();
    Hints { never, hints, plans: made, is_incomplete: is_exhausted }
}

/// Whether a change of the cluster can help: an invalid object has to be corrected, and a backoff ends by itself.
fn can_be_changed(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::NotReady { .. }
        | Verdict::OverLimit(_)
        | Verdict::NonPreemptibleOverQuota(_)
        | Verdict::BeyondQueueDepth { .. }
        | Verdict::GangNotSatisfied { .. }
        | Verdict::NoNode(_)
        | Verdict::Topology(_)
        | Verdict::PodUnschedulable { .. }
        | Verdict::PreemptionDelay { .. }
        | Verdict::EvictionBackoff { .. }
        | Verdict::NotAttempted
        | Verdict::NoVictims(_) => true,
        Verdict::Placed
        | Verdict::WaitingForVictims { .. }
        | Verdict::QueueMissing
        | Verdict::QueueNotLeaf
        | Verdict::InvalidGroup(_)
        | Verdict::InBackoff { .. }
        | Verdict::TimeLimitReached { .. }
        | Verdict::Quarantined(_) => false,
    }
}

/// How little a hint changes: nothing, the group, queues, nodes; then the number of changes, their size, and victims.
fn cost(hint: &Hint) -> (u32, usize, i64, u32) {
    let class = |change: &Change| match change {
        Change::Finish { .. } => 0,
        Change::MinMember { .. } | Change::TopologyLevel { .. } | Change::PriorityClass { .. } => 1,
        Change::QueueBound { .. } => 2,
        Change::AddNodesLike { .. } | Change::AddNodes { .. } => 3,
        Change::Drain { .. } | Change::Put(_) => 4,
    };
    let size = |change: &Change| match change {
        Change::Finish { groups } => groups.len() as i64,
        Change::MinMember { from, to, .. } => i64::from(from.saturating_sub(*to)),
        Change::QueueBound { from, to, .. } => to.unwrap_or(i64::MAX).saturating_sub(from.unwrap_or(0)),
        Change::AddNodesLike { count, .. } | Change::AddNodes { count, .. } => i64::from(*count),
        Change::TopologyLevel { .. }
        | Change::PriorityClass { .. }
        | Change::Drain { .. }
        | Change::Put(_) => 1,
    };
    let class = hint.changes.iter().map(class).max().unwrap_or(0);
    let size = hint.changes.iter().map(size).fold(0, i64::saturating_add);
    (class, hint.changes.len(), size, hint.evicted.values().sum())
}

/// The pods that a plan has to place.
pub struct Goal {
    pending: BTreeSet<Key>,
    /// How many of them.
    least: usize,
}

impl Goal {
    /// `None` where the group does not exist or has no pending pods.
    pub fn new(cluster: &Cluster, group: &Key) -> Option<Self> {
        let group = &cluster.groups[cluster.group(group)?];
        let pending = group.pods.iter().filter(|pod| cluster.observed_status(**pod) == Status::Pending);
        let pending: BTreeSet<Key> = pending.map(|pod| cluster.pod_key(*pod)).collect();
        // A gang below its minimum is placed with it or not at all.
        let least = if group.is_gang_satisfied() { pending.len() } else { 1 };
        (!pending.is_empty()).then_some(Self { pending, least })
    }

    pub fn is_reached(&self, outcome: &Outcome) -> bool {
        let placed = outcome.decisions.iter().filter(|decision| match decision {
            Decision::Bind(_) | Decision::Pipeline { moved: false, .. } => {
                self.pending.contains(decision.pod())
            }
            Decision::Pipeline { moved: true, .. } | Decision::Evict { .. } => false,
        });
        placed.count() >= self.least
    }
}

struct PlanBudget {
    made: u32,
    max: u32,
    is_exhausted: bool,
}

/// A search in progress.
struct Search<'m, 'a> {
    model: &'m mut Model<'a>,
    base: &'m Outcome,
    group: &'m Key,
    verdict: &'m GroupVerdict,
    goal: Goal,
    plans: PlanBudget,
    /// Changes that precede all others.
    given: Vec<Change>,
}

impl Search<'_, '_> {
    /// Plans with changes; `None` where no more plans may be made.
    fn plan(&mut self, changes: &[Change]) -> Option<Outcome> {
        if self.plans.made >= self.plans.max {
            self.plans.is_exhausted = true;
            return None;
        }
        self.plans.made += 1;
        Some(if self.given.is_empty() {
            self.model.trial(changes)
        } else {
            self.model.trial(&[self.given.as_slice(), changes].concat())
        })
    }

    /// Whether the group runs with changes.
    fn runs(&mut self, changes: &[Change]) -> bool {
        self.plan(changes).is_some_and(|outcome| self.goal.is_reached(&outcome))
    }

    /// The hint of changes that run the group.
    fn prove(&mut self, changes: Vec<Change>) -> Option<Hint> {
        let outcome = self.model.trial(&changes);
        self.plans.made += 1;
        if !self.goal.is_reached(&outcome) {
            return None;
        }
        let is_pipelined = outcome.decisions.iter().any(
            |decision| matches!(decision, Decision::Pipeline { pod, .. } if self.goal.pending.contains(pod)),
        );
        let ended: &[Key] = if let Some(Change::Finish { groups }) = changes.last() { groups } else { &[] };
        let (before, after) = (evicted(self.base), evicted(&outcome));
        let new = |(group, pods): (Key, u32)| {
            let more = pods.saturating_sub(before.get(&group).copied().unwrap_or(0));
            (more > 0 && group != *self.group).then_some((group, more))
        };
        let placed = placed(self.model.cluster, &outcome);
        let displaced = self::placed(self.model.cluster, self.base);
        let displaced =
            displaced.into_iter().filter(|group| !placed.contains(group) && !ended.contains(group));
        Some(Hint {
            is_pipelined,
            evicted: after.into_iter().filter_map(new).collect(),
            displaced: displaced.collect(),
            changes,
        })
    }

    /// The smallest number in `(fails, works]` with which the group runs, if running is monotonic; else one of them.
    fn least(&mut self, mut fails: i64, mut works: i64, change: impl Fn(i64) -> Vec<Change>) -> i64 {
        // The upper bound is often exact.
        if works - fails > 1 {
            if !self.runs(&change(works - 1)) {
                return works;
            }
            works -= 1;
        }
        while works - fails > 1 {
            let middle = fails + (works - fails) / 2;
            if self.runs(&change(middle)) {
                works = middle;
            } else {
                fails = middle;
            }
        }
        works
    }

    fn cluster_group(&self) -> Option<&Group> {
        let cluster: &Cluster = self.model.cluster;
        cluster.group(self.group).map(|group| &cluster.groups[group])
    }

    /// Pods that are missing for the goal.
    fn needed(&self) -> u32 {
        let Some(group) = self.cluster_group() else { return 1 };
        if group.is_gang_satisfied() {
            return self.goal.pending.len() as u32;
        }
        let min: u32 = group.pod_sets().map(|(_, set)| set.min.saturating_sub(set.active_allocated())).sum();
        min.max(1)
    }
}

/// Victims of a plan by group, without pods that are moved.
fn evicted(outcome: &Outcome) -> BTreeMap<Key, u32> {
    let moved = outcome.decisions.iter().filter_map(|decision| match decision {
        Decision::Pipeline { pod, moved: true, .. } => Some(pod),
        Decision::Pipeline { .. } | Decision::Bind(_) | Decision::Evict { .. } => None,
    });
    let moved: BTreeSet<&Key> = moved.collect();
    let mut all = BTreeMap::new();
    for decision in &outcome.decisions {
        if let Decision::Evict { pod, group: Some(group), .. } = decision
            && !moved.contains(pod)
        {
            *all.entry(group.clone()).or_insert(0) += 1;
        }
    }
    all
}

/// Groups with pods that a plan places.
fn placed(cluster: &Cluster, outcome: &Outcome) -> BTreeSet<Key> {
    let of = outcome.decisions.iter().filter_map(|decision| match decision {
        Decision::Bind(_) | Decision::Pipeline { moved: false, .. } => {
            cluster.pod(decision.pod()).and_then(|pod| cluster.pods[pod].group)
        }
        Decision::Pipeline { .. } | Decision::Evict { .. } => None,
    });
    of.map(|group| cluster.group_key(group)).collect()
}

/// Why the group does not run in a cluster without other groups.
fn never(model: &Model<'_>, base: &Outcome, group: &Key, goal: &Goal) -> Option<Never> {
    let cluster: &Cluster = model.cluster;
    let index = cluster.group(group)?;
    for resource in RESOURCES {
        let needed = least_request(cluster, &cluster.groups[index], Group::root(), resource);
        let total = base.total[resource];
        if needed > total {
            return Some(Never::TooLarge { resource, needed, total });
        }
    }
    let mut objects = model.store.objects().clone();
    let own: BTreeSet<Key> = cluster.groups[index].pods.iter().map(|pod| cluster.pod_key(*pod)).collect();
    // Pods without a group, such as those of DaemonSets, do not end.
    objects.pods.retain(|key, _| {
        own.contains(key) || cluster.pod(key).is_some_and(|pod| cluster.pods[pod].group.is_none())
    });
    objects.pod_groups.retain(|key, _| key == group);
    objects.bind_requests.clear();
    let mut store = Store::of(model.store.settings().clone(), objects);
    let mut state = ClusterState::new();
    let mut alone =
        Model { store: &mut store, cluster: &mut state, policy: model.policy, cycle: model.cycle };
    let outcome = alone.plan();
    if goal.is_reached(&outcome) {
        return None;
    }
    outcome.verdicts.into_iter().find(|verdict| verdict.group == *group).map(|of| Never::Alone(Box::new(of)))
}

/// The least that the minimum of a member requests.
fn least_request(cluster: &Cluster, group: &Group, member: MemberIdx, resource: QueueResource) -> i64 {
    let reference = cluster.figures.gpu_memory_min;
    let mut each: Vec<i64> = match &group.members[member].kind {
        MemberKind::Pods(set) => {
            set.pods.iter().map(|pod| cluster.queue_request(*pod, reference)[resource]).collect()
        }
        MemberKind::Set { children, .. } => {
            children.iter().map(|child| least_request(cluster, group, *child, resource)).collect()
        }
    };
    each.sort_unstable();
    each.into_iter().take(group.needed(member) as usize).fold(0, i64::saturating_add)
}
