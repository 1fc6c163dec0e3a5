//! Replays node accounting: allocated, idle and releasing amounts.

use super::compare::same;
use super::record::{Case, map, number, text, whole};
use super::recorded_cluster::RecordedCluster;
use super::{Adapter, Area, CallOutcome};
use kai_cache::object;
use kai_cache::translate;
use kai_engine::cluster::gpu_group::SharedGpus;
use kai_engine::cluster::node::{Load, NodeLedger, When};
use kai_engine::cluster::pod::Status;
use kai_engine::ids::{NodeIdx, PodIdx};
use kai_engine::place::filter;
use serde_json::{Map, Value, json};

pub(super) const AREA: Area = Area { name: "unit-node", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "node_info.NodeInfo.AddTask" => Some(add),
        "node_info.NodeInfo.RemoveTask" => Some(remove),
        "node_info.NodeInfo.IsTaskAllocatable" => Some(|case| fits(case, When::Now)),
        "node_info.NodeInfo.IsTaskAllocatableOnReleasingOrIdle" => Some(|case| fits(case, When::Eventually)),
        "node_info.NodeInfo.isTaskAllocatableOnNonAllocatedResources" => Some(fits_vector),
        "node_info.NodeInfo.PredicateByNodeResourcesType" => Some(gpu_kind),
        "node_info.NodeInfo.GetSumOfIdleGPUs" => Some(idle_gpus),
        "node_info.NodeInfo.GetSumOfReleasingGPUs" => Some(releasing_gpus),
        "node_info.NodeInfo.IsCPUOnlyNode" => Some(is_cpu_only),
        "scheduler_util.ValidateIsNodeReady" => Some(is_ready),
        _ => None,
    }
}

/// A recorded node, and a recorded task that may have to do with it.
pub(super) struct Visit {
    pub(super) recorded: RecordedCluster,
    pub(super) node: NodeIdx,
    pub(super) pod: PodIdx,
}

impl Visit {
    pub(super) fn new(plugins: &[(&str, &Value)], node: &Value, task: &Value) -> Self {
        let mut node = node.clone();
        if node["name"].is_null() {
            node["name"] = json!("node");
        }
        // Recorded hand-built tasks do not request the pod slot that every pod uses.
        if task["request"]["pods"].is_null() {
            for key in ["allocatable", "idle"] {
                node[key]["pods"] = json!(1.0 + number(&node[key]["pods"]));
            }
        }
        let mut recorded = RecordedCluster::new(plugins);
        recorded.add_node(&node);
        let mut task = task.clone();
        task["node"] = Value::Null;
        let key = recorded.add_task(&task, "Pending", None, "");
        recorded.settle();
        let (node, pod) = (recorded.node(text(&node["name"])), recorded.pod(&key));
        Self { recorded, node, pod }
    }

    fn of(case: &Case<'_>, task: &str) -> Self {
        Self::new(&[], &case.input["self"], &case.input[task])
    }

    pub(super) fn fits(&self, when: When) -> bool {
        let cluster = &self.recorded.cluster;
        let groups = cluster.pods[self.pod].observed_gpu_groups.clone();
        let load = cluster.load(self.pod, &groups);
        cluster.nodes[self.node]
            .fits(&load, when, &cluster.dims, &|resource| cluster.is_device_backed(resource))
    }

    fn ledger(&self) -> &NodeLedger {
        &self.recorded.cluster.nodes[self.node].ledger
    }
}

fn status(task: &Value) -> Status {
    match text(&task["status"]) {
        "Releasing" => Status::Releasing,
        "StuckInReleasing" => Status::Stuck,
        "Pipelined" => Status::Pipelined,
        "Allocated" => Status::Allocated,
        "Binding" => Status::Binding,
        "Bound" => Status::Bound,
        _ => Status::Running,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

fn add(case: &Case<'_>) -> CallOutcome {
    change(case, "task", Change::Add)
}

fn remove(case: &Case<'_>) -> CallOutcome {
    change(case, "ti", Change::Remove)
}

fn change(case: &Case<'_>, argument: &str, change: Change) -> CallOutcome {
    if !case.result()[0].is_null() {
        return CallOutcome::Failed(
            "a pod is on a node once by construction, adding and removing cannot fail".to_owned(),
        );
    }
    let task = &case.input[argument];
    let mut visit = Visit::of(case, argument);
    let after = case.output["after"].get("self").unwrap_or(&case.input["self"]);
    let devices = devices(&case.input["self"], after);
    let cluster = &mut visit.recorded.cluster;
    let groups = cluster.pods[visit.pod].observed_gpu_groups.clone();
    let devices = devices.iter().map(|device| cluster.names.intern(device)).collect();
    let mut node = cluster.nodes[visit.node].clone();
    let load = Load { devices, ..cluster.load(visit.pod, &groups) };
    match change {
        Change::Add => node.add(&load, status(task)),
        Change::Remove => node.remove(&load, status(task)),
    }
    visit.recorded.cluster.nodes[visit.node] = node;
    compare(&mut visit, after, task)
}

/// The devices that a call takes or gives back: the record names them only in their counts of users.
fn devices(before: &Value, after: &Value) -> Vec<String> {
    let count = |node: &Value, device: &str| whole(&node["shared_gpus"]["dra_shared_device_refs"][device]);
    let both =
        [before, after].into_iter().flat_map(|node| map(&node["shared_gpus"]["dra_shared_device_refs"]));
    let mut changed: Vec<String> = both
        .map(|(device, _)| device.clone())
        .filter(|device| count(before, device) != count(after, device))
        .collect();
    changed.sort();
    changed.dedup();
    changed
}

fn compare(visit: &mut Visit, expected: &Value, task: &Value) -> CallOutcome {
    let mut expected = expected.clone();
    expected["name"] = json!("expected");
    if task["request"]["pods"].is_null() {
        for key in ["allocatable", "idle"] {
            expected[key]["pods"] = json!(1.0 + number(&expected[key]["pods"]));
        }
    }
    visit.recorded.add_node(&expected);
    let (node, pod) = (visit.node, visit.pod);
    let ours = visit.ledger().clone();
    visit.recorded.settle();
    let theirs = visit.recorded.node("expected");
    debug_assert!(theirs != node && visit.recorded.cluster.pods[pod].present);
    let theirs = visit.recorded.cluster.nodes[theirs].ledger.clone();
    same(&recorded(&visit.recorded, &theirs), &recorded(&visit.recorded, &ours))
}

fn recorded(recorded: &RecordedCluster, ledger: &NodeLedger) -> Value {
    let amounts = |amounts: &kai_engine::resource::Amounts| -> Value {
        let entry = |(dim, amount)| {
            (recorded.cluster.text(recorded.cluster.dims.name(dim)).to_owned(), json!(amount))
        };
        Value::Object(amounts.iter().map(entry).collect::<Map<_, _>>())
    };
    let devices: Map<_, _> = ledger
        .devices
        .iter()
        .map(|(device, n)| {
            (recorded.cluster.text(*device).to_owned(), json!(n.active + n.releasing + n.pipelined))
        })
        .collect();
    json!({
        "idle": amounts(&ledger.idle),
        "used": amounts(&ledger.used),
        "releasing": amounts(&ledger.releasing),
        "gpus": shared(recorded, &ledger.gpus),
        "devices": devices,
    })
}

fn shared(recorded: &RecordedCluster, gpus: &SharedGpus) -> Value {
    let live = gpus.iter().filter(|gpu| gpu.used != 0 || gpu.allocated != 0 || gpu.releasing != 0);
    let entry = |gpu: &kai_engine::cluster::gpu_group::SharedGpu| {
        let counters = json!([gpu.used, gpu.allocated, gpu.releasing, gpu.flagged]);
        (recorded.cluster.text(gpu.group).to_owned(), counters)
    };
    Value::Object(live.map(entry).collect::<Map<_, _>>())
}

fn fits(case: &Case<'_>, when: When) -> CallOutcome {
    same(case.result(), &json!([Visit::of(case, "task").fits(when)]))
}

fn fits_vector(case: &Case<'_>) -> CallOutcome {
    let mut node = case.input["self"].clone();
    node["idle"] = case.input["node_non_allocated_vector"].clone();
    let visit = Visit::new(&[], &node, &case.input["task"]);
    same(case.result(), &json!([visit.fits(When::Now)]))
}

fn gpu_kind(case: &Case<'_>) -> CallOutcome {
    let visit = Visit::of(case, "task");
    let cluster = &visit.recorded.cluster;
    let claim_gpus = cluster.pods[visit.pod].claim_gpus;
    let miss = filter::gpu_kind(&cluster.nodes[visit.node], cluster.shape(visit.pod), claim_gpus);
    same(&json!(case.result()[0].is_null()), &json!(miss.is_none()))
}

fn sums(case: &Case<'_>, sum: fn(&RecordedCluster, NodeIdx) -> (i64, i64)) -> CallOutcome {
    let visit = Visit::new(&[], &case.input["self"], &json!({ "request": { "pods": 1 } }));
    let (gpus, mib) = sum(&visit.recorded, visit.node);
    same(case.result(), &json!([gpus as f64 / 1e6, mib]))
}

fn idle_gpus(case: &Case<'_>) -> CallOutcome {
    sums(case, |recorded, node| recorded.cluster.nodes[node].idle_gpu_sum(&recorded.cluster.dims))
}

fn releasing_gpus(case: &Case<'_>) -> CallOutcome {
    sums(case, |recorded, node| recorded.cluster.nodes[node].releasing_gpu_sum(&recorded.cluster.dims))
}

fn is_cpu_only(case: &Case<'_>) -> CallOutcome {
    let visit = Visit::new(&[], &case.input["self"], &json!({ "request": { "pods": 1 } }));
    same(case.result(), &json!([visit.recorded.cluster.nodes[visit.node].is_cpu_only()]))
}

fn is_ready(case: &Case<'_>) -> CallOutcome {
    let Ok(node) = serde_json::from_value::<object::Node>(case.input["node"].clone()) else {
        return CallOutcome::Failed("the record has no node".to_owned());
    };
    let ready = !node.spec.unschedulable && translate::node::bad_conditions(&node).is_empty();
    same(case.result(), &json!([ready]))
}
