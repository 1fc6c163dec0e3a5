//! Replays scores of nodes and GPUs.

use super::compare::same;
use super::node::Visit;
use super::record::{Case, number, text, whole};
use super::{Adapter, Area, CallOutcome};
use kai_cache::object::{self, Kind};
use kai_cache::{Report, translate};
use kai_engine::cluster::node::When;
use kai_engine::input::Key;
use kai_engine::place::{gpus, score};
use kai_engine::resource::{self, WHOLE_GPU};
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-scoring", adapter };

/// The label that names the MiB of each GPU of a node.
const GPU_MEMORY: &str = "nvidia.com/gpu.memory";

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "gpupack.gpuOrderFn" => Some(|case| gpu(case, |used| used)),
        "gpuspread.gpuOrderFn" => Some(|case| gpu(case, |used| 1.0 - used)),
        "nodeavailability.nodeAvailabilityPlugin.nodeOrderFn" => Some(availability),
        "nominatednode.nodeOrderFn" => Some(nominated),
        "resourcetype.nodeOrderFn" => Some(resource_type),
        "nodeplacement.nodePlacementPlugin.nodeOrderFn" => Some(placement),
        _ => None,
    }
}

fn visit(case: &Case<'_>) -> Visit {
    Visit::new(&[], &case.input["node"], &case.input["task"])
}

fn result(case: &Case<'_>, score: f64) -> CallOutcome {
    same(case.result(), &json!([score, null]))
}

fn gpu(case: &Case<'_>, score: fn(f64) -> f64) -> CallOutcome {
    if !is_memory_readable(&case.input["node"]) {
        // Of a call that failed only the error counts.
        return same(&json!(!case.result()[1].is_null()), &json!(true));
    }
    let visit = visit(case);
    let group = text(&case.input["gpu_idx"]);
    let group = (group != "-2").then(|| visit.recorded.cluster.names.find(group)).flatten();
    result(case, score(gpus::used_portion(&visit.recorded.cluster, visit.node, group)))
}

/// Whether a label with a node's recorded GPU memory is valid.
fn is_memory_readable(node: &Value) -> bool {
    let label = json!({ GPU_MEMORY: whole(&node["gpu_memory_mib"]).to_string() });
    let object = serde_json::from_value::<object::Node>(json!({ "metadata": { "labels": label } }));
    let (object, key) = (object.unwrap_or_default(), Key::default());
    translate::node::gpu_memory(&object, &mut Report::on(Kind::Node, &key)).known
}

fn availability(case: &Case<'_>) -> CallOutcome {
    result(case, if visit(case).fits(When::Now) { score::AVAILABLE } else { 0.0 })
}

fn nominated(case: &Case<'_>) -> CallOutcome {
    let visit = visit(case);
    let cluster = &visit.recorded.cluster;
    let nominated = cluster.pods[visit.pod].nominated == Some(cluster.nodes[visit.node].name);
    result(case, if nominated { score::NOMINATED } else { 0.0 })
}

fn resource_type(case: &Case<'_>) -> CallOutcome {
    let visit = visit(case);
    let cluster = &visit.recorded.cluster;
    let cpu_only = cluster.shape(visit.pod).is_cpu_only() && cluster.pods[visit.pod].claim_gpus == 0;
    let matches = cpu_only && cluster.nodes[visit.node].is_cpu_only();
    result(case, if matches { score::RESOURCE_TYPE } else { 0.0 })
}

fn placement(case: &Case<'_>) -> CallOutcome {
    let visit = visit(case);
    let cluster = &visit.recorded.cluster;
    let node = &cluster.nodes[visit.node];
    let cpu_only = cluster.shape(visit.pod).is_cpu_only() && cluster.pods[visit.pod].claim_gpus == 0;
    let (dim, name, unit) =
        if cpu_only { (resource::CPU, "cpu", 1.0) } else { (resource::GPU, "gpu", WHOLE_GPU as f64) };
    let free = node.free(dim);
    let score = if text(&case.input["self"]["arguments"][name]) == "spread" {
        let count = if cpu_only { node.allocatable.get(dim) } else { node.gpus_total() * WHOLE_GPU };
        if count == 0 { 0.0 } else { free as f64 / count as f64 }
    } else {
        let range: &Value = &case.input["self"]["allocatable_range"][text(&case.input["task"]["uid"])];
        let bound = |key: &str| (number(&range[key]) * unit).round() as i64;
        let (min, max) = (bound("min_allocatable"), bound("max_allocatable"));
        let none = node.allocatable.get(dim) <= 0 || max == 0;
        if none { 0.0 } else { score::packed_score(free, min, max) }
    };
    result(case, score)
}
