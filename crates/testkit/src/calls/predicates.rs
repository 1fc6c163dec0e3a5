//! Replays pre-filters: config maps, and the largest node of the pool.

use super::compare::same;
use super::record::{Case, map, text};
use super::recorded_cluster::{RecordedCluster, described};
use super::{Adapter, Area, CallOutcome};
use kai_engine::place::checks;
use kai_engine::verdict::PodRejection;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const AREA: Area = Area { name: "unit-predicates", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "predicates.ConfigMapPredicate.PreFilter" => Some(config_maps),
        "predicates.MaxNodeResourcesPredicate.PreFilter" => Some(pool_size),
        _ => None,
    }
}

fn config_maps(case: &Case<'_>) -> CallOutcome {
    let pod = &with_sources(&case.input["pod"]);
    let there = &case.input["self"]["config_maps_names"][text(&pod["metadata"]["namespace"])];
    let needed = described(pod).config_maps;
    let missing: BTreeSet<&str> =
        needed.iter().map(String::as_str).filter(|name| there[*name].as_bool() != Some(true)).collect();
    // The names stand in brackets, in an order that varies; one may be empty.
    let status = &case.result()[1];
    let reason = text(&status["reasons"][0]);
    let named = reason.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')).unwrap_or_default();
    let named: BTreeSet<&str> = named.split_whitespace().collect();
    let refused = !missing.is_empty();
    let missing: BTreeSet<&str> = missing.into_iter().filter(|name| !name.is_empty()).collect();
    same(&json!([!status.is_null(), named]), &json!([refused, missing]))
}

/// A pod whose volumes all have a source: the record omits empty config map sources.
fn with_sources(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        if map(volume).all(|(key, _)| key == "name") {
            volume["configMap"] = json!({});
        }
    }
    pod
}

fn pool_size(case: &Case<'_>) -> CallOutcome {
    let pod = &case.input["pod"];
    let mut recorded = RecordedCluster::new(&[("predicates", &Value::Null)]);
    let largest = &case.input["self"];
    recorded.add_node(&json!({
        "name": "largest",
        "allocatable": largest["max_resources"],
        "vector_map": largest["vector_map"],
    }));
    for (_, claim) in map(&largest["resource_claims_map"]) {
        recorded.add_claim(claim);
    }
    let key = recorded.add_pod(described(pod));
    recorded.settle();
    let pool = text(&largest["scheduler_shard_name"]);
    let miss = checks::pool_size(&recorded.cluster, recorded.pod(&key), pool).err();
    let status = &case.result()[1];
    match miss {
        None => same(status, &Value::Null),
        Some(PodRejection::PoolTooSmall(gap)) => {
            let name = match gap.resource.as_str() {
                "gpu" => "GPU",
                "cpu" => "CPU",
                other => other,
            };
            let reason = text(&status["reasons"][0]);
            same(&json!(true), &json!(reason.contains(&format!("{name} resources"))))
        }
        Some(other) => CallOutcome::Failed(format!("refused for another reason: {other:?}")),
    }
}
