//! Replays resource vectors and MIG profiles; GPU requirements are in [`gpu`].

mod gpu;

use super::compare::same;
use super::inputs::Names;
use super::record::{Case, text};
use super::{Adapter, Area, CallOutcome};
use kai_engine::resource::MigProfile;
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-resources", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "resources.ExtractGpuAndMemoryFromMigResourceName" => Some(mig_profile),
        "resource_info.ResourceRequirements.IsEmpty" => Some(is_empty),
        "resource_info.ResourceRequirements.LessEqual" => Some(fits),
        "resource_info.ResourceRequirements.SetMaxResource" => Some(maximum),
        _ => gpu::adapter(function),
    }
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
