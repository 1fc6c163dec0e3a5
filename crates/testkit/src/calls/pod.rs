//! Replays resource requests and statuses of pods.

use super::compare::same;
use super::inputs::amount_list;
use super::record::{Case, list, text};
use super::recorded_cluster::{NOW, RecordedCluster, described_with, pod_object};
use super::{Adapter, Area, CallOutcome};
use kai_cache::object::BindRequest;
use kai_cache::translate;
use kai_engine::cluster::pod::Status;
use kai_engine::input::{self, GpuRequest, PodInput, Received};
use kai_engine::order::member::Selection;
use kai_units::Span;
use serde_json::{Map, Value, json};

pub(super) const AREA: Area = Area { name: "unit-pod", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "pod_info.getPodResourceRequest" => Some(request),
        "pod_info.getPodResourceWithoutInitContainers" => Some(request_without_init),
        "pod_info.getTaskStatus" => Some(status),
        "pod_info.PodInfo.updatePodAdditionalFields" => Some(gpu_fields),
        "pod_info.PodInfo.ShouldAllocate" => Some(wants),
        _ => None,
    }
}

fn request(case: &Case<'_>) -> CallOutcome {
    same(&amounts_of(&case.result()[0]), &request_of(&case.input["pod"]))
}

fn request_without_init(case: &Case<'_>) -> CallOutcome {
    let mut pod = case.input["pod"].clone();
    if let Some(inits) = pod["spec"]["initContainers"].as_array_mut() {
        inits.retain(|container| text(&container["restartPolicy"]) == "Always");
    }
    same(&amounts_of(&case.result()[0]), &request_of(&pod))
}

/// A recorded request by the engine's names, without pod slots, which every pod takes one of.
fn amounts_of(recorded: &Value) -> Value {
    let mut vector = recorded.clone();
    let gpu = &recorded["gpu"];
    let devices = gpu["devices"].as_f64().unwrap_or(0.0) * gpu["portion"].as_f64().unwrap_or(0.0);
    vector["gpu"] = json!(devices);
    collected(amount_list(&vector, &Value::Null))
}

fn request_of(pod: &Value) -> Value {
    collected(described_with(pod, None).spec.request.clone())
}

fn collected(amounts: input::AmountList) -> Value {
    let kept = amounts.into_iter().filter(|(name, amount)| name != input::PODS && *amount != 0);
    Value::Object(kept.map(|(name, amount)| (name, json!(amount))).collect::<Map<_, _>>())
}

fn status(case: &Case<'_>) -> CallOutcome {
    let Some(pod) = pod_object(&case.input["pod"]) else { return unreadable() };
    let threshold = case.input["stuck_in_releasing_threshold"].as_i64().unwrap_or(0);
    let phase = translate::pod::phase(&pod, !case.input["bind_request"].is_null(), None);
    let status = Status::of_phase(phase, NOW + Span::from_secs(-threshold));
    same(case.result(), &json!([name(status)]))
}

fn name(status: Status) -> &'static str {
    match status {
        // KAI has no status for it: the pod is pending.
        Status::Pending | Status::InBackoff => "Pending",
        Status::Gated => "Gated",
        Status::Allocated => "Allocated",
        Status::Pipelined => "Pipelined",
        Status::Binding => "Binding",
        Status::Bound => "Bound",
        Status::Running => "Running",
        Status::Releasing => "Releasing",
        Status::Stuck => "StuckInReleasing",
        Status::Succeeded => "Succeeded",
        Status::Failed => "Failed",
        Status::Unknown => "Unknown",
    }
}

fn unreadable() -> CallOutcome {
    CallOutcome::Failed("the record has no readable pod".to_owned())
}

/// The fields that annotations and a bind request decide; requests of containers are replayed by another call.
fn gpu_fields(case: &Case<'_>) -> CallOutcome {
    let bind = &case.input["bind_request"]["bind_request"];
    let bind = (!bind.is_null()).then(|| serde_json::from_value::<BindRequest>(bind_request(bind)));
    let Ok(bind) = bind.transpose() else { return CallOutcome::Failed("unreadable bind request".to_owned()) };
    let pod = described_with(&case.input["self"]["pod"], bind.as_ref());
    // Absent means that the call changed nothing.
    let after = case.output["after"].get("self").unwrap_or(&case.input["self"]);
    let expected = json!({
        "gpu": after["gpu"],
        "received": after["received"],
        "groups": list(&after["gpu_groups"]).collect::<Vec<_>>(),
    });
    same(&expected, &fields(&pod))
}

/// A recorded bind request with the parts that every stored one has.
fn bind_request(recorded: &Value) -> Value {
    let mut bind = recorded.clone();
    for (key, value) in [("podName", ""), ("selectedNode", "")] {
        if bind["spec"][key].is_null() {
            bind["spec"][key] = json!(value);
        }
    }
    if bind["metadata"].is_null() {
        bind["metadata"] = json!({});
    }
    bind
}

fn fields(pod: &PodInput) -> Value {
    let gpu = match pod.spec.gpu {
        GpuRequest::Fraction { hundredths, devices } => {
            json!({ "devices": devices, "portion": f64::from(hundredths) / 100.0 })
        }
        GpuRequest::Memory { mib, devices } => json!({ "devices": devices, "memory_mib": mib, "portion": 0 }),
        GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Mig => Value::Null,
    };
    let received = pod.received.map(|received| match received {
        Received::Regular => "Regular",
        Received::Fraction => "Fraction",
        Received::Mig => "MigInstance",
    });
    json!({ "gpu": gpu, "received": received, "groups": pod.gpu_groups })
}

fn wants(case: &Case<'_>) -> CallOutcome {
    let mut recorded = RecordedCluster::new(&[]);
    let task = &case.input["self"];
    let group =
        recorded.add_job(&json!({ "uid": "job", "pod_group": { "pod_sets": [{ "name": "default" }] } }));
    let key = recorded.add_task(task, text(&task["status"]), Some(&group), "default");
    recorded.settle();
    let real = case.input["is_real_allocation"].as_bool() == Some(true);
    let selection = if real { Selection::Real } else { Selection::Simulated };
    same(case.result(), &json!([selection.selects(&recorded.cluster, recorded.pod(&key))]))
}
