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
    let is_shown = |queue: &QueueReport, at: usize| {
        let is_used = queue.requested[at] > 0 || queue.allocated[at] > 0 || queue.allocated_after[at] > 0;
        is_bounded(queue, at) && is_used
    };
    let rows = rows(&tree(outcome), is_shown, |queue, [name, kind, quota, limit, share], resource, at| {
        let [requested, before, after] = [queue.requested, queue.allocated, queue.allocated_after]
            .map(|amounts| amount::text(resource, amounts[at]));
        [name, kind, quota, limit, share, requested, before, after]
    });
    super::table(["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "REQUESTED", "BEFORE", "AFTER"], rows)
}

/// Whether a queue says how much it gets of a resource.
pub(crate) fn is_bounded(queue: &QueueReport, at: usize) -> bool {
    queue.quota[at].is_some_and(|quota| quota > 0) || queue.limit[at].is_some()
}

/// The rows of a table of queues. GPUs are always shown, CPU and memory where `is_shown` says so; `cells` completes what
/// all tables begin with: name, resource, quota, limit and fair share.
pub(crate) fn rows<const N: usize>(
    tree: &[(&QueueReport, usize)],
    is_shown: impl Fn(&QueueReport, usize) -> bool,
    cells: impl Fn(&QueueReport, [String; 5], QueueResource, usize) -> [String; N],
) -> Vec<[String; N]> {
    let mut rows = Vec::new();
    for (queue, depth) in tree {
        // Said once, in the first row of a queue.
        let mut name = format!("{}{}", "  ".repeat(*depth), queue.name);
        for (resource, at) in RESOURCES {
            if resource == QueueResource::Gpu || is_shown(queue, at) {
                let first = [
                    std::mem::take(&mut name),
                    amount::name(resource).to_owned(),
                    amount::bound(resource, queue.quota[at]),
                    amount::bound(resource, queue.limit[at]),
                    amount::text(resource, queue.fair_share[at]),
                ];
                rows.push(cells(queue, first, resource, at));
            }
        }
    }
    rows
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
