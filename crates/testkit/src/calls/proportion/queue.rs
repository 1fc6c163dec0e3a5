//! Replays decoding, order and aggregation of queues.

use super::super::compare::same;

use super::super::record::{Case, NAMES, ledger, list, quantities, text, time_rank};
use super::super::recorded_cluster::RecordedCluster;
use super::super::{Adapter, CallOutcome};
use super::result;
use kai_cache::object::{Kind, Queue};
use kai_cache::{Report, Settings, translate};
use kai_engine::input::{Key, QueueShare, WHOLE_GPU};
use kai_engine::order::member::{Selection, pods_to_place};
use kai_engine::share::order::{QueueOrderKey, TieBreak, compare};
use kai_engine::share::{QueueAmounts, sum};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// Queues of the same age are taken in name order.
const SAME_AGE: &str = "D17";
pub(super) fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "queue_info.NewQueueInfo" => Some(read),
        "queue_order.GetQueueOrderResult" => Some(order),
        "proportion.getNodeResources" => Some(offers),
        _ => None,
    }
}

fn read(case: &Case<'_>) -> CallOutcome {
    let mut object = case.input["queue"].clone();
    if object["spec"].is_null() {
        object["spec"] = json!({});
    }
    let Ok(object) = serde_json::from_value::<Queue>(object) else {
        return CallOutcome::Failed("the record has no readable queue".to_owned());
    };
    let key = Key::default();
    let mut report = Report::on(Kind::Queue, &key);
    let queue = translate::queue::translate(&object, &Settings::default(), [0.0; 3], &mut report);
    let seconds = |span: Option<kai_units::Span>| span.map(|span| span.0 as f64 / 1e6);
    let name = queue.display_name.as_deref().unwrap_or(&queue.name);
    let ours = json!({
        "uid": queue.name,
        "name": name,
        "parent_queue": queue.parent,
        "priority": queue.priority,
        "preempt_min_runtime": seconds(queue.preempt_min_runtime),
        "reclaim_min_runtime": seconds(queue.reclaim_min_runtime),
        "resources": resources([queue.cpu, queue.memory, queue.gpu]),
    });
    let mut expected = case.result()[0].clone();
    let resources = expected["resources"].clone();
    expected["display_name"] = Value::Null;
    // Amounts that are left out are 0.
    expected["resources"] = NAMES
        .iter()
        .map(|name| {
            let share = &resources[name];
            let value = |key: &str| share[key].as_f64().unwrap_or(0.0);
            let share = json!({
                "quota": value("quota"),
                "limit": value("limit"),
                "over_quota_weight": value("over_quota_weight"),
            });
            ((*name).to_owned(), share)
        })
        .collect::<Map<_, _>>()
        .into();
    same(&expected, &ours)
}

/// Shares in the units of the Queue object: millicores, megabytes, devices.
fn resources(shares: [QueueShare; 3]) -> Value {
    let units = [1.0, 1e6, WHOLE_GPU as f64];
    let share = |r: usize| {
        let amount = |bound: Option<i64>| bound.map_or(-1.0, |bound| bound as f64 / units[r]);
        let QueueShare { quota, limit, weight } = shares[r];
        (
            NAMES[r].to_owned(),
            json!({ "quota": amount(quota), "limit": amount(limit), "over_quota_weight": weight }),
        )
    };
    Value::Object((0..3).map(share).collect())
}

fn order(case: &Case<'_>) -> CallOutcome {
    let memory = case.input["min_node_gpu_memory"].as_i64();
    let requests = ["l_job_info", "r_job_info"].map(|key| asked(&case.input[key], memory));
    let (l, r) = (&case.input["l_queue"], &case.input["r_queue"]);
    let age = |queue: &Value| (time_rank(&queue["created"]), text(&queue["uid"]).to_owned());
    let younger = age(l).cmp(&age(r)) == Ordering::Greater;
    let ledgers = [ledger(l, u32::from(younger)), ledger(r, u32::from(!younger))];
    let keys: [QueueOrderKey<'_>; 2] = std::array::from_fn(|i| QueueOrderKey {
        ledger: &ledgers[i],
        request: requests[i],
        victims: [0; 3],
        tie_break: TieBreak::by_rank(&ledgers[i]),
    });
    let total = quantities(&case.input["total_resources"]);
    let outcome = result(case, compare(&keys[0], &keys[1], &total) as i8);
    if outcome == CallOutcome::Passed || time_rank(&l["created"]) != time_rank(&r["created"]) {
        return outcome;
    }
    // With equal ranks only the age is left to decide.
    let same_rank = [ledger(l, 0), ledger(r, 0)];
    let keys: [QueueOrderKey<'_>; 2] = std::array::from_fn(|i| QueueOrderKey {
        ledger: &same_rank[i],
        request: requests[i],
        victims: [0; 3],
        tie_break: TieBreak::by_rank(&same_rank[i]),
    });
    match compare(&keys[0], &keys[1], &total) {
        Ordering::Equal => CallOutcome::ByDesign(SAME_AGE),
        Ordering::Less | Ordering::Greater => outcome,
    }
}

/// The request of a job's next allocation from its queue.
fn asked(job: &Value, reference_memory: Option<i64>) -> QueueAmounts {
    let mut recorded = RecordedCluster::new(&[("subgrouporder", &Value::Null), ("taskorder", &Value::Null)]);
    let key = recorded.add_job(job);
    recorded.settle();
    let pods = pods_to_place(
        &recorded.cluster,
        &recorded.policy.registry,
        recorded.group(&key),
        Selection::Simulated,
    );
    pods.into_iter()
        .fold([0; 3], |all, pod| sum(&all, &recorded.cluster.queue_request(pod, reference_memory)))
}

fn offers(case: &Case<'_>) -> CallOutcome {
    let node = &case.input["node"];
    let mut recorded = RecordedCluster::new(&[]);
    recorded.add_node(node);
    for task in list(&node["pods"]) {
        let mut task = task.clone();
        task["node"] = node["name"].clone();
        recorded.add_task(&task, text(&task["status"]), None, "");
    }
    recorded.settle();
    let restricted = case.input["ssn"]["restrict_node_scheduling"].as_bool() == Some(true);
    let total = recorded.cluster.total(restricted);
    same(&json!(quantities(&case.result()[0])), &json!(total))
}
