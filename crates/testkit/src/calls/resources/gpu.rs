//! Replays arithmetic and comparisons of GPU requirements.
//!
//! A requirement is one of a few variants here, not a quantity. Without a node, two requirements are compared as failed
//! searches are ([`asks_less`]); whether one covers another is tested on a node with capacity for exactly
//! one of them ([`fits_in_place_of`]).

use super::super::compare::same;
use super::super::record::{Case, amount, map};
use super::super::recorded_cluster::{RecordedCluster, described};
use super::super::{Adapter, CallOutcome};
use kai_engine::cluster::node::When;
use kai_engine::ids::PodIdx;
use kai_engine::input::{GpuRequest, SharedSpec};
use kai_engine::resource::AMOUNT_MAX;
use kai_engine::signature::{Comparison, Representatives, Scope, Signatures};
use serde_json::{Map, Value, json};

/// The position of GPUs among the resources that quota is about.
const GPU: usize = 2;

pub(super) fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "resource_info.GpuResourceRequirement.GetGpusQuota" => Some(quota),
        "resource_info.GpuResourceRequirement.GetNumOfGpuDevices" => Some(devices),
        "resource_info.GpuResourceRequirement.GpuMemoryAsGpuFraction" => Some(memory_as_gpus),
        "resource_info.GpuResourceRequirement.IsEmpty" => Some(is_empty),
        "resource_info.GpuResourceRequirement.LessEqual" => Some(is_covered),
        "resource_info.GpuResourceRequirement.SetMaxResource" => Some(maximum),
        _ => None,
    }
}

/// A recorded requirement as a task.
fn task(gpu: &Value) -> Value {
    json!({ "gpu": gpu, "request": gpu["mig"], "status": "Pending" })
}

/// A recorded with a pod for each of some recorded requirements.
fn requiring<const N: usize>(gpus: [&Value; N]) -> (RecordedCluster, [PodIdx; N]) {
    let mut recorded = RecordedCluster::new(&[]);
    let keys = gpus.map(|gpu| recorded.add_task(&task(gpu), "Pending", None, ""));
    recorded.settle();
    let pods = keys.map(|key| recorded.pod(&key));
    (recorded, pods)
}

fn devices(case: &Case<'_>) -> CallOutcome {
    let (recorded, [pod]) = requiring([&case.input["self"]]);
    same(case.result(), &json!([recorded.cluster.shape(pod).devices()]))
}

fn memory_as_gpus(case: &Case<'_>) -> CallOutcome {
    let (recorded, [pod]) = requiring([&case.input["self"]]);
    let shape = recorded.cluster.shape(pod);
    let reference = case.input["gpu_device_memory"].as_i64().filter(|memory| *memory > 0);
    let by_memory = matches!(shape.gpu, GpuRequest::Memory { .. });
    let gpus = if by_memory { shape.quota_estimate(reference) } else { 0 };
    same(case.result(), &json!([gpus as f64 / 1e6]))
}

/// Devices of each class come from a claim of their own, a pod for all claims beside one for the rest. The most that
/// accounts can hold is the same answer, however much that is.
fn quota(case: &Case<'_>) -> CallOutcome {
    let mut recorded = RecordedCluster::new(&[]);
    let mut claims = Vec::new();
    for (class, count) in map(&case.input["self"]["dra"]) {
        let request = json!({ "name": "r", "exactly": { "deviceClassName": class, "count": count } });
        recorded.add_claim(&json!({
            "metadata": { "name": class }, "spec": { "devices": { "requests": [request] } },
        }));
        claims.push(json!({ "name": class, "resourceClaimName": class }));
    }
    let claiming = recorded.add_pod(described(&json!({ "spec": { "resourceClaims": claims } })));
    let mut plain = case.input["self"].clone();
    plain["dra"] = Value::Null;
    let asking = recorded.add_task(&task(&plain), "Pending", None, "");
    recorded.settle();
    let asked = [claiming, asking].map(|key| recorded.cluster.queue_request(recorded.pod(&key), None)[GPU]);
    let gpus = asked[0].saturating_add(asked[1]).min(AMOUNT_MAX);
    same(&json!([amount(&case.result()[0], GPU).min(AMOUNT_MAX)]), &json!([gpus]))
}

/// A requirement is empty if a pod without GPUs does not request less.
fn is_empty(case: &Case<'_>) -> CallOutcome {
    same(case.result(), &json!([!asks_less(&Value::Null, &case.input["self"])]))
}

fn is_covered(case: &Case<'_>) -> CallOutcome {
    same(case.result(), &json!([fits_in_place_of(&case.input["self"], &case.input["gg"])]))
}

fn maximum(case: &Case<'_>) -> CallOutcome {
    let (own, other) = (&case.input["self"], &case.input["gg"]);
    let after = case.output["after"].get("self").unwrap_or(own);
    let (recorded, [a, b]) = requiring([own, other]);
    if !recorded.cluster.shape(a).is_shared() && !recorded.cluster.shape(b).is_shared() {
        // Amounts of containers that run one after the other: the larger of each counts.
        let (ours, expected) = (described(&pod_of(own, other)), described(&pod_of(after, &Value::Null)));
        let fields = |spec: &SharedSpec| json!([spec.request, format!("{:?}", spec.gpu)]);
        return same(&json!([case.result()[0], fields(&expected.spec)]), &json!([null, fields(&ours.spec)]));
    }
    let (larger, smaller) = if asks_less(own, other) { (other, own) } else { (own, other) };
    let differ = asks_less(own, other) || asks_less(other, own);
    // A share of a GPU is one for the whole pod, so there is a maximum only where one covers the other.
    let failed = differ && !fits_in_place_of(smaller, larger);
    let expected = json!([!case.result()[0].is_null(), after]);
    same(&expected, &json!([failed, if failed { own } else { larger }]))
}

/// A pod object: a container asks for whole GPUs and MIG instances, and so does one that runs before it.
fn pod_of(container: &Value, before: &Value) -> Value {
    let asking = |gpu: &Value| {
        let whole = gpu["portion"].as_f64().filter(|portion| *portion > 0.0).map(|_| &gpu["devices"]);
        let mut amounts: Map<String, Value> =
            map(&gpu["mig"]).map(|(name, count)| (name.clone(), json!(count.to_string()))).collect();
        amounts.extend(whole.map(|count| ("nvidia.com/gpu".to_owned(), json!(count.to_string()))));
        json!([{ "name": "asking", "resources": { "requests": amounts } }])
    };
    let first = if before.is_null() { json!([]) } else { asking(before) };
    json!({ "spec": { "containers": asking(container), "initContainers": first } })
}

/// Whether a pod with one requirement is easier to place than one with another, as far as known without nodes.
fn asks_less(own: &Value, other: &Value) -> bool {
    let mut recorded = RecordedCluster::new(&[]);
    let [own, other] = [("own", own), ("other", other)].map(|(id, gpu)| {
        let set = json!({ "name": "default", "min_available": 1, "tasks": [task(gpu)] });
        recorded.add_job(&json!({ "uid": id, "priority": 0, "pod_group": { "pod_sets": [set] } }))
    });
    recorded.settle();
    let (own, other) = (recorded.group(&own), recorded.group(&other));
    let mut signatures = Signatures::default();
    let mut failed = Representatives::new(Scope::Cluster);
    failed.note(&recorded.cluster, &mut signatures, other, 1);
    match failed.compare(&recorded.cluster, &mut signatures, own) {
        Comparison::Easier(_) => true,
        Comparison::NoRepresentative | Comparison::NotEasier(_) => false,
    }
}

/// Whether a pod with one requirement fits on a node on which exactly one with another fits.
fn fits_in_place_of(own: &Value, other: &Value) -> bool {
    let mut recorded = RecordedCluster::new(&[]);
    let keys = [own, other].map(|gpu| recorded.add_task(&task(gpu), "Pending", None, ""));
    recorded.add_node(&json!({ "name": "node" }));
    recorded.settle();
    let [own, other] = keys.map(|key| recorded.pod(&key));
    let node = recorded.node("node");
    let cluster = &mut *recorded.cluster;
    let shape = cluster.shape(other).clone();
    let ledger = &mut cluster.nodes[node].ledger;
    ledger.idle = shape.request.clone();
    if shape.is_shared() {
        // So much that every device is in use, and that a hundredth of it is a whole number.
        let memory = 100 * (1 + shape.memory_on(100));
        for device in 0..shape.devices() {
            let gpu = ledger.gpus.entry(cluster.names.intern(&format!("device-{device}")));
            (gpu.used, gpu.backed) = (memory - shape.memory_on(memory), true);
            gpu.allocated = gpu.used;
        }
        cluster.nodes[node].gpu_memory.mib = memory;
    }
    let load = cluster.load(own, &cluster.pods[own].observed_gpu_groups);
    cluster.nodes[node].fits(&load, When::Now, &cluster.dims, &|resource| cluster.is_device_backed(resource))
}
