//! The smallest changes that run a pending group, each proven by a plan with it.
//!
//! Input: a cluster, the outcome of a plan of it, and a group that the plan does not place. Output: hints, those that change
//! least first, with the groups that each one affects.
//! Candidates are judged by plans that leave out most other groups; what is reported is proven by a whole plan, which in a
//! large cluster is not continued beyond the action that places the group.
//! Invariant: planning with the changes of a hint places pods of the group: its minimum where that is missing, else all of
//! its pending pods.

mod group;
mod nodes;
mod queues;
mod waiting;

use crate::change::Change;
use crate::model::Model;
use kai_engine::cluster::group::{Group, MemberKind};
use kai_engine::cluster::pod::Status;
use kai_engine::ids::{GroupIdx, MemberIdx};
use kai_engine::input::Key;
use kai_engine::outcome::Decision;
use kai_engine::policy::Action;
use kai_engine::verdict::{GroupVerdict, QueueResource, Verdict};
use kai_engine::{Cluster, Focus, Focused, Others, Outcome, Policy};
use kai_units::Span;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RESOURCES: [QueueResource; 3] =
    [QueueResource::Gpu, QueueResource::Cpu, QueueResource::Memory];

/// Steps of a search: at least, per node, and at most.
const STEPS_LEAST: u64 = 100_000;
const STEPS_PER_NODE: u64 = 150;
const STEPS_MOST: u64 = 1_000_000;
/// The part of the steps that a search for victims may take while a candidate is judged: one in so many.
const JUDGEMENTS: u64 = 8;
/// Nodes up to which a search is thorough.
const THOROUGH_NODES: u64 = 100;
/// What each plan costs, in steps.
const PLAN_STEPS: u64 = 50;
/// Nodes that are read in the time of a step, and pending groups.
const NODES_PER_STEP: u64 = 3;
const GROUPS_PER_STEP: u64 = 8;
/// What an edit of an object and its undoing cost, in steps.
const EDIT_STEPS: u64 = 10;
/// Steps in a second of a configured budget.
const STEPS_PER_SECOND: u64 = 2_000;

/// What would run a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// Why waiting does not help, whatever ends.
    pub never: Option<Never>,
    /// Those that change least first.
    pub hints: Vec<Hint>,
    /// Number of plans that the search made, most of which leave out other groups.
    pub plans: u32,
    /// Number of whole plans among them.
    pub proofs: u32,
    /// What the plans cost: node evaluations and edits, and an estimate of what they read.
    pub steps: u64,
    /// The search ended early, because it had taken as many steps as it may.
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
    /// Groups that lose pods in this plan and not without the changes, with the number of pods. A search that is not thorough
    /// finds only victims of the group itself.
    pub evicted: BTreeMap<Key, u32>,
    /// Groups that a plan without the changes would place, and this one does not.
    pub displaced: Vec<Key>,
}

/// Searches hints for a group. The model is as before afterwards.
pub fn find(model: &mut Model<'_>, base: &Outcome, group: &Key, effort: Effort) -> Hints {
    let Some(verdict) = base.verdicts.iter().find(|verdict| verdict.group == *group) else {
        return Hints::default();
    };
    let Some(goal) = Goal::new(model.cluster, group).filter(|goal| !goal.is_reached(base)) else {
        return Hints::default();
    };
    if !can_be_changed(&verdict.leading) {
        return Hints::default();
    }
    let too_large = too_large(model.cluster, base, group);
    let known = Known::new(model.cluster, base);
    let budget = Budget::new(model.cluster, effort.steps_max);
    let (judgement, given) = (Judgement::Free, Vec::new());
    let policies = Policies::new(model.policy, effort);
    let Model { store, cluster, policy, cycle } = model;
    let mut reborrowed = Model { store, cluster, policy, cycle: *cycle };
    let (model_of, policies) = (&mut reborrowed, &policies);
    let mut search = Search {
        model: model_of,
        base,
        group,
        verdict,
        goal,
        known,
        judgement,
        effort,
        policies,
        budget,
        given,
    };
    let mut hints = Vec::new();
    // What needs no evictions is searched first, since each search for victims costs as much as many other plans.
    let mut left = Vec::new();
    for family in FAMILIES {
        if family == Family::Waiting && too_large.is_some() {
            continue;
        }
        match search.of_free_capacity(family) {
            Some(hint) => hints.push(hint),
            None => left.push(family),
        }
    }
    if effort.is_thorough {
        hints.extend(left.iter().filter_map(|family| search.of_family(*family)));
    }
    if hints.is_empty() {
        // Bounds are in the way, and capacity is missing, too.
        search.judgement = if effort.is_thorough { Judgement::Free } else { Judgement::AllFree };
        let (_, raised) = search.bounds();
        if !raised.is_empty() {
            search.given = raised;
            for family in [Family::GangMinimum, Family::Waiting, Family::Nodes] {
                let free = search.of_free_capacity(family);
                let is_enough = free.is_some() || !effort.is_thorough;
                hints.extend(if is_enough { free } else { search.of_family(family) });
            }
            search.given.clear();
        }
    }
    if !effort.is_thorough && hints.is_empty() {
        hints.extend(left.iter().filter_map(|family| search.of_family(*family)));
    }
    hints.sort_by_key(cost);
    let can_wait = hints.iter().flat_map(|hint| &hint.changes).any(|of| matches!(of, Change::Finish { .. }));
    let never = too_large.or_else(|| if can_wait { None } else { search.not_even_alone() });
    let Budget { plans, proofs, steps, is_exhausted, .. } = search.budget;
    // Derived values of the cluster are those of the last trial.
    model.refresh();
    Hints { never, hints, plans, proofs, steps, is_incomplete: is_exhausted }
}

/// How much a search may cost. It is counted in steps instead of time, so that equal clusters get equal hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Node evaluations and edits of all plans.
    pub steps_max: u64,
    /// Every hint is planned with searches for victims of all groups, which take most of a cycle: hints name all groups that
    /// are affected, and changes that need evictions are searched beside those that do not.
    pub is_thorough: bool,
}

impl Effort {
    /// So that a search ends within a fraction of a second in a cluster of hundreds of nodes and within two seconds in one of
    /// thousands.
    pub fn of(cluster: &Cluster) -> Self {
        let nodes = cluster.nodes_by_rank.len() as u64;
        let steps_max = nodes.saturating_mul(STEPS_PER_NODE).clamp(STEPS_LEAST, STEPS_MOST);
        Self { steps_max, is_thorough: nodes <= THOROUGH_NODES }
    }
}

/// Kinds of changes, in the order in which they are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Bounds,
    GangMinimum,
    Topology,
    PriorityClass,
    Waiting,
    ReclaimQuota,
    Nodes,
}

const FAMILIES: [Family; 7] = [
    Family::Bounds,
    Family::GangMinimum,
    Family::Topology,
    Family::PriorityClass,
    Family::Waiting,
    Family::ReclaimQuota,
    Family::Nodes,
];

/// How a candidate is judged before it is proven: the later, the more exact and the more expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// Beside the group only those are planned that are placed without the changes, and nothing is evicted.
    Free,
    /// All groups are planned, and nothing is evicted.
    AllFree,
    /// Beside the group only those are planned that are placed without the changes, and the group alone evicts.
    Known,
    /// All groups are placed on free capacity, and the group alone evicts.
    Placed,
    /// By a whole plan.
    Whole,
}

/// The policies of plans.
struct Policies {
    whole: Policy,
    /// With the action alone that evicts nothing.
    allocating: Policy,
    /// With small budgets for searches of victims.
    judging: Policy,
    /// Whether nothing precedes that action.
    allocates_first: bool,
}

impl Policies {
    fn new(whole: &Policy, effort: Effort) -> Self {
        let (mut allocating, mut judging) = (whole.clone(), whole.clone());
        allocating.actions.retain(|action| *action == Action::Allocate);
        if !effort.is_thorough {
            let seconds = effort.steps_max / JUDGEMENTS / STEPS_PER_SECOND;
            let most = Span::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX).max(1));
            judging.budgets.group_max = judging.budgets.group_max.min(most);
        }
        let allocates_first = whole.actions.first() == Some(&Action::Allocate);
        Self { whole: whole.clone(), allocating, judging, allocates_first }
    }
}

/// What a plan without changes did.
struct Known {
    placed: BTreeSet<GroupIdx>,
    /// Groups for which it evicted.
    evicting: BTreeSet<GroupIdx>,
}

impl Known {
    fn new(cluster: &Cluster, base: &Outcome) -> Self {
        let preemptors = base.decisions.iter().filter_map(|decision| match decision {
            Decision::Evict { preemptor, .. } => cluster.group(preemptor.as_ref()?),
            Decision::Bind(_) | Decision::Pipeline { .. } => None,
        });
        let evicting = preemptors.collect();
        let placed = placed(cluster, base).iter().filter_map(|group| cluster.group(group)).collect();
        Self { placed, evicting }
    }
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

    fn focus<'a>(&'a self, group: &'a Key, others: Others<'a>) -> Focus<'a> {
        Focus { group, pods: &self.pending, least: self.least, others }
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

/// What a search has used, and may use.
struct Budget {
    /// What a plan costs beside the steps that it counts: the nodes and groups that are read.
    fixed: u64,
    max: u64,
    steps: u64,
    plans: u32,
    proofs: u32,
    is_exhausted: bool,
}

impl Budget {
    fn new(cluster: &Cluster, max: u64) -> Self {
        let (nodes, groups) = (cluster.nodes_by_rank.len() as u64, cluster.pending_groups().count() as u64);
        let fixed = PLAN_STEPS + nodes / NODES_PER_STEP + groups / GROUPS_PER_STEP;
        Self { fixed, max, steps: 0, plans: 0, proofs: 0, is_exhausted: false }
    }

    fn left(&mut self) -> Option<u64> {
        let left = self.max.saturating_sub(self.steps);
        self.is_exhausted |= left == 0;
        (left > 0).then_some(left)
    }

    fn spend(&mut self, planned: &Focused, edits: usize) {
        self.plans += 1;
        self.steps += self.fixed + planned.steps + edits as u64 * EDIT_STEPS;
    }
}

/// A search in progress.
struct Search<'m, 'a> {
    model: &'m mut Model<'a>,
    base: &'m Outcome,
    group: &'m Key,
    verdict: &'m GroupVerdict,
    goal: Goal,
    known: Known,
    judgement: Judgement,
    effort: Effort,
    policies: &'a Policies,
    budget: Budget,
    /// Changes that precede all others.
    given: Vec<Change>,
}

impl<'a> Search<'_, 'a> {
    /// The hint of a kind without evictions.
    fn of_free_capacity(&mut self, family: Family) -> Option<Hint> {
        if !self.policies.allocates_first {
            return None;
        }
        self.judgement = Judgement::Free;
        let mut changes = self.propose(family)?;
        self.judgement = Judgement::AllFree;
        if !self.runs(&changes) {
            changes = self.propose(family)?;
        }
        let all = [self.given.as_slice(), &changes].concat();
        // The action comes first in a cycle, so that what it places is placed whatever the later ones do.
        let planned = self.whole_plan(&all, &self.policies.allocating)?;
        if !planned.is_reached {
            return None;
        }
        if self.effort.is_thorough {
            return self.prove(all);
        }
        let placed_before = placed_by(self.model.cluster, self.base, Some(Action::Allocate.name()));
        Some(self.hint(all, &planned.outcome, &placed_before))
    }

    /// The hint of a kind. What a judgement finds and a whole plan refutes is searched again with the next judgement.
    fn of_family(&mut self, family: Family) -> Option<Hint> {
        let mut refuted: Option<Vec<Change>> = None;
        let judgements: &[Judgement] = if self.effort.is_thorough {
            &[Judgement::Known, Judgement::Placed, Judgement::Whole]
        } else {
            // A refutation costs as much as a cycle.
            &[Judgement::Placed]
        };
        for &judgement in judgements {
            self.judgement = judgement;
            let changes = self.propose(family)?;
            if refuted.as_ref() == Some(&changes) {
                continue;
            }
            let all = [self.given.as_slice(), &changes].concat();
            if let Some(hint) = self.prove(all) {
                return Some(hint);
            }
            refuted = Some(changes);
        }
        None
    }

    fn propose(&mut self, family: Family) -> Option<Vec<Change>> {
        match family {
            Family::Bounds => {
                let (is_enough, raised) = self.bounds();
                is_enough.then_some(raised)
            }
            Family::GangMinimum => self.gang_minimum(),
            Family::Topology => self.topology(),
            Family::PriorityClass => self.priority_class(),
            Family::Waiting => self.waiting(),
            Family::ReclaimQuota => self.reclaim_quota(),
            Family::Nodes => self.nodes(),
        }
    }

    /// Plans with changes as the judgement says; `None` where the steps are used up.
    fn plan(&mut self, changes: &[Change]) -> Option<Focused> {
        let steps_max = self.budget.left()?;
        let others = match self.judgement {
            Judgement::Free | Judgement::Known => Others::Some(&self.known.placed),
            Judgement::AllFree | Judgement::Placed => Others::Placed,
            Judgement::Whole => Others::All { evicting: &self.known.evicting, steps_max },
        };
        let focus = self.goal.focus(self.group, others);
        let all: Vec<Change>;
        let changes = if self.given.is_empty() {
            changes
        } else {
            all = [self.given.as_slice(), changes].concat();
            &all
        };
        self.model.policy = match self.judgement {
            Judgement::Free | Judgement::AllFree => &self.policies.allocating,
            Judgement::Known | Judgement::Placed => &self.policies.judging,
            Judgement::Whole => &self.policies.whole,
        };
        let (planned, edits) = self.model.focused_trial(changes, focus);
        self.budget.spend(&planned, edits);
        Some(planned)
    }

    /// Whether the group runs with changes.
    fn runs(&mut self, changes: &[Change]) -> bool {
        self.plan(changes).is_some_and(|planned| planned.is_reached)
    }

    /// The hint of changes that run the group.
    fn prove(&mut self, changes: Vec<Change>) -> Option<Hint> {
        let planned = self.whole_plan(&changes, &self.policies.whole)?;
        self.budget.is_exhausted |= planned.is_cut;
        let placed_before = placed(self.model.cluster, self.base);
        planned.is_reached.then(|| self.hint(changes, &planned.outcome, &placed_before))
    }

    /// Plans a cycle with all groups.
    fn whole_plan(&mut self, changes: &[Change], policy: &'a Policy) -> Option<Focused> {
        let steps_max = self.budget.left()?;
        let others = Others::All { evicting: &self.known.evicting, steps_max };
        let focus = self.goal.focus(self.group, others);
        self.model.policy = policy;
        let (planned, edits) = self.model.focused_trial(changes, focus);
        self.budget.spend(&planned, edits);
        self.budget.proofs += 1;
        Some(planned)
    }

    fn hint(&self, changes: Vec<Change>, outcome: &Outcome, placed_before: &BTreeSet<Key>) -> Hint {
        let is_pipelined = outcome.decisions.iter().any(
            |decision| matches!(decision, Decision::Pipeline { pod, .. } if self.goal.pending.contains(pod)),
        );
        let ended: &[Key] = if let Some(Change::Finish { groups }) = changes.last() { groups } else { &[] };
        let (before, after) = (evicted(self.base), evicted(outcome));
        let new = |(group, pods): (Key, u32)| {
            let more = pods.saturating_sub(before.get(&group).copied().unwrap_or(0));
            (more > 0 && group != *self.group).then_some((group, more))
        };
        let placed = placed(self.model.cluster, outcome);
        let displaced =
            placed_before.iter().filter(|group| !placed.contains(group) && !ended.contains(group));
        Hint {
            is_pipelined,
            evicted: after.into_iter().filter_map(new).collect(),
            displaced: displaced.cloned().collect(),
            changes,
        }
    }

    /// Why the group does not run in a cluster without other groups.
    fn not_even_alone(&mut self) -> Option<Never> {
        let focus = self.goal.focus(self.group, Others::Absent);
        self.model.policy = &self.policies.judging;
        let (planned, edits) = self.model.focused_trial(&[], focus);
        self.budget.spend(&planned, edits);
        let verdict = planned.outcome.verdicts.into_iter().next().filter(|_| !planned.is_reached)?;
        Some(Never::Alone(Box::new(verdict)))
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
pub fn evicted(outcome: &Outcome) -> BTreeMap<Key, u32> {
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
pub fn placed(cluster: &Cluster, outcome: &Outcome) -> BTreeSet<Key> {
    placed_by(cluster, outcome, None)
}

/// Groups with pods that an action of a plan places, or any action.
fn placed_by(cluster: &Cluster, outcome: &Outcome, by: Option<&str>) -> BTreeSet<Key> {
    let of = outcome.decisions.iter().filter_map(|decision| {
        let action = match decision {
            Decision::Bind(bind) => bind.action,
            Decision::Pipeline { moved: false, action, .. } => action,
            Decision::Pipeline { .. } | Decision::Evict { .. } => return None,
        };
        let pod = cluster.pod(decision.pod()).filter(|_| by.is_none_or(|by| by == action))?;
        cluster.pods[pod].group
    });
    of.map(|group| cluster.group_key(group)).collect()
}

/// Whether the minimum of the group requests more than all nodes have.
fn too_large(cluster: &Cluster, base: &Outcome, group: &Key) -> Option<Never> {
    let group = &cluster.groups[cluster.group(group)?];
    RESOURCES.into_iter().find_map(|resource| {
        let needed = least_request(cluster, group, Group::root(), resource);
        let total = base.total[resource];
        (needed > total).then_some(Never::TooLarge { resource, needed, total })
    })
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
