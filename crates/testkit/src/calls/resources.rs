//! Resource vectors and MIG profiles.

use super::compare::same;
use super::inputs::Names;
use super::record::{Case, text};
use super::world::World;
use super::{Adapter, Area, CallOutcome};
use kai_engine::ids::PodIdx;
use kai_engine::input::GpuRequest;
use kai_engine::resource::MigProfile;
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-resources", adapter, not_run: NOT_RUN };

/// GPU requests are kinds of request here, not quantities: they are never compared, added or maximised.
const KINDS: &str = "a GPU request is one of a few kinds, which are neither compared nor maximised";

const NOT_RUN: &[(&str, &str)] = &[
    ("resource_info.GpuResourceRequirement.IsEmpty", KINDS),
    ("resource_info.GpuResourceRequirement.LessEqual", KINDS),
    ("resource_info.GpuResourceRequirement.SetMaxResource", KINDS),
    ("resource_info.GpuResourceRequirement.GetGpusQuota", "amounts are clamped where they enter"),
];

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "resources.ExtractGpuAndMemoryFromMigResourceName" => Some(mig_profile),
        "resource_info.ResourceRequirements.IsEmpty" => Some(is_empty),
        "resource_info.ResourceRequirements.LessEqual" => Some(fits),
        "resource_info.ResourceRequirements.SetMaxResource" => Some(maximum),
        "resource_info.GpuResourceRequirement.GetNumOfGpuDevices" => Some(devices),
        "resource_info.GpuResourceRequirement.GpuMemoryAsGpuFraction" => Some(memory_as_gpus),
        _ => None,
    }
}

/// A world with a pod that has a recorded GPU requirement.
fn requiring(gpu: &Value) -> (World, PodIdx) {
    let mut world = World::new(&[]);
    let key = world.add_task(&json!({ "gpu": gpu }), "Pending", None, "");
    world.settle();
    let pod = world.pod(&key);
    (world, pod)
}

fn devices(case: &Case<'_>) -> CallOutcome {
    let (world, pod) = requiring(&case.input["self"]);
    same(case.result(), &json!([world.cluster.shape(pod).devices()]))
}

fn memory_as_gpus(case: &Case<'_>) -> CallOutcome {
    let (world, pod) = requiring(&case.input["self"]);
    let shape = world.cluster.shape(pod);
    let reference = case.input["gpu_device_memory"].as_i64().filter(|memory| *memory > 0);
    let by_memory = matches!(shape.gpu, GpuRequest::Memory { .. });
    let gpus = if by_memory { shape.quota_estimate(reference) } else { 0 };
    same(case.result(), &json!([gpus as f64 / 1e6]))
}

fn mig_profile(case: &Case<'_>) -> CallOutcome {
    let found = case.result()[2].is_null().then(|| json!([case.result()[0], case.result()[1]]));
    let profile = MigProfile::parse(text(&case.input["mig_resource_name"]));
    same(&json!(found), &json!(profile.map(|profile| [profile.slices, profile.gigabytes])))
}

fn is_empty(case: &Case<'_>) -> CallOutcome {
    let amounts = Names::new().amounts(&case.input["self"], &Value::Null);
    same(case.result(), &json!([amounts.is_empty()]))
}

fn fits(case: &Case<'_>) -> CallOutcome {
    let mut names = Names::new();
    let amounts = names.amounts(&case.input["self"], &Value::Null);
    same(case.result(), &json!([amounts.fits(&names.amounts(&case.input["rr"], &Value::Null))]))
}

fn maximum(case: &Case<'_>) -> CallOutcome {
    let mut names = Names::new();
    let mut amounts = names.amounts(&case.input["self"], &Value::Null);
    amounts.max_with(&names.amounts(&case.input["rr"], &Value::Null));
    let expected = case.output["after"].get("self").unwrap_or(&case.input["self"]);
    let expected = names.amounts(expected, &Value::Null);
    same(&names.recorded(&expected), &names.recorded(&amounts))
}
