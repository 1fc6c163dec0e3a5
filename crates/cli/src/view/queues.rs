//! `kai queues`: the queue hierarchy with quota, limit, fair share, usage and pending requests.

use super::connection::Connection;
use super::selection::{plain_names, selected};
use super::{Extent, Rendered};
use crate::args;
use crate::render::{Cell, amount, table_with};
use anyhow::{Result, bail};
use kai_engine::input::Key;
use kai_engine::verdict::QueueResource;
use kai_scheduler::resources::QUEUE;
use kai_view::ClusterView;
use kai_view::amounts::{Amount, RESOURCES};
use kai_view::queues::{self, OmittedQueue, QueueView};
use std::fmt::Write as _;

/// The type of `-o name`.
pub(super) const TYPE: &str = "queue.scheduling.run.ai";

pub(super) async fn render(
    view: &ClusterView,
    connection: &Connection,
    args: &args::Queues,
    extent: Extent,
) -> Result<Rendered> {
    let mut model = queues::all(view);
    let names = plain_names(&args.names, "Queue")?;
    let is_known = |name: &str| view.store.objects().queues.contains_key(&Key::new("", name));
    if let Some(missing) = names.iter().find(|name| !is_known(name)) {
        bail!("queue `{missing}` not found; hint: `kai queues` lists all queues");
    }
    let selected = selected(connection, &QUEUE, &args.selector).await?;
    let is_shown = |name: &str| {
        let is_selected = selected.as_ref().is_none_or(|selected| selected.contains(&Key::new("", name)));
        is_selected && (names.is_empty() || names.iter().any(|wanted| wanted == name))
    };
    model.queues.retain(|queue| is_shown(&queue.name));
    model.left_out.retain(|omitted| is_shown(&omitted.queue));
    let is_part = !names.is_empty() || selected.is_some();
    let indented = |queue: &QueueView| if is_part { 0 } else { queue.depth };
    let rows = model.queues.iter().flat_map(|queue| rows(queue, indented(queue), extent.is_wide)).collect();
    let mut headings = vec!["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "USED", "PENDING"];
    if extent.is_wide {
        headings.extend(["NON-PREEMPTIBLE", "PARENT"]);
    }
    let none = if is_part { "No queues match the filter" } else { "No queues found" };
    let mut text = table_with(&headings, rows, extent.rows.max()).unwrap_or_else(|| none.to_owned());
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
    let names = model.queues.iter().map(|queue| format!("{TYPE}/{}", queue.name)).collect();
    Rendered::new(text, &model, names)
}

/// A row for GPUs, and for CPU and memory where the queue limits or requests them.
fn rows(queue: &QueueView, depth: usize, is_wide: bool) -> Vec<Vec<Cell>> {
    let mut name = format!("{}{}", "  ".repeat(depth), queue.name);
    let mut rows = Vec::new();
    for resource in RESOURCES {
        let amounts = queue.resources.get(resource);
        if resource == QueueResource::Gpu || amounts.is_relevant() {
            let bound = |amount: Option<Amount>| amount.map_or_else(|| "∞".to_owned(), amount::of);
            let is_over = amounts.limit.is_some_and(|limit| amounts.used.value > limit.value);
            let used = amount::of(amounts.used);
            let pending = amount::of(amounts.pending);
            let mut row: Vec<Cell> = vec![
                // The name is in the first row of a queue.
                std::mem::take(&mut name).into(),
                amount::name(resource).into(),
                bound(amounts.quota).into(),
                bound(amounts.limit).into(),
                amount::of(amounts.fair_share).into(),
                if is_over { Cell::critical(used) } else { used.into() },
                if amounts.pending.value > 0 { Cell::warning(pending) } else { pending.into() },
            ];
            if is_wide {
                let parent = queue.parent.as_deref().filter(|_| resource == QueueResource::Gpu);
                row.push(amount::of(amounts.used_non_preemptible).into());
                row.push(parent.unwrap_or_default().into());
            }
            rows.push(row);
        }
    }
    rows
}
