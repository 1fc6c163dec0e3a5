//! `kai queues`: the queue hierarchy with quota, limit, fair share, usage and pending requests.

use super::{Rendered, RowLimit};
use crate::render::{amount, table_of};
use anyhow::Result;
use kai_engine::verdict::QueueResource;
use kai_view::ClusterView;
use kai_view::amounts::{Amount, RESOURCES};
use kai_view::queues::{self, OmittedQueue, QueueView};
use std::fmt::Write as _;

pub(super) fn render(view: &ClusterView, limit: RowLimit) -> Result<Rendered> {
    let model = queues::all(view);
    let rows = model.queues.iter().flat_map(rows).collect();
    let headings = ["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "USED", "PENDING"];
    let mut text = table_of(headings, rows, limit.max()).unwrap_or_else(|| "No queues found".to_owned());
    for OmittedQueue { queue, why } in &model.left_out {
        write!(text, "\nqueue `{queue}` is left out: {why}")?;
    }
    let capacity = RESOURCES.map(|resource| {
        let unit = match resource {
            QueueResource::Gpu => " GPUs",
            QueueResource::Cpu => " CPU cores",
            QueueResource::Memory => " of memory",
        };
        amount::of(*model.cluster.get(resource)) + unit
    });
    writeln!(text, "\n\nCluster capacity: {}", capacity.join(", "))?;
    Rendered::new(text, &model)
}

/// A row for GPUs, and for CPU and memory where the queue limits or requests them.
fn rows(queue: &QueueView) -> Vec<[String; 7]> {
    let mut name = format!("{}{}", "  ".repeat(queue.depth), queue.name);
    let mut rows = Vec::new();
    for resource in RESOURCES {
        let amounts = queue.resources.get(resource);
        if resource == QueueResource::Gpu || amounts.is_relevant() {
            let bound = |amount: Option<Amount>| amount.map_or_else(|| "∞".to_owned(), amount::of);
            rows.push([
                // The name is in the first row of a queue.
                std::mem::take(&mut name),
                amount::name(resource).to_owned(),
                bound(amounts.quota),
                bound(amounts.limit),
                amount::of(amounts.fair_share),
                amount::of(amounts.used),
                amount::of(amounts.pending),
            ]);
        }
    }
    rows
}
