//! Only groups that have ended are evicted for their maximum run time, and as a whole; none of their pods is placed.

use super::after::{After, Presence};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::LimitAction;
use crate::outcome::{Decision, EvictionReason, Outcome};
use std::collections::BTreeSet;

pub(super) fn check(before: &Cluster, after: &After, outcome: &Outcome, findings: &mut Findings) {
    for index in
        evicted(before, outcome).into_iter().filter_map(|pod| before.pods[pod].group).collect::<BTreeSet<_>>()
    {
        let (group, key) = (&before.groups[index], before.group_key(index));
        if group.ended.is_none() {
            let what = format!("group `{key}` is evicted at a time limit but has not ended");
            findings.add(Invariant::TimeLimit, what);
        }
        let stays = |pod: PodIdx| {
            before.pods[pod].group == Some(index) && before.pods[pod].state.status.is_active_allocated()
        };
        if after.held.iter().any(|held| held.presence == Presence::Stays && stays(held.pod)) {
            let what = format!("group `{key}` is only partly evicted at its time limit");
            findings.add(Invariant::TimeLimit, what);
        }
    }
    for pod in after.placed(before).map(|held| held.pod) {
        if before.pods[pod].group.is_some_and(|group| before.groups[group].ended.is_some()) {
            let what = format!("pod `{}` of an ended group is placed", before.pod_key(pod));
            findings.add(Invariant::TimeLimit, what);
        }
    }
    for notice in &outcome.time_limits.end {
        let over = before.group(&notice.group).is_some_and(|group| is_over(before, group));
        if !over {
            let what = format!("group `{}` ends before a time limit that ends it", notice.group);
            findings.add(Invariant::TimeLimit, what);
        }
    }
}

/// Pods that are evicted at a time limit; disruption budgets do not count them.
pub(super) fn evicted(before: &Cluster, outcome: &Outcome) -> BTreeSet<PodIdx> {
    let pod = |decision: &Decision| match decision {
        Decision::Evict { pod, why, .. } if matches!(**why, EvictionReason::TimeLimit { .. }) => {
            before.pod(pod)
        }
        Decision::Evict { .. } | Decision::Bind(_) | Decision::Pipeline { .. } => None,
    };
    outcome.decisions.iter().filter_map(pod).collect()
}

fn is_over(before: &Cluster, index: GroupIdx) -> bool {
    let group = &before.groups[index];
    let mut queue = group.queue;
    let mut limits = vec![group.time_limit];
    while let Some(at) = queue {
        limits.push(before.queues[at].time_limit);
        queue = before.queues[at].parent.filter(|_| before.queues[at].time_limit.is_none());
    }
    let ends = limits.into_iter().flatten().filter(|limit| limit.action == LimitAction::End);
    let Some(start) = group.last_start else { return false };
    ends.into_iter().any(|limit| start + limit.limit + limit.grace <= before.refreshed_at())
}
