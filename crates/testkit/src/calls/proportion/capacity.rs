//! Replays capacity policies, with their messages and queue details.

use super::super::compare::same;
use super::super::record::{Case, NAMES, Queues, ledger, list, quantities, text};
use super::super::recorded_cluster::RecordedCluster;
use super::super::{Adapter, CallOutcome};
use kai_engine::ids::{PodIdx, QueueIdx};
use kai_engine::share::capacity_policy::{self, Excess};
use kai_engine::share::{Ledger, Preemptibility, QueueAmounts, QueueTree, root_ledgers, root_path, sum};
use kai_engine::verdict::{CapacityRule, QueueResource};
use kai_engine::{explain, resource};
use serde_json::{Value, json};

pub(super) fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "capacity_policy.isOverLimit" => Some(over_limit),
        "capacity_policy.isAllocatedNonPreemptibleOverQuota" => Some(over_quota),
        "capacity_policy.CapacityPolicy.IsJobOverQueueCapacity" => Some(step_over_capacity),
        "capacity_policy.CapacityPolicy.IsNonPreemptibleJobOverQuota" => Some(step_over_quota),
        "capacity_policy.CapacityPolicy.IsTaskAllocationOnNodeOverCapacity" => Some(pod_over_capacity),
        "capacity_policy.CapacityPolicy.resultsOverLimit" => Some(path_over_limit),
        "capacity_policy.CapacityPolicy.resultsWithNonPreemptibleOverQuota" => Some(path_over_quota),
        _ => None,
    }
}

fn over_limit(case: &Case<'_>) -> CallOutcome {
    one_queue(case, |ledger, asked| capacity_policy::over_limit(std::iter::once(ledger), asked))
}

fn over_quota(case: &Case<'_>) -> CallOutcome {
    one_queue(case, |ledger, asked| capacity_policy::over_quota(std::iter::once(ledger), asked))
}

fn one_queue(case: &Case<'_>, check: fn(&Ledger, &QueueAmounts) -> Option<Excess>) -> CallOutcome {
    let ledger = ledger(&case.input["queue_attributes"], 0);
    let excess = check(&ledger, &quantities(&case.input["requested"]));
    same(case.result(), &json!([excess.is_some(), excess.map_or("", |excess| name(excess.resource))]))
}

fn path_over_limit(case: &Case<'_>) -> CallOutcome {
    let asked = quantities(&case.input["requested_share"]);
    path(case, &asked, |queues, leaf| capacity_policy::over_limit(root_ledgers(queues, leaf), &asked))
}

fn path_over_quota(case: &Case<'_>) -> CallOutcome {
    let asked = quantities(&case.input["requested_share"]);
    path(case, &asked, |queues, leaf| match preemptibility(case) {
        Preemptibility::Preemptible => None,
        Preemptibility::NonPreemptible => capacity_policy::over_quota(root_ledgers(queues, leaf), &asked),
    })
}

/// The quota binds non-preemptible groups only; a group without a setting counts as one.
fn preemptibility(case: &Case<'_>) -> Preemptibility {
    match text(&case.input["job"]["preemptibility"]) {
        "preemptible" => Preemptibility::Preemptible,
        _ => Preemptibility::NonPreemptible,
    }
}

fn path(
    case: &Case<'_>,
    asked: &QueueAmounts,
    check: impl Fn(&Queues, QueueIdx) -> Option<Excess>,
) -> CallOutcome {
    let queues = Queues::new(&case.input["self"]["queues"]);
    let Some(leaf) = queues.find(text(&case.input["job"]["queue"])) else {
        return CallOutcome::Failed("the record names an unknown queue".to_owned());
    };
    let answer = &case.result()[0];
    let expected = json!({
        "is_schedulable": answer["is_schedulable"],
        "reason": answer["reason"],
        "message": answer["message"],
        "details": answer["details"]["queueDetails"],
    });
    let Some(excess) = check(&queues, leaf) else {
        return same(&expected, &json!({ "is_schedulable": true }));
    };
    let Some(queue) = root_path(&queues, leaf).nth(excess.level) else {
        return CallOutcome::Failed("the excess is above the root".to_owned());
    };
    same(&expected, &verdict(&queues, queue, &excess, asked, preemptibility(case)))
}

fn verdict(
    queues: &Queues,
    queue: QueueIdx,
    excess: &Excess,
    asked: &QueueAmounts,
    preemptibility: Preemptibility,
) -> Value {
    let reason = match excess.rule {
        CapacityRule::Limit => "OverLimit",
        CapacityRule::NonPreemptibleQuota => "NonPreemptibleOverQuota",
    };
    let name = queues.name(queue);
    let message = explain::capacity::message(&excess.named(name), excess.rule);
    let numbers = capacity_policy::numbers(name, queues.ledger(queue), asked, preemptibility);
    let details = details(&explain::QueueDetails::of(&numbers));
    json!({ "is_schedulable": false, "reason": reason, "message": message, "details": details })
}

/// The numbers under the names of the status field.
fn details(details: &explain::QueueDetails) -> Value {
    let list = |quantities: &explain::capacity::Quantities| -> Value {
        quantities.iter().map(|(name, quantity)| ((*name).to_owned(), json!(quantity.to_string()))).collect()
    };
    json!({
        "name": details.name,
        "queueRequestedResources": list(&details.requested),
        "queueDeservedResources": list(&details.deserved),
        "queueAllocatedResources": list(&details.allocated),
        "queueAllocatedNonPreemptibleResources": list(&details.allocated_non_preemptible),
        "queueResourceLimits": list(&details.limits),
        "podGroupRequestedResources": list(&details.group_requested),
        "podGroupRequestedNonPreemptibleResources": list(&details.group_requested_non_preemptible),
    })
}

/// The request of all tasks of a step before a node is known.
fn asked_by_step(case: &Case<'_>) -> QueueAmounts {
    let largest = case.input["self"]["max_node_gpu_memory_mi_b"].as_i64();
    list(&case.input["tasks_to_allocate"]).fold([0; 3], |all, task| {
        let (recorded, pod) = one_pod(task);
        sum(&all, &recorded.cluster.queue_request(pod, largest))
    })
}

fn one_pod(task: &Value) -> (RecordedCluster, PodIdx) {
    let mut recorded = RecordedCluster::new(&[]);
    let key = recorded.add_task(task, "Pending", None, "");
    recorded.settle();
    let pod = recorded.pod(&key);
    (recorded, pod)
}

fn step_over_capacity(case: &Case<'_>) -> CallOutcome {
    let asked = asked_by_step(case);
    path(case, &asked, |queues, leaf| {
        capacity_policy::check(root_ledgers(queues, leaf), &asked, preemptibility(case))
    })
}

fn step_over_quota(case: &Case<'_>) -> CallOutcome {
    let asked = asked_by_step(case);
    path(case, &asked, |queues, leaf| match preemptibility(case) {
        Preemptibility::Preemptible => None,
        Preemptibility::NonPreemptible => capacity_policy::over_quota(root_ledgers(queues, leaf), &asked),
    })
}

/// The request of one pod on a node; device claims count at the step, not here.
fn pod_over_capacity(case: &Case<'_>) -> CallOutcome {
    let (recorded, pod) = one_pod(&case.input["task"]);
    let shape = recorded.cluster.shape(pod);
    let memory = case.input["node"]["gpu_memory_mib"].as_i64().unwrap_or(100);
    let amount = |dim| shape.request.get(dim);
    let asked = [amount(resource::CPU), amount(resource::MEMORY), shape.quota_on(memory)];
    path(case, &asked, |queues, leaf| {
        capacity_policy::check(root_ledgers(queues, leaf), &asked, preemptibility(case))
    })
}

fn name(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => NAMES[0],
        QueueResource::Memory => NAMES[1],
        QueueResource::Gpu => NAMES[2],
    }
}
