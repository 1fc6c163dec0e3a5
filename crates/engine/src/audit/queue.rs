//! No queue passes its limit, and groups that cannot be evicted stay within quota, by this cycle's doing.

use super::after::{After, How};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::pod::{Place, Status};
use crate::ids::{IndexVec, PodIdx, QueueIdx};
use crate::share::{QueueAmounts, RESOURCES, sum};

/// What a queue holds, and what of it this cycle added.
#[derive(Clone, Copy, Default)]
struct Books {
    all: QueueAmounts,
    added: QueueAmounts,
}

pub(super) fn check(before: &Cluster, after: &After, findings: &mut Findings) {
    let mut all: IndexVec<QueueIdx, Books> = IndexVec::filled(Books::default(), before.queues.len());
    let mut fixed = all.clone();
    for held in &after.held {
        let status = before.pods[held.pod].state.status;
        // A pod that leaves has given its share back.
        if held.how == How::Leaves
            || !(held.how.is_new() || status.is_allocated())
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
        charge(before, &mut all, queue, &cost, held.how);
        if !group.preemptible {
            charge(before, &mut fixed, queue, &cost, held.how);
        }
    }
    for (index, queue) in before.present_queues() {
        for resource in RESOURCES {
            let name = before.text(queue.name);
            let (books, limit) = (all[index], queue.ledger.limit[resource]);
            if books.added[resource] > 0 && limit.is_some_and(|limit| books.all[resource] > limit) {
                let what = format!("queue `{name}` holds {} {resource:?} of {limit:?}", books.all[resource]);
                findings.say(Invariant::QueueLimit, what);
            }
            let (books, quota) = (fixed[index], queue.ledger.quota[resource]);
            if books.added[resource] > 0 && quota.is_some_and(|quota| books.all[resource] > quota) {
                let what = format!(
                    "queue `{name}` holds {} {resource:?} for good of {quota:?}",
                    books.all[resource]
                );
                findings.say(Invariant::NonPreemptibleQuota, what);
            }
        }
    }
    orphans(before, after, findings);
}

fn charge(
    before: &Cluster,
    books: &mut IndexVec<QueueIdx, Books>,
    leaf: QueueIdx,
    cost: &QueueAmounts,
    how: How,
) {
    let mut at = Some(leaf);
    while let Some(queue) = at {
        let book = &mut books[queue];
        book.all = sum(&book.all, cost);
        if how.is_new() {
            book.added = sum(&book.added, cost);
        }
        at = before.queues[queue].parent;
    }
}

/// What is evicted does not come back in the same place.
fn orphans(before: &Cluster, after: &After, findings: &mut Findings) {
    let here = |pod: PodIdx, how: How| after.held.iter().find(|h| h.pod == pod && h.how == how);
    for &pod in &after.evicted {
        if let (Some(old), Some(new)) = (here(pod, How::Leaves), here(pod, How::Waits))
            && old.node == new.node
            && old.gpu_groups == new.gpu_groups
        {
            let what = format!("pod `{}` is evicted and waits where it was", before.pod_key(pod));
            findings.say(Invariant::Eviction, what);
        }
    }
}
