//! Replays the selection of GPUs for fractional requests.

use super::compare::same;
use super::node::Visit;
use super::record::{Case, list, number, text};
use super::{Adapter, Area, CallOutcome};
use kai_engine::cluster::node::When;
use kai_engine::place::gpus;
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-gpu_sharing", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    (function == "gpu_sharing.GetNodePreferableGpuForSharing").then_some(choose as Adapter)
}

/// The record's mark of a whole free GPU.
const WHOLE: &str = "-2";

fn choose(case: &Case<'_>) -> CallOutcome {
    let fitting: Vec<&str> = list(&case.input["fitting_gpus_on_node"]).map(text).collect();
    let mut node = case.input["node"].clone();
    let memory = number(&node["gpu_memory_mib"]);
    // A GPU that is listed as fitting but unknown to the node has only releasing capacity.
    for group in fitting.iter().filter(|group| **group != WHOLE) {
        if node["shared_gpus"]["used_memory_mib"][group].is_null() {
            node["shared_gpus"]["used_memory_mib"][group] = json!(memory);
            node["shared_gpus"]["allocated_memory_mib"][group] = json!(memory);
            node["shared_gpus"]["releasing_memory_mib"][group] = json!(memory - 1.0);
        }
    }
    // The list is in order of preference: whole GPUs come first with the spread strategy.
    let spread = fitting.first() == Some(&WHOLE) && fitting.iter().any(|group| *group != WHOLE);
    let plugin = if spread { "gpuspread" } else { "gpupack" };
    let visit = Visit::new(&[(plugin, &Value::Null)], &node, &case.input["pod"]);
    let cluster = &visit.recorded.cluster;
    let chosen = gpus::choose(cluster, &visit.recorded.policy.registry, visit.pod, visit.node);
    let answer = chosen.map(|chosen| {
        let named = chosen.groups.iter().map(|group| cluster.text(*group).to_owned());
        let new = (1..=chosen.new).map(|n| format!("new-{n}"));
        let waits =
            case.input["is_pipeline_only"].as_bool() == Some(true) || !chosen.ready || !visit.fits(When::Now);
        json!({ "groups": named.chain(new).collect::<Vec<_>>(), "is_releasing": waits })
    });
    same(case.result(), &json!([answer]))
}
