//! `kai queues`: the tree of queues with what each is owed, holds and waits for.

use super::{Moment, Rows, View};
use crate::figures::{by_resource, unit};
use crate::render::queues::{RESOURCES, is_bounded, rows, tree};
use crate::render::{amount, table_of};
use kai_engine::outcome::QueueReport;
use kai_engine::verdict::QueueResource;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Draws the queues.
pub(super) fn view(moment: &Moment, most: Rows) -> View {
    let tree = tree(&moment.outcome);
    let is_shown = |queue: &QueueReport, at: usize| is_bounded(queue, at) || queue.requested[at] > 0;
    let lines = rows(&tree, is_shown, |queue, [name, kind, quota, limit, share], resource, at| {
        let [used, pending] =
            [queue.allocated[at], pending(queue, at)].map(|held| amount::text(resource, held));
        [name, kind, quota, limit, share, used, pending]
    });
    let headings = ["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "USED", "PENDING"];
    let table = table_of(headings, lines, most.max());
    let mut text = table.unwrap_or_else(|| "there are no queues".to_owned());
    let left_out = left_out(moment);
    for (queue, why) in &left_out {
        write!(text, "\nqueue `{queue}` is left out: {why}").expect("writing to a string");
    }
    let total = moment.outcome.total;
    let offer = |(resource, at): (QueueResource, usize)| {
        let unit = match resource {
            QueueResource::Gpu => " GPUs",
            QueueResource::Cpu => " CPU cores",
            QueueResource::Memory => " of memory",
        };
        amount::text(resource, total[at]) + unit
    };
    writeln!(text, "\n\nthe cluster has {}", RESOURCES.map(offer).join(", ")).expect("writing to a string");
    let json = json!({
        "queues": tree.iter().map(|(queue, _)| report(queue)).collect::<Vec<_>>(),
        "left_out": left_out.iter().map(|(queue, why)| json!({"queue": queue, "why": why})).collect::<Vec<_>>(),
        "cluster": by_resource(|resource, at| unit(resource, total[at])),
    });
    View { text, json }
}

/// What is wanted and not held.
fn pending(queue: &QueueReport, at: usize) -> i64 {
    (queue.requested[at] - queue.allocated[at]).max(0)
}

fn report(queue: &QueueReport) -> Value {
    let resources = by_resource(|resource, at| {
        json!({
            "quota": queue.quota[at].map(|quota| unit(resource, quota)),
            "limit": queue.limit[at].map(|limit| unit(resource, limit)),
            "fair_share": unit(resource, queue.fair_share[at]),
            "used": unit(resource, queue.allocated[at]),
            "used_non_preemptible": unit(resource, queue.allocated_non_preemptible[at]),
            "pending": unit(resource, pending(queue, at)),
        })
    });
    json!({ "name": queue.name, "parent": queue.parent, "resources": resources })
}

/// Queues that take no part, and why.
fn left_out(moment: &Moment) -> Vec<(String, String)> {
    let reported: BTreeSet<&str> = moment.outcome.queues.iter().map(|queue| queue.name.as_str()).collect();
    let queues = &moment.store.objects().queues;
    let missing = queues.iter().filter(|(key, _)| !reported.contains(key.name.as_str()));
    let why = |parent: &str| {
        if parent.is_empty() {
            return "it belongs to another node pool".to_owned();
        }
        let key = kai_engine::input::Key::new("", parent);
        if queues.contains_key(&key) {
            format!("the chain of its parents, from `{parent}` on, does not end")
        } else {
            format!("its parent `{parent}` does not exist")
        }
    };
    missing.map(|(key, queue)| (key.name.clone(), why(queue.spec.parent_queue.as_str()))).collect()
}
