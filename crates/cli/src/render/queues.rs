//! The table of queues: quota, limit, fair share and requests, and the allocation before and after the cycle.

use super::amount;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::verdict::QueueResource;
use kai_view::amounts::RESOURCES;
use kai_view::queues::tree;

/// One row per queue and resource, children under their parents; `None` without queues.
///
/// CPU and memory are left out where a queue neither limits nor uses them.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    let rows = tree(outcome).into_iter().flat_map(|(queue, depth)| rows(queue, depth)).collect();
    super::table(["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "REQUESTED", "BEFORE", "AFTER"], rows)
}

fn rows(queue: &QueueReport, depth: usize) -> Vec<[String; 8]> {
    // The name is in the first row of a queue.
    let mut name = format!("{}{}", "  ".repeat(depth), queue.name);
    let shown = RESOURCES.into_iter().filter(|resource| {
        *resource == QueueResource::Gpu || is_bounded(queue, *resource) && is_used(queue, *resource)
    });
    let row = |resource: QueueResource| {
        let text = |amount| amount::text(resource, amount);
        [
            std::mem::take(&mut name),
            amount::name(resource).to_owned(),
            amount::bound(resource, queue.quota[resource]),
            amount::bound(resource, queue.limit[resource]),
            text(queue.fair_share[resource]),
            text(queue.requested[resource]),
            text(queue.allocated[resource]),
            text(queue.allocated_after[resource]),
        ]
    };
    shown.map(row).collect()
}

fn is_bounded(queue: &QueueReport, resource: QueueResource) -> bool {
    queue.quota[resource].is_some_and(|quota| quota > 0) || queue.limit[resource].is_some()
}

fn is_used(queue: &QueueReport, resource: QueueResource) -> bool {
    [queue.requested, queue.allocated, queue.allocated_after].iter().any(|amounts| amounts[resource] > 0)
}
