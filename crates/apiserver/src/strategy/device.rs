//! The strategies of `DeviceClass`es, `ResourceSlice`s, `ResourceClaim`s and `ResourceClaimTemplate`s (KEP-4381).

mod go_format;

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

pub(super) fn validate_class(class: &Value) -> Errors {
    let mut errors = Vec::new();
    validate_selectors(&mut errors, part(class, "spec"), &Path::of("spec"));
    errors
}

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
            let detail = format!("exactly one of {listed} is required, but multiple fields are set");
            errors.push(Error::invalid(&path, format!("{{{}}}", set.join(", ")), detail));
        }
    }
    let devices = path.field("devices");
    let mut seen = Vec::new();
    for (index, device) in list(spec, "devices").iter().enumerate() {
        let path = devices.index(index);
        required_name(&mut errors, device, &path, "name", names::dns_label);
        let attributes = path.field("attributes");
        for (name, attribute) in part(device, "attributes").as_object().into_iter().flatten() {
            if attribute.as_object().is_none_or(|values| values.len() != 1) {
                let detail = "exactly one value must be specified";
                errors.push(Error::invalid(&attributes.key(name), "", detail));
            }
        }
        let name = text(device, "name");
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path, name));
        }
        seen.push(name);
    }
    errors
}

/// Whether a node selection field is set.
fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Bool(false) | Value::Null) && value != ""
}

/// Driver, pool and node of a `ResourceSlice` are immutable.
pub(super) fn validate_slice_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let (was, is) = (part(old, "spec"), part(new, "spec"));
    immutable(&mut errors, was, is, &path, "driver");
    immutable(&mut errors, part(was, "pool"), part(is, "pool"), &path.field("pool"), "name");
    immutable(&mut errors, was, is, &path, "nodeName");
    errors
}

/// Validates the spec of a `ResourceClaim` or of a template.
pub(super) fn validate_claim_spec(spec: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let devices = path.field("devices");
    let path = devices.field("requests");
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
    validate_references(&mut errors, part(spec, "devices"), &devices);
    errors
}

/// Constraints and configuration must refer to requests of the claim.
fn validate_references(errors: &mut Errors, own: &Value, path: &Path<'_>) {
    let mut known: Vec<String> = Vec::new();
    for request in list(own, "requests") {
        let name = text(request, "name");
        known.push(name.to_owned());
        let alternatives = list(request, "firstAvailable").iter();
        known.extend(alternatives.map(|one| format!("{name}/{}", text(one, "name"))));
    }
    for field in ["constraints", "config"] {
        let path = path.field(field);
        for (index, one) in list(own, field).iter().enumerate() {
            let path = path.index(index);
            let requests = path.field("requests");
            for (index, name) in list(one, "requests").iter().filter_map(Value::as_str).enumerate() {
                if !known.iter().any(|known| known == name) {
                    let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
                    errors.push(Error::invalid(&requests.index(index), name, detail));
                }
            }
            if field == "constraints" {
                validate_attribute(errors, one, &path);
            } else if let Some(opaque) = one.get("opaque") {
                let path = path.field("opaque");
                required_name(errors, opaque, &path, "driver", names::subdomain);
                if opaque.get("parameters").is_none_or(Value::is_null) {
                    errors.push(Error::required(&path.field("parameters"), ""));
                }
            } else {
                errors.push(Error::required(&path.field("opaque"), ""));
            }
        }
    }
}

fn validate_attribute(errors: &mut Errors, constraint: &Value, path: &Path<'_>) {
    let given = ["matchAttribute", "distinctAttribute"].iter().filter(|one| constraint.get(**one).is_some());
    if given.count() != 1 {
        // kube-apiserver reports the same message for no attribute and for several ones.
        let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errors.push(Error::required(path, detail));
    }
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

/// The spec of a `ResourceClaim` or a template is immutable.
pub(super) fn validate_spec_change(old: &Value, new: &Value) -> Errors {
    if old.get("spec") == new.get("spec") {
        return Vec::new();
    }
    let value = go_format::claim_spec(part(new, "spec"));
    vec![Error::invalid_unshown(&Path::of("spec"), format!("{value}: field is immutable"))]
}

/// Validates an update of the status of a `ResourceClaim`.
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
        let value = go_format::allocation(after);
        errors
            .push(Error::invalid_unshown(&path.field("allocation"), format!("{value}: field is immutable")));
    }
    errors
}
