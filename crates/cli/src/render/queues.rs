//! What each queue is owed, wants, and holds before and after the cycle, as a tree.

use super::amount;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::verdict::QueueResource;

/// Resources in the order of people's interest, with their place in a report.
const RESOURCES: [(QueueResource, usize); 3] =
    [(QueueResource::Gpu, 2), (QueueResource::Cpu, 0), (QueueResource::Memory, 1)];

/// One row a queue and resource, children under their parents; `None` when there are no queues.
///
/// CPU and memory are left out where a queue neither bounds nor uses them.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    let mut rows = Vec::new();
    let mut waiting: Vec<(&QueueReport, usize)> = children(outcome, None).map(|queue| (queue, 0)).collect();
    waiting.reverse();
    while let Some((queue, depth)) = waiting.pop() {
        // A report is a tree by contract; more levels than queues would be a cycle.
        if depth > outcome.queues.len() {
            break;
        }
        append(&mut rows, queue, depth);
        let mut below: Vec<_> =
            children(outcome, Some(&queue.name)).map(|child| (child, depth + 1)).collect();
        below.reverse();
        waiting.append(&mut below);
    }
    super::table(["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "REQUESTED", "BEFORE", "AFTER"], rows)
}

/// Queues below a parent; a parent that is not reported counts as none.
fn children<'a>(outcome: &'a Outcome, parent: Option<&'a str>) -> impl Iterator<Item = &'a QueueReport> {
    let reported = |name: &str| outcome.queues.iter().any(|queue| queue.name == name);
    outcome.queues.iter().filter(move |queue| queue.parent.as_deref().filter(|name| reported(name)) == parent)
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
