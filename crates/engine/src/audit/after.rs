//! Who is where once an outcome's decisions are carried out.

use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::{NodeIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Decision, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// A pod at a node.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The pod.
    pub(super) pod: PodIdx,
    /// The node.
    pub(super) node: NodeIdx,
    /// Shared GPUs it sits on.
    pub(super) gpu_groups: Vec<String>,
    /// How it comes to be there.
    pub(super) how: How,
}

/// How a pod comes to be at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// It was there and stays.
    Stays,
    /// It was there and leaves; until then it takes room.
    Leaves,
    /// It is bound there.
    Bound,
    /// It waits there for room.
    Waits,
}

impl How {
    /// A decision of this cycle put it there.
    pub(super) fn is_new(self) -> bool {
        matches!(self, Self::Bound | Self::Waits)
    }
}

/// The cluster once the decisions are carried out.
pub(super) struct After {
    /// Pods by node, in the order they came.
    pub(super) held: Vec<Held>,
    /// Pods that the outcome evicts.
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
            let leaves = pod.state.status == Status::Releasing || evicted.contains(&index);
            let how = if leaves {
                How::Leaves
            } else if pod.state.status == Status::Pipelined {
                How::Waits
            } else {
                How::Stays
            };
            let gpu_groups = place.gpu_groups.iter().map(|g| before.text(*g).to_owned()).collect();
            held.push(Held { pod: index, node: place.node, gpu_groups, how });
        }
        let mut placed: BTreeMap<PodIdx, u32> = BTreeMap::new();
        for decision in &outcome.decisions {
            let (key, node, groups, how) = match decision {
                Decision::Bind(bind) => (&bind.pod, &bind.node, &bind.gpu_groups, How::Bound),
                Decision::Pipeline { pod, node, gpu_groups, .. } => (pod, node, gpu_groups, How::Waits),
                Decision::Evict { .. } => continue,
            };
            let (Some(pod), Some(node)) = (before.pod(key), before.node(node)) else {
                findings.say(Invariant::Consistency, format!("pod `{key}` or node `{node}` does not exist"));
                continue;
            };
            *placed.entry(pod).or_default() += 1;
            may_be_placed(before, pod, key, evicted.contains(&pod), findings);
            held.push(Held { pod, node, gpu_groups: groups.clone(), how });
        }
        for (pod, _) in placed.into_iter().filter(|(_, times)| *times > 1) {
            findings
                .say(Invariant::Consistency, format!("pod `{}` is given a place twice", before.pod_key(pod)));
        }
        Self { held, evicted }
    }

    /// Pods that are there or will be, at one node; those that leave are not.
    pub(super) fn at(&self, node: NodeIdx) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |h| h.node == node && h.how != How::Leaves)
    }

    /// Pods that a decision of this cycle placed.
    pub(super) fn placed<'a>(&'a self, before: &'a Cluster) -> impl Iterator<Item = &'a Held> {
        self.held.iter().filter(|h| h.how.is_new() && before.pods[h.pod].state.status != Status::Pipelined)
    }
}

fn evictions(before: &Cluster, outcome: &Outcome, findings: &mut Findings) -> BTreeSet<PodIdx> {
    let mut evicted = BTreeSet::new();
    for decision in &outcome.decisions {
        let Decision::Evict { pod: key, action, .. } = decision else { continue };
        let Some(pod) = before.pod(key) else {
            findings.say(Invariant::Consistency, format!("evicted pod `{key}` does not exist"));
            continue;
        };
        if !evicted.insert(pod) {
            findings.say(Invariant::Eviction, format!("pod `{key}` is evicted twice"));
        }
        if !before.pods[pod].state.status.is_active_allocated() {
            findings.say(Invariant::Eviction, format!("pod `{key}` is evicted without being in use"));
        }
        let group = before.pods[pod].group.map(|g| &before.groups[g]);
        if *action != "stalegangeviction" && !group.is_some_and(|g| g.preemptible) {
            findings.say(Invariant::Eviction, format!("pod `{key}` may not be evicted for others"));
        }
    }
    evicted
}

fn may_be_placed(before: &Cluster, pod: PodIdx, key: &Key, evicted: bool, findings: &mut Findings) {
    let p = &before.pods[pod];
    if p.state.status != Status::Pending && !evicted {
        findings.say(Invariant::Consistency, format!("pod `{key}` is given a place but is not pending"));
    }
    let group = p.group.filter(|g| before.groups[*g].present);
    let Some(group) = group.map(|g| &before.groups[g]) else {
        findings.say(Invariant::Consistency, format!("pod `{key}` is given a place without a group"));
        return;
    };
    if p.member.is_none() {
        findings
            .say(Invariant::Consistency, format!("pod `{key}` is given a place outside its group's tree"));
    }
    if group.broken.is_some() {
        findings.say(
            Invariant::Consistency,
            format!("pod `{key}` is given a place although its group is broken"),
        );
    }
    match group.queue {
        None => findings.say(Invariant::Consistency, format!("pod `{key}` is given a place without a queue")),
        Some(queue) if !before.queues[queue].children.is_empty() => {
            findings.say(
                Invariant::Consistency,
                format!("pod `{key}` is given a place in a queue that has children"),
            );
        }
        Some(_) => {}
    }
}
