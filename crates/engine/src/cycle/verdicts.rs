//! Selects the leading verdict of every group with pending pods.

use super::Run;
use crate::cluster::Cluster;
use crate::cluster::group::{Group, MemberKind, PodSet};
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, MemberIdx, PodIdx};
use crate::input::Backoff;
use crate::verdict::{GroupVerdict, PodRejection, Verdict};

/// Verdicts of all groups with unplaced pods when the cycle ends, or that were placed in it.
pub(super) fn of_run(run: &Run<'_, '_>) -> Vec<GroupVerdict> {
    let cluster: &Cluster = &run.plan;
    let mut verdicts: Vec<GroupVerdict> = cluster
        .pending_groups()
        .filter(|(_, g)| without_node(g) > 0 || pipelined(g) > 0 || g.invalid > 0)
        .map(|(index, _)| of_group(run, index))
        .collect();
    verdicts.sort_by(|a, b| a.group.cmp(&b.group));
    verdicts
}

/// Pods of its pod sets that have no node, whether they may be placed now or not.
fn without_node(group: &Group) -> u32 {
    group.pending() + group.count(Status::Gated) + group.count(Status::InBackoff)
}

fn pipelined(group: &Group) -> u32 {
    group.count(Status::Pipelined)
}

fn of_group(run: &Run<'_, '_>, index: GroupIdx) -> GroupVerdict {
    let cluster: &Cluster = &run.plan;
    let group = &cluster.groups[index];
    let mut all = obstacles(run, index);
    let leading = all.remove(0);
    GroupVerdict {
        group: cluster.group_key(index),
        queue: cluster.text(group.queue_name).to_owned(),
        pending: unplaced(cluster, group),
        leading,
        further: all,
    }
}

/// A group's obstacles, most decisive first; never empty.
fn obstacles(run: &Run<'_, '_>, index: GroupIdx) -> Vec<Verdict> {
    let cluster: &Cluster = &run.plan;
    let group = &cluster.groups[index];
    let mut all = Vec::new();
    if let Some(message) = run.quarantined.get(&index) {
        all.push(Verdict::Quarantined(message.clone()));
    }
    if let Some(message) = &group.invalid_reason {
        all.push(Verdict::InvalidGroup(message.clone()));
    }
    match group.queue {
        None => all.push(Verdict::QueueMissing),
        Some(queue) if !cluster.queues[queue].children.is_empty() => all.push(Verdict::QueueNotLeaf),
        Some(_) => {}
    }
    if let Some(backoff) = group.backoff.as_deref().filter(|_| group.count(Status::InBackoff) > 0) {
        let Backoff { cause, failures, until, .. } = backoff.clone();
        all.push(Verdict::InBackoff { cause, failures, until: until.0 });
    }
    if let Some(ended) = group.ended.filter(|_| group.count(Status::InBackoff) > 0) {
        all.push(Verdict::TimeLimitReached { ended: ended.0 });
    }
    if all.is_empty() && !group.is_ready() {
        all.extend(not_ready(cluster, group, Group::root()));
    }
    let mut found = run.obstacles.get(&index).cloned().unwrap_or_default();
    // Queue limits are checked before any node.
    found.sort_by_key(|v| !matches!(v, Verdict::OverLimit(_) | Verdict::NonPreemptibleOverQuota(_)));
    if group.pending() > 0 {
        all.extend(found);
    }
    if pipelined(group) > 0 {
        all.push(Verdict::WaitingForVictims { waiting: pipelined(group) });
    }
    if group.invalid_reason.is_none() {
        all.extend(unassigned_pods(cluster, group));
    }
    if all.is_empty() && group.pending() > 0 {
        // An optional member below its minimum is skipped.
        let unready = |(_, set): &(MemberIdx, &PodSet)| set.count(Status::Pending) > 0 && !set.is_ready();
        all.extend(group.pod_sets().find(unready).and_then(|(m, _)| not_ready(cluster, group, m)));
    }
    if all.is_empty() {
        all.push(if group.pending() > 0 { Verdict::NotAttempted } else { Verdict::Placed });
    }
    all
}

/// The verdict of one group.
pub(super) fn of_group_in(run: &Run<'_, '_>, index: GroupIdx) -> Option<GroupVerdict> {
    let group = &run.plan.groups[index];
    (without_node(group) > 0 || pipelined(group) > 0 || group.invalid > 0).then(|| of_group(run, index))
}

/// Unplaced pods; an invalid group has no pod sets that count them.
fn unplaced(cluster: &Cluster, group: &Group) -> u32 {
    if group.invalid_reason.is_none() {
        return without_node(group);
    }
    let is_unplaced = |pod: &&PodIdx| {
        matches!(cluster.pods[**pod].state.status, Status::Pending | Status::Gated | Status::InBackoff)
    };
    group.pods.iter().filter(is_unplaced).count() as u32
}

/// Pods whose label names no pod set of their group, by name.
fn unassigned_pods(cluster: &Cluster, group: &Group) -> Vec<Verdict> {
    let mut pods: Vec<_> = group
        .pods
        .iter()
        .filter(|pod| cluster.pods[**pod].member.is_none())
        .map(|pod| {
            let name = cluster.pods[*pod].sub_group.map_or("default", |s| cluster.text(s));
            (cluster.pod_key(*pod), PodRejection::UnknownSubGroup(name.to_owned()))
        })
        .collect();
    pods.sort();
    pods.into_iter().map(|(pod, reason)| Verdict::PodUnschedulable { pod, reason, gang: None }).collect()
}

/// The first member that is not ready.
fn not_ready(cluster: &Cluster, group: &Group, member: MemberIdx) -> Option<Verdict> {
    if group.is_member_ready(member) {
        return None;
    }
    let name = cluster.text(group.members[member].name).to_owned();
    match &group.members[member].kind {
        MemberKind::Pods(set) => {
            Some(Verdict::NotReady { sub_group: name, ready: set.ready_pods(), needed: set.min })
        }
        MemberKind::Set { children, .. } => {
            let inner = children.iter().find_map(|c| not_ready(cluster, group, *c));
            let ready = children.iter().filter(|c| group.is_member_ready(**c)).count() as u32;
            let needed = group.needed(member);
            // If all children are required, the missing one is more specific than the count.
            inner.or(Some(Verdict::NotReady { sub_group: name, ready, needed }))
        }
    }
}
