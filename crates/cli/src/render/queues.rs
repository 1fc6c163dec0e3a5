//! What each queue is owed, wants, and holds before and after the cycle, as a tree.

use super::amount;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::verdict::QueueResource;
use std::collections::{BTreeMap, BTreeSet};

/// Resources in the order of people's interest, with their place in a report.
pub(crate) const RESOURCES: [(QueueResource, usize); 3] =
    [(QueueResource::Gpu, 2), (QueueResource::Cpu, 0), (QueueResource::Memory, 1)];

/// One row a queue and resource, children under their parents; `None` when there are no queues.
///
/// CPU and memory are left out where a queue neither bounds nor uses them.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    let mut rows = Vec::new();
    for (queue, depth) in tree(outcome) {
        append(&mut rows, queue, depth);
    }
    super::table(["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "REQUESTED", "BEFORE", "AFTER"], rows)
}

/// Queues with their depth, children after their parents.
pub(crate) fn tree(outcome: &Outcome) -> Vec<(&QueueReport, usize)> {
    let mut all = Vec::new();
    let children = children(outcome);
    let below = |parent: Option<&str>, depth: usize| {
        let queues = children.get(&parent).into_iter().flatten().rev();
        queues.map(move |queue| (*queue, depth)).collect::<Vec<_>>()
    };
    let mut waiting = below(None, 0);
    while let Some((queue, depth)) = waiting.pop() {
        // A report is a tree by contract; more levels than queues would be a cycle.
        if depth > outcome.queues.len() {
            break;
        }
        all.push((queue, depth));
        waiting.append(&mut below(Some(&queue.name), depth + 1));
    }
    all
}

/// Queues by parent; a parent that is not reported counts as none.
fn children(outcome: &Outcome) -> BTreeMap<Option<&str>, Vec<&QueueReport>> {
    let reported: BTreeSet<&str> = outcome.queues.iter().map(|queue| queue.name.as_str()).collect();
    let mut children: BTreeMap<Option<&str>, Vec<&QueueReport>> = BTreeMap::new();
    for queue in &outcome.queues {
        let parent = queue.parent.as_deref().filter(|name| reported.contains(name));
        children.entry(parent).or_default().push(queue);
    }
    children
}

fn append(rows: &mut Vec<[String; 8]>, queue: &QueueReport, depth: usize) {
    let mut name = format!("{}{}", "  ".repeat(depth), queue.name);
    for (resource, at) in RESOURCES {
        let is_bounded = queue.quota[at].is_some_and(|quota| quota > 0) || queue.limit[at].is_some();
        let is_used = queue.requested[at] > 0 || queue.allocated[at] > 0 || queue.allocated_after[at] > 0;
        let is_shown = match resource {
            QueueResource::Gpu => true,
            QueueResource::Cpu | QueueResource::Memory => is_bounded && is_used,
        };
        if is_shown {
            rows.push([
                std::mem::take(&mut name),
                amount::name(resource).to_owned(),
                amount::bound(resource, queue.quota[at]),
                amount::bound(resource, queue.limit[at]),
                amount::text(resource, queue.fair_share[at]),
                amount::text(resource, queue.requested[at]),
                amount::text(resource, queue.allocated[at]),
                amount::text(resource, queue.allocated_after[at]),
            ]);
        }
    }
}
