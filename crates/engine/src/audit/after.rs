//! The cluster after the decisions of an outcome are applied.

use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::{NodeIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Cause, Decision, EvictionReason, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct PlacedPod {
    pub(super) pod: PodIdx,
    pub(super) node: NodeIdx,
    /// Shared GPUs it uses.
    pub(super) gpu_groups: Vec<String>,
    pub(super) presence: Presence,
}

/// Why a pod is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Presence {
    /// It was there and stays.
    Stays,
    /// It was there and is released; until then it uses capacity.
    Released,
    /// It is bound there.
    Bound,
    /// It is pipelined there.
    Pipelined,
}

impl Presence {
    /// Placed by a decision of this cycle.
    pub(super) fn is_new(self) -> bool {
        matches!(self, Self::Bound | Self::Pipelined)
    }
}

pub(super) struct After {
    /// Pods in the order of their decisions.
    pub(super) held: Vec<PlacedPod>,
    pub(super) evicted: BTreeSet<PodIdx>,
}

impl After {
    pub(super) fn build(before: &Cluster, outcome: &Outcome, findings: &mut Findings) -> Self {
        let evicted = evictions(before, outcome, findings);
        let mut held = Vec::new();
        for (index, pod) in before.present_pods() {
            let Some(place) = pod.state.place.as_ref().filter(|_| pod.state.status.holds_node()) else {
                continue;
            };
            let released = pod.state.status == Status::Releasing || evicted.contains(&index);
            let presence = if released {
                Presence::Released
            } else if pod.state.status == Status::Pipelined {
                Presence::Pipelined
            } else {
                Presence::Stays
            };
            let gpu_groups = place.gpu_groups.iter().map(|g| before.text(*g).to_owned()).collect();
            held.push(PlacedPod { pod: index, node: place.node, gpu_groups, presence });
        }
        let mut placed: BTreeMap<PodIdx, u32> = BTreeMap::new();
        for decision in &outcome.decisions {
            let (key, node, groups, presence) = match decision {
                Decision::Bind(bind) => (&bind.pod, &bind.node, &bind.gpu_groups, Presence::Bound),
                Decision::Pipeline { pod, node, gpu_groups, .. } => {
                    (pod, node, gpu_groups, Presence::Pipelined)
                }
                Decision::Evict { .. } => continue,
            };
            let (Some(pod), Some(node)) = (before.pod(key), before.node(node)) else {
                findings.add(Invariant::Consistency, format!("pod `{key}` or node `{node}` does not exist"));
                continue;
            };
            *placed.entry(pod).or_default() += 1;
            may_be_placed(before, pod, key, evicted.contains(&pod), findings);
            held.push(PlacedPod { pod, node, gpu_groups: groups.clone(), presence });
        }
        for (pod, _) in placed.into_iter().filter(|(_, times)| *times > 1) {
            findings.add(Invariant::Consistency, format!("pod `{}` is placed twice", before.pod_key(pod)));
        }
        Self { held, evicted }
    }

    /// Pods that are or will be on a node, without released ones.
    pub(super) fn at(&self, node: NodeIdx) -> impl Iterator<Item = &PlacedPod> {
        self.held.iter().filter(move |h| h.node == node && h.presence != Presence::Released)
    }

    /// Pods placed by a decision of this cycle.
    pub(super) fn placed<'a>(&'a self, before: &'a Cluster) -> impl Iterator<Item = &'a PlacedPod> {
        self.held
            .iter()
            .filter(|h| h.presence.is_new() && before.pods[h.pod].state.status != Status::Pipelined)
    }
}

fn evictions(before: &Cluster, outcome: &Outcome, findings: &mut Findings) -> BTreeSet<PodIdx> {
    let mut evicted = BTreeSet::new();
    for decision in &outcome.decisions {
        let Decision::Evict { pod: key, action, why, .. } = decision else { continue };
        let Some(pod) = before.pod(key) else {
            findings.add(Invariant::Consistency, format!("evicted pod `{key}` does not exist"));
            continue;
        };
        if !evicted.insert(pod) {
            findings.add(Invariant::Eviction, format!("pod `{key}` is evicted twice"));
        }
        if !before.pods[pod].state.status.is_active_allocated() {
            findings.add(Invariant::Eviction, format!("pod `{key}` is evicted without being in use"));
        }
        let group = before.pods[pod].group.map(|g| &before.groups[g]);
        // The action of a plugin and the end of a maximum run time have their own rules.
        let is_exempt = *action == Cause::Stale.action()
            || matches!(**why, EvictionReason::Custom { .. } | EvictionReason::TimeLimit { .. });
        if !is_exempt && !group.is_some_and(|g| g.preemptible) {
            findings.add(Invariant::Eviction, format!("pod `{key}` is evicted but not preemptible"));
        }
    }
    evicted
}

fn may_be_placed(before: &Cluster, pod: PodIdx, key: &Key, evicted: bool, findings: &mut Findings) {
    let p = &before.pods[pod];
    if p.state.status != Status::Pending && !evicted {
        findings.add(Invariant::Consistency, format!("pod `{key}` is placed but not pending"));
    }
    let group = p.group.filter(|g| before.groups[*g].present);
    let Some(group) = group.map(|g| &before.groups[g]) else {
        findings.add(Invariant::Consistency, format!("pod `{key}` is placed without a group"));
        return;
    };
    if p.member.is_none() {
        findings.add(
            Invariant::Consistency,
            format!("pod `{key}` is placed outside the sub-groups of its group"),
        );
    }
    if group.invalid_reason.is_some() {
        findings.add(Invariant::Consistency, format!("pod `{key}` is placed although its group is invalid"));
    }
    match group.queue {
        None => findings.add(Invariant::Consistency, format!("pod `{key}` is placed without a queue")),
        Some(queue) if !before.queues[queue].children.is_empty() => {
            findings
                .add(Invariant::Consistency, format!("pod `{key}` is placed in a queue that has children"));
        }
        Some(_) => {}
    }
}
