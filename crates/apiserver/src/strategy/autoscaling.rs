//! Horizontal pod autoscalers, leases and limit ranges.

use super::checks::{Errors, list, not_negative, number, part, text};
use super::defaults::set;
use crate::field::{Error, Path};
use crate::object;
use serde_json::{Map, Value, json};

/// An autoscaler that names no metric looks at the processors.
pub(super) fn default(object: &mut Value) {
    let spec = object::map_mut(object, "spec");
    set(spec, "minReplicas", json!(1));
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
}

/// What is wrong with an autoscaler.
pub(super) fn validate(object: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(object, "spec");
    let least = number(spec, "minReplicas");
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.push(Error::invalid(&path.field("minReplicas"), least, "must be greater than or equal to 1"));
    }
    let most = number(spec, "maxReplicas").unwrap_or(0);
    if most < 1 {
        errors.push(Error::required(&path.field("maxReplicas"), "must be set and greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(Error::invalid(&path.field("maxReplicas"), most, detail));
    }
    let target = path.field("scaleTargetRef");
    let own = part(spec, "scaleTargetRef");
    for field in ["kind", "name"] {
        if text(own, field).is_empty() {
            errors.push(Error::required(&target.field(field), ""));
        }
    }
    let version = text(own, "apiVersion");
    if version.is_empty() {
        let detail = "apiVersion must specify API group";
        errors.push(Error::invalid(&target.field("apiVersion"), version, detail));
    }
    errors
}

/// What is wrong with a lease.
pub(super) fn validate_lease(lease: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(lease, "spec");
    if let Some(seconds) = number(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    not_negative(&mut errors, spec, &path, &["leaseTransitions"]);
    errors
}

/// What a limit range leaves out follows from the rest.
pub(super) fn default_limits(object: &mut Value) {
    let limits = object.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
    for limit in limits.into_iter().flatten().filter(|limit| text(limit, "type") == "Container") {
        let amounts = |limit: &Value, field: &str| -> Map<String, Value> {
            part(limit, field).as_object().cloned().unwrap_or_default()
        };
        let mut usual = amounts(limit, "default");
        for (name, amount) in amounts(limit, "max") {
            usual.entry(name).or_insert(amount);
        }
        let mut requests = amounts(limit, "defaultRequest");
        for (name, amount) in amounts(limit, "min").into_iter().chain(usual.clone()) {
            requests.entry(name).or_insert(amount);
        }
        for (field, amounts) in [("default", usual), ("defaultRequest", requests)] {
            if !amounts.is_empty() {
                limit[field] = Value::Object(amounts);
            }
        }
    }
}

/// What is wrong with a limit range.
pub(super) fn validate_limits(object: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let path = path.field("limits");
    let mut seen = Vec::new();
    for (index, limit) in list(part(object, "spec"), "limits").iter().enumerate() {
        let kind = text(limit, "type");
        if seen.contains(&kind) {
            let path = path.index(index);
            errors.push(Error::duplicate(&path.field("type"), kind));
        }
        seen.push(kind);
    }
    errors
}
