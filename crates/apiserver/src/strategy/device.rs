//! Devices: classes, slices, claims and templates of claims.

mod shown;

use super::checks::{Errors, immutable, list, number, part, required_name, text};
use crate::field::{Error, Path};
use crate::names;
use kube_cel::cel::Program;
use serde_json::Value;

fn validate_selectors(errors: &mut Errors, owner: &Value, path: &Path<'_>) {
    let path = path.field("selectors");
    for (index, selector) in list(owner, "selectors").iter().enumerate() {
        let path = path.index(index);
        let path = path.field("cel");
        let Some(cel) = selector.get("cel") else {
            errors.push(Error::required(&path, ""));
            continue;
        };
        let expression = text(cel, "expression");
        if let Err(error) = Program::compile(expression) {
            let detail = format!("compilation failed: {}", error.to_string().trim());
            errors.push(Error::invalid(&path.field("expression"), expression, detail));
        }
    }
}

/// What is wrong with a class of devices.
pub(super) fn validate_class(class: &Value) -> Errors {
    let mut errors = Vec::new();
    validate_selectors(&mut errors, part(class, "spec"), &Path::of("spec"));
    errors
}

/// What is wrong with a slice.
pub(super) fn validate_slice(slice: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(slice, "spec");
    required_name(&mut errors, spec, &path, "driver", names::subdomain);
    let pool = path.field("pool");
    if text(part(spec, "pool"), "name").is_empty() {
        errors.push(Error::required(&pool.field("name"), ""));
    }
    let count = number(part(spec, "pool"), "resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.push(Error::invalid(&pool.field("resourceSliceCount"), count, "must be greater than zero"));
    }
    let places = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    let given = places.iter().filter(|field| spec.get(**field).is_some_and(is_set)).count();
    let listed = places.map(|field| format!("`{field}`")).join(", ");
    match given {
        0 => {
            let detail = format!("exactly one of {listed} is required");
            errors.push(Error::required(&path, detail));
        }
        1 => {}
        _ => {
            let set = places.iter().filter(|field| spec.get(**field).is_some_and(is_set));
            let set: Vec<_> = set.map(|field| format!("`{field}`")).collect();
            let detail = format!("{{{}}}: exactly one of {listed} is required", set.join(", "));
            errors.push(Error::invalid_unshown(&path, detail));
        }
    }
    let devices = path.field("devices");
    let mut seen = Vec::new();
    for (index, device) in list(spec, "devices").iter().enumerate() {
        let path = devices.index(index);
        required_name(&mut errors, device, &path, "name", names::dns_label);
        let name = text(device, "name");
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path, name));
        }
        seen.push(name);
    }
    errors
}

/// Whether a field that says where devices are says anything.
fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Bool(false) | Value::Null) && value != ""
}

/// The driver, the pool and the node of a slice stay what they are.
pub(super) fn validate_slice_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let (was, is) = (part(old, "spec"), part(new, "spec"));
    immutable(&mut errors, was, is, &path, "driver");
    immutable(&mut errors, part(was, "pool"), part(is, "pool"), &path.field("pool"), "name");
    immutable(&mut errors, was, is, &path, "nodeName");
    errors
}

/// What is wrong with a claim, or with the claims of a template.
pub(super) fn validate_claim_spec(spec: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let path = path.field("devices");
    let path = path.field("requests");
    let mut seen = Vec::new();
    for (index, request) in list(part(spec, "devices"), "requests").iter().enumerate() {
        let path = path.index(index);
        required_name(&mut errors, request, &path, "name", names::dns_label);
        let exactly = request.get("exactly");
        let alternatives = list(request, "firstAvailable");
        match (exactly, alternatives) {
            (Some(exactly), []) => validate_request(&mut errors, exactly, &path.field("exactly")),
            (None, []) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required";
                errors.push(Error::required(&path, detail));
            }
            (Some(_), _) => {
                let detail =
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                errors.push(Error::invalid_unshown(&path, detail));
            }
            (None, alternatives) => {
                let path = path.field("firstAvailable");
                for (index, alternative) in alternatives.iter().enumerate() {
                    let path = path.index(index);
                    required_name(&mut errors, alternative, &path, "name", names::dns_label);
                    validate_request(&mut errors, alternative, &path);
                }
            }
        }
        let name = text(request, "name");
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path, name));
        }
        seen.push(name);
    }
    errors
}

fn validate_request(errors: &mut Errors, request: &Value, path: &Path<'_>) {
    required_name(errors, request, path, "deviceClassName", names::subdomain);
    validate_selectors(errors, request, path);
    let count = number(request, "count");
    let at = path.field("count");
    match text(request, "allocationMode") {
        "ExactCount" => {
            if let Some(count) = count.filter(|count| *count <= 0) {
                errors.push(Error::invalid(&at, count, "must be greater than zero"));
            }
        }
        "All" => {
            if let Some(count) = count.filter(|count| *count != 0) {
                errors.push(Error::invalid(&at, count, "must not be specified when allocationMode is 'All'"));
            }
        }
        other => {
            let known = ["All", "ExactCount"];
            errors.push(Error::not_supported(&path.field("allocationMode"), other, &known));
        }
    }
}

/// The spec of a claim, or of a template, stays what it is.
pub(super) fn validate_spec_change(old: &Value, new: &Value) -> Errors {
    if old.get("spec") == new.get("spec") {
        return Vec::new();
    }
    let value = shown::claim_spec(part(new, "spec"));
    vec![Error::invalid_unshown(&Path::of("spec"), format!("{value}: field is immutable"))]
}

/// What of a change of a claim's status is not allowed.
pub(super) fn validate_claim_status(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("status");
    let (was, is) = (part(old, "status"), part(new, "status"));
    let allocation = is.get("allocation");
    if allocation.is_none() && !list(is, "reservedFor").is_empty() {
        let detail = "may not be specified when `allocated` is not set";
        errors.push(Error::forbidden(&path.field("reservedFor"), detail));
    }
    if let (Some(before), Some(after)) = (was.get("allocation"), allocation)
        && before != after
    {
        let value = shown::allocation(after);
        errors
            .push(Error::invalid_unshown(&path.field("allocation"), format!("{value}: field is immutable")));
    }
    errors
}
