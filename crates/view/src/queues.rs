//! The queue hierarchy: quota, limit, fair share, usage and pending requests of each queue.

use crate::amounts::{Amount, ByResource};
use crate::missing_queue::{self, Problem};
use crate::reader::ClusterView;
use kai_cache::Store;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::verdict::QueueResource;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueuesView {
    /// Children after their parents.
    pub queues: Vec<QueueView>,
    pub left_out: Vec<OmittedQueue>,
    /// Capacity of the cluster.
    pub cluster: ByResource<Amount>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueView {
    pub name: String,
    pub parent: Option<String>,
    pub resources: ByResource<QueueAmounts>,
    /// Distance from the root of the hierarchy.
    #[serde(skip)]
    pub depth: usize,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueAmounts {
    /// `None` is unlimited.
    pub quota: Option<Amount>,
    /// `None` is unlimited.
    pub limit: Option<Amount>,
    pub fair_share: Amount,
    pub used: Amount,
    pub used_non_preemptible: Amount,
    pub pending: Amount,
}

impl QueueAmounts {
    /// Whether the queue limits the resource or requests any of it.
    pub fn is_relevant(&self) -> bool {
        let is_bounded = self.quota.is_some_and(|quota| quota.value > 0) || self.limit.is_some();
        is_bounded || self.used.value > 0 || self.pending.value > 0
    }
}

/// A queue that gets no resources.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct OmittedQueue {
    pub queue: String,
    pub why: String,
}

pub fn all(view: &ClusterView) -> QueuesView {
    let queues = tree(&view.outcome).into_iter().map(|(queue, depth)| queue_view(queue, depth));
    QueuesView {
        queues: queues.collect(),
        left_out: left_out(view),
        cluster: ByResource::amounts(&view.outcome.total),
    }
}

fn queue_view(queue: &QueueReport, depth: usize) -> QueueView {
    let resources = ByResource::from_fn(|resource: QueueResource| {
        let amount = |value| Amount { resource, value };
        QueueAmounts {
            quota: queue.quota[resource].map(amount),
            limit: queue.limit[resource].map(amount),
            fair_share: amount(queue.fair_share[resource]),
            used: amount(queue.allocated[resource]),
            used_non_preemptible: amount(queue.allocated_non_preemptible[resource]),
            pending: amount((queue.requested[resource] - queue.allocated[resource]).max(0)),
        }
    });
    QueueView { name: queue.name.clone(), parent: queue.parent.clone(), resources, depth }
}

/// The queues of an outcome with their depth, children after their parents.
pub fn tree(outcome: &Outcome) -> Vec<(&QueueReport, usize)> {
    let mut all = Vec::new();
    let children = children(outcome);
    let below = |parent: Option<&str>, depth: usize| {
        let queues = children.get(&parent).into_iter().flatten().rev();
        queues.map(move |queue| (*queue, depth)).collect::<Vec<_>>()
    };
    let mut stack = below(None, 0);
    while let Some((queue, depth)) = stack.pop() {
        // A report is a tree by contract; more levels than queues would be a cycle.
        if depth > outcome.queues.len() {
            break;
        }
        all.push((queue, depth));
        stack.append(&mut below(Some(&queue.name), depth + 1));
    }
    all
}

/// Queues by parent; one whose parent is not reported counts as a root.
fn children(outcome: &Outcome) -> BTreeMap<Option<&str>, Vec<&QueueReport>> {
    let reported: BTreeSet<&str> = outcome.queues.iter().map(|queue| queue.name.as_str()).collect();
    let mut children: BTreeMap<Option<&str>, Vec<&QueueReport>> = BTreeMap::new();
    for queue in &outcome.queues {
        let parent = queue.parent.as_deref().filter(|name| reported.contains(name));
        children.entry(parent).or_default().push(queue);
    }
    children
}

fn left_out(view: &ClusterView) -> Vec<OmittedQueue> {
    let reported: BTreeSet<&str> = view.outcome.queues.iter().map(|queue| queue.name.as_str()).collect();
    let queues = &view.store.objects().queues;
    let missing = queues.iter().filter(|(key, _)| !reported.contains(key.name.as_str()));
    missing
        .map(|(key, queue)| OmittedQueue {
            queue: key.name.clone(),
            why: why_left_out(&view.store, &key.name, &queue.spec.parent_queue),
        })
        .collect()
}

fn why_left_out(store: &Store, queue: &str, parent: &str) -> String {
    let Some(gap) = missing_queue::find(store, queue) else {
        return "it has only just been created".to_owned();
    };
    let relation = match gap.queue {
        at if at == parent => format!("its parent `{at}`"),
        at => format!("its ancestor `{at}`"),
    };
    match gap.problem {
        Problem::OtherNodePool if gap.queue == queue => "it belongs to another node pool".to_owned(),
        Problem::OtherNodePool => format!("{relation} belongs to another node pool"),
        Problem::Absent => format!("{relation} does not exist"),
        Problem::Cycle => format!("its ancestors, from parent `{parent}` on, form a cycle"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_cache::Settings;
    use kai_cache::object::Queue;
    use serde_json::json;

    #[test]
    fn parent_of_another_node_pool_is_no_cycle() {
        let queue = |name: &str, parent: &str, labels: serde_json::Value| -> Queue {
            let object =
                json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentQueue": parent}});
            serde_json::from_value(object).expect("it is a queue")
        };
        let mut store = Store::new(Settings::default());
        store.apply(queue("foreign", "", json!({"kai.scheduler/node-pool": "b"})));
        store.apply(queue("middle", "foreign", json!({})));
        store.apply(queue("leaf", "middle", json!({})));
        for (name, parent) in [("one", "two"), ("two", "one")] {
            store.apply(queue(name, parent, json!({})));
        }
        store.apply(queue("elsewhere", "middle", json!({"kai.scheduler/node-pool": "b"})));
        store.apply(queue("orphan", "gone", json!({})));
        store.apply(queue("below-orphan", "orphan", json!({})));
        let view = ClusterView {
            store,
            cluster: kai_engine::ClusterState::new(),
            outcome: Outcome::default(),
            now: kai_units::Timestamp(0),
            staleness_grace: kai_units::Span(0),
        };
        let why: BTreeMap<String, String> =
            left_out(&view).into_iter().map(|omitted| (omitted.queue, omitted.why)).collect();
        assert_eq!(why["middle"], "its parent `foreign` belongs to another node pool");
        assert_eq!(why["leaf"], "its ancestor `foreign` belongs to another node pool");
        assert_eq!(why["elsewhere"], "it belongs to another node pool");
        assert_eq!(why["orphan"], "its parent `gone` does not exist");
        assert_eq!(why["below-orphan"], "its ancestor `gone` does not exist");
        assert_eq!(why["one"], "its ancestors, from parent `two` on, form a cycle");
    }
}
