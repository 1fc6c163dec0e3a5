//! Places the pods of one group, all or nothing.
//!
//! Walks the group's tree from the root. Every member with a topology constraint splits the nodes into candidate
//! sets; the first set in which all pods below fit is used. Leaves place their pods one by one.

pub mod checks;
mod choice;
pub(crate) mod failed_searches;
pub mod feasible;
pub mod filter;
pub mod gpus;
pub(crate) mod ranked;
pub mod score;
mod score_steps;
pub(crate) mod trial;

use crate::cluster::Cluster;
use crate::cluster::group::{DEFAULT_POD_SET, Group, MemberKind};
use crate::cluster::node::When;
use crate::cluster::pod::{Place, PodState, Status};
use crate::ids::{GroupIdx, MemberIdx, NodeIdx, PodIdx};
use crate::input::Key;
use crate::node_set::NodeSet;
use crate::order::member::{Selection, sorted_children};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::share::{Preemptibility, QueueAmounts, capacity_policy, root_ledgers, root_path, sum};
use crate::topology::{self, NodeScores};
use crate::verdict::{
    CapacityRule, GangGap, NodeFit, PodRejection, TopologyReason, TopologyRejection, Verdict,
};
use failed_searches::MemoEntry;
use std::rc::Rc;
use std::sync::Arc;
use trial::Trial;

/// An attempt to place pods of one group.
pub(crate) struct Step<'p> {
    pub policy: &'p Policy,
    pub seed: u64,
    pub group: GroupIdx,
    pub selection: Selection,
    /// Obstacles found; not recorded in simulations.
    pub obstacles: Vec<Verdict>,
}

/// Why a pod was not placed.
enum Unplaced {
    NoNode(NodeFit),
    Impossible(Key, PodRejection),
}

impl<'p> Step<'p> {
    pub(crate) fn new(policy: &'p Policy, seed: u64, group: GroupIdx, selection: Selection) -> Self {
        Self { policy, seed, group, selection, obstacles: Vec::new() }
    }

    /// Places all these pods, or none.
    pub(crate) fn run(&mut self, plan: &mut Plan<'_>, pods: &[PodIdx], nodes: &NodeSet) -> bool {
        if pods.is_empty() {
            return false;
        }
        if let Some(excess) = over_capacity(plan, self.policy, self.group, pods) {
            self.note(excess);
            return false;
        }
        let mark = plan.mark();
        let placed = self.place_member(plan, Group::root(), pods, nodes, None);
        if !placed {
            plan.rollback(mark);
        }
        placed
    }

    fn note(&mut self, verdict: Verdict) {
        if self.selection == Selection::Real && !self.obstacles.contains(&verdict) {
            self.obstacles.push(verdict);
        }
    }

    fn place_member(
        &mut self,
        plan: &mut Plan<'_>,
        member: MemberIdx,
        pods: &[PodIdx],
        nodes: &NodeSet,
        scores: Option<&Rc<NodeScores>>,
    ) -> bool {
        let Some((sets, own_scores)) = self.candidate_sets(plan, member, pods, nodes) else { return false };
        let scores = own_scores.as_ref().or(scores);
        for set in sets {
            let mark = plan.mark();
            let placed = match &plan.groups[self.group].members[member].kind {
                MemberKind::Pods(_) => self.place_pods(plan, member, pods, &set, scores),
                MemberKind::Set { .. } => self.place_children(plan, member, pods, &set, scores),
            };
            if placed {
                return true;
            }
            plan.rollback(mark);
        }
        false
    }

    fn place_children(
        &mut self,
        plan: &mut Plan<'_>,
        member: MemberIdx,
        pods: &[PodIdx],
        nodes: &NodeSet,
        scores: Option<&Rc<NodeScores>>,
    ) -> bool {
        let children = sorted_children(plan, &self.policy.registry, self.group, member);
        if let [only] = children[..] {
            return self.place_member(plan, only, pods, nodes, scores);
        }
        for child in children {
            let below: Vec<PodIdx> =
                pods.iter().copied().filter(|p| is_below(plan, self.group, *p, child)).collect();
            if !below.is_empty() && !self.place_member(plan, child, &below, nodes, scores) {
                return false;
            }
        }
        true
    }

    fn place_pods(
        &mut self,
        plan: &mut Plan<'_>,
        member: MemberIdx,
        pods: &[PodIdx],
        nodes: &NodeSet,
        scores: Option<&Rc<NodeScores>>,
    ) -> bool {
        for (found, &pod) in pods.iter().enumerate() {
            if let Err(why) = self.place_pod(plan, pod, nodes, scores) {
                if let Some(why) = why {
                    let verdict = self.short(plan, member, found as u32, why);
                    self.note(verdict);
                }
                return false;
            }
        }
        true
    }

    /// The group's verdict for a pod that was not placed.
    fn short(&self, plan: &Plan<'_>, member: MemberIdx, found: u32, why: Unplaced) -> Verdict {
        let group = &plan.groups[self.group];
        let gap = |needed| {
            let name = plan.text(group.members[member].name);
            let only = name == DEFAULT_POD_SET && group.pod_sets().count() == 1;
            let sub_group = if only { String::new() } else { name.to_owned() };
            GangGap { sub_group, found, needed }
        };
        let short =
            group.members[member].pod_set().filter(|set| group.is_gang() && set.active_used() < set.min);
        match (why, short.map(|set| gap(set.min))) {
            (Unplaced::NoNode(fit), None) => Verdict::NoNode(fit),
            (Unplaced::NoNode(fit), Some(GangGap { sub_group, found, needed })) => {
                Verdict::GangNotSatisfied { sub_group, found, needed, fit }
            }
            (Unplaced::Impossible(pod, reason), gang) => {
                Verdict::PodUnschedulable { pod, reason, gang: gang.map(Box::new) }
            }
        }
    }

    /// Places a pod on the best feasible node. The error explains why there is none, unless this is a simulation.
    fn place_pod(
        &self,
        plan: &mut Plan<'_>,
        pod: PodIdx,
        nodes: &NodeSet,
        scores: Option<&Rc<NodeScores>>,
    ) -> Result<(), Option<Unplaced>> {
        if let Err(reason) = checks::check(plan, self.policy, pod) {
            return Err(self.real().then(|| Unplaced::Impossible(plan.pod_key(pod), reason)));
        }
        let trial = Trial::new(plan, self.policy, pod, scores.map(Rc::as_ref));
        let memo = failed_searches::key(plan, &trial, nodes);
        match memo.map_or(MemoEntry::Absent, |key| plan.memo().failed_searches.get(key, plan.epoch)) {
            MemoEntry::FailedFor(reasons) => {
                let nodes = plan.nodes_by_rank.len() as u32;
                let fit = NodeFit { pod: plan.pod_key(pod), nodes, reasons: reasons.to_vec() };
                return Err(self.real().then_some(Unplaced::NoNode(fit)));
            }
            MemoEntry::Failed if !self.real() => return Err(None),
            MemoEntry::Failed | MemoEntry::Absent => {}
        }
        let mut candidates = choice::Candidates::new(plan, &trial, nodes);
        let mut placed = false;
        while let (false, Some(node)) = (placed, candidates.next(plan, &trial)) {
            placed = filter::refusal(plan, &trial, node).is_none() && self.put(plan, &trial, node);
        }
        candidates.finish(plan);
        if placed {
            return Ok(());
        }
        let fit = self.real().then(|| choice::explain(plan, &trial, nodes));
        if let Some(key) = memo {
            let reasons = fit.as_ref().map(|f| Arc::new(f.reasons.clone()));
            let epoch = plan.epoch;
            plan.memo_mut().failed_searches.insert(key, epoch, reasons);
        }
        Err(fit.map(Unplaced::NoNode))
    }

    fn real(&self) -> bool {
        self.selection == Selection::Real
    }

    /// Places a pod on a feasible node; false when GPUs or devices cannot be assigned.
    fn put(&self, plan: &mut Plan<'_>, trial: &Trial<'_>, node: NodeIdx) -> bool {
        let pod = trial.pod;
        let mut place = Place::on(node);
        let mut now = self.real() && trial.fits(plan, node, When::Now);
        if let (Some((requests, ignored)), Some(numa)) = (&trial.numa, &plan.nodes[node].ledger.numa) {
            place.numa = numa.place(requests, ignored).map(Box::new);
        }
        if plan.shape(pod).is_shared() {
            let Some(chosen) = gpus::choose(plan, &self.policy.registry, pod, node) else { return false };
            now &= chosen.ready;
            place.gpu_groups = chosen.groups;
            let (mut ordinal, count) = (0, place.gpu_groups.len() + chosen.new as usize);
            while place.gpu_groups.len() < count {
                let name = gpus::new_group_name(self.seed, plan.text(plan.pods[pod].uid), ordinal);
                let group = plan.cluster_mut().names.intern(&name);
                ordinal += 1;
                // A moved pod may have created a GPU group of this name before, which other pods still use.
                if plan.nodes[node].ledger.gpus.get(group).is_none_or(|gpu| gpu.used == 0) {
                    place.gpu_groups.push(group);
                }
            }
        }
        if trial.has_claims {
            let Ok(found) = plan.claims_fit(pod, node) else { return false };
            now &= !found.waits;
            plan.reserve_devices(pod, &found);
            place.devices = plan.held_devices(pod);
        }
        let old = &plan.pods[pod].state;
        let state = match &old.place {
            // An evicted pod that gets its own place again is no longer evicted.
            Some(left) if old.status == Status::Releasing && *left == place => {
                PodState { status: plan.observed_status(pod), is_virtual: false, ..old.clone() }
            }
            releasing => {
                let status = if now { Status::Allocated } else { Status::Pipelined };
                PodState { status, releasing: releasing.clone(), place: Some(place), is_virtual: true }
            }
        };
        plan.set_state(pod, state);
        true
    }

    /// Candidate node sets of a member, best first, and the scores of its preferred topology level.
    fn candidate_sets(
        &mut self,
        plan: &Plan<'_>,
        member: MemberIdx,
        pods: &[PodIdx],
        nodes: &NodeSet,
    ) -> Option<(Vec<NodeSet>, Option<Rc<NodeScores>>)> {
        let registry = &self.policy.registry;
        let m = &plan.groups[self.group].members[member];
        let (mut sets, mut scores) = (vec![nodes.clone()], None);
        if let (true, Some(constraint)) = (registry.builtin.topology, &m.topology) {
            let held = held_nodes(plan, self.group, member);
            let request = topology::Request { constraint, nodes, pods, held: &held };
            match topology::candidates(plan, &request) {
                Ok(candidates) => {
                    sets = candidates.sets;
                    scores = candidates.scores.map(Rc::new);
                }
                Err(mut reason) => {
                    if self.real() {
                        topology::measure(plan, &request, &mut reason);
                    }
                    let verdict = topology_miss(plan, constraint, m.name, reason);
                    self.note(verdict);
                    return None;
                }
            }
        }
        for custom in &registry.subsets {
            let mut split = Vec::new();
            for set in &sets {
                match custom.subsets(plan, self.group, member, pods, set.nodes(plan)) {
                    Ok(parts) => split.extend(parts.into_iter().map(|p| NodeSet::Some(p.into()))),
                    Err(message) => {
                        self.note(Verdict::InvalidGroup(message));
                        return None;
                    }
                }
            }
            sets = split;
        }
        Some((sets, scores))
    }
}

fn topology_miss(
    plan: &Plan<'_>,
    constraint: &crate::cluster::group::Constraint,
    member: crate::ids::Sym,
    reason: TopologyReason,
) -> Verdict {
    let level = constraint.required.or(constraint.preferred);
    Verdict::Topology(TopologyRejection {
        topology: plan.text(constraint.topology).to_owned(),
        sub_group: plan.text(member).to_owned(),
        level: level.map_or(String::new(), |l| plan.text(l).to_owned()),
        reason,
    })
}

/// Whether a pod belongs to a member or to one below it.
pub(crate) fn is_below(cluster: &Cluster, group: GroupIdx, pod: PodIdx, member: MemberIdx) -> bool {
    let mut at = cluster.pods[pod].member;
    while let Some(m) = at {
        if m == member {
            return true;
        }
        at = cluster.groups[group].members[m].parent;
    }
    false
}

/// Nodes of the allocated pods below a member.
pub(crate) fn held_nodes(cluster: &Cluster, group: GroupIdx, member: MemberIdx) -> Vec<NodeIdx> {
    let active = |p: &&PodIdx| cluster.pods[**p].state.status.is_active_allocated();
    cluster.groups[group]
        .pods
        .iter()
        .filter(active)
        .filter(|p| is_below(cluster, group, **p, member))
        .filter_map(|p| cluster.pods[*p].state.node())
        .collect()
}

/// The queue limit that placing the pods would exceed, if any.
pub(crate) fn over_capacity(
    plan: &Plan<'_>,
    policy: &Policy,
    group: GroupIdx,
    pods: &[PodIdx],
) -> Option<Verdict> {
    policy.registry.builtin.proportion?;
    let g = &plan.groups[group];
    let queue = g.queue?;
    let requested = requested(plan, pods);
    let preemptibility =
        if g.preemptible { Preemptibility::Preemptible } else { Preemptibility::NonPreemptible };
    let excess = capacity_policy::check(root_ledgers(&**plan, queue), &requested, preemptibility)?;
    let at = root_path(&**plan, queue).nth(excess.level)?;
    let at = &plan.queues[at];
    let mut named = excess.named(plan.text(at.display));
    let numbers = capacity_policy::numbers(plan.text(at.name), &at.ledger, &requested, preemptibility);
    named.numbers = Some(Box::new(numbers));
    Some(match excess.rule {
        CapacityRule::Limit => Verdict::OverLimit(named),
        CapacityRule::NonPreemptibleQuota => Verdict::NonPreemptibleOverQuota(named),
    })
}

/// Lower bound of what the pods request of their queue: requests by memory are measured by the largest GPU.
pub(crate) fn requested(cluster: &crate::Cluster, pods: &[PodIdx]) -> QueueAmounts {
    let largest = cluster.figures.gpu_memory_max;
    pods.iter().fold([0; 3], |all, pod| sum(&all, &cluster.queue_request(*pod, largest)))
}

/// A fit summary without nodes.
pub(crate) fn empty_fit(plan: &Plan<'_>, pod: PodIdx) -> NodeFit {
    NodeFit { pod: plan.pod_key(pod), nodes: 0, reasons: Vec::new() }
}
