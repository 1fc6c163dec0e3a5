//! This cycle exceeds no queue limit, and no quota with non-preemptible groups.

use super::after::{After, Presence};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::pod::{Place, Status};
use crate::ids::{IndexVec, PodIdx, QueueIdx};
use crate::share::{QueueAmounts, RESOURCES, sum};

/// Allocation of a queue, and the part added by this cycle.
#[derive(Clone, Copy, Default)]
struct Usage {
    all: QueueAmounts,
    added: QueueAmounts,
}

pub(super) fn check(before: &Cluster, after: &After, findings: &mut Findings) {
    let mut all: IndexVec<QueueIdx, Usage> = IndexVec::filled(Usage::default(), before.queues.len());
    let mut non_preemptible = all.clone();
    for held in &after.held {
        let status = before.pods[held.pod].state.status;
        // A releasing pod no longer counts violations its queue.
        if held.presence == Presence::Released
            || !(held.presence.is_new() || status.is_allocated())
            || status == Status::Pipelined
        {
            continue;
        }
        let Some(group) = before.pods[held.pod].group.map(|g| &before.groups[g]) else { continue };
        let Some(queue) = group.queue.filter(|_| group.present && before.pods[held.pod].member.is_some())
        else {
            continue;
        };
        let cost = before.accepted(held.pod, &Place::on(held.node));
        charge(before, &mut all, queue, &cost, held.presence);
        if !group.preemptible {
            charge(before, &mut non_preemptible, queue, &cost, held.presence);
        }
    }
    for (index, queue) in before.present_queues() {
        for resource in RESOURCES {
            let name = before.text(queue.name);
            let (usage, limit) = (all[index], queue.ledger.limit[resource]);
            if usage.added[resource] > 0 && limit.is_some_and(|limit| usage.all[resource] > limit) {
                let what = format!("queue `{name}` holds {} {resource:?} of {limit:?}", usage.all[resource]);
                findings.add(Invariant::QueueLimit, what);
            }
            let (usage, quota) = (non_preemptible[index], queue.ledger.quota[resource]);
            if usage.added[resource] > 0 && quota.is_some_and(|quota| usage.all[resource] > quota) {
                let what = format!(
                    "queue `{name}` holds {} {resource:?} non-preemptibly of {quota:?}",
                    usage.all[resource]
                );
                findings.add(Invariant::NonPreemptibleQuota, what);
            }
        }
    }
    unmoved_victims(before, after, findings);
}

fn charge(
    before: &Cluster,
    usage: &mut IndexVec<QueueIdx, Usage>,
    leaf: QueueIdx,
    cost: &QueueAmounts,
    presence: Presence,
) {
    let mut at = Some(leaf);
    while let Some(queue) = at {
        let usage = &mut usage[queue];
        usage.all = sum(&usage.all, cost);
        if presence.is_new() {
            usage.added = sum(&usage.added, cost);
        }
        at = before.queues[queue].parent;
    }
}

/// No pod is evicted and pipelined on the same node and GPUs.
fn unmoved_victims(before: &Cluster, after: &After, findings: &mut Findings) {
    let here =
        |pod: PodIdx, presence: Presence| after.held.iter().find(|h| h.pod == pod && h.presence == presence);
    for &pod in &after.evicted {
        if let (Some(old), Some(new)) = (here(pod, Presence::Released), here(pod, Presence::Pipelined))
            && old.node == new.node
            && old.gpu_groups == new.gpu_groups
        {
            let what = format!("pod `{}` is evicted and pipelined on the same node", before.pod_key(pod));
            findings.add(Invariant::Eviction, what);
        }
    }
}
