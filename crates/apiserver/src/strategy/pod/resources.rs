//! Validation of container resources.

use crate::field::{Error, Path};
use crate::names;
use crate::quantity::Quantity;
use crate::strategy::checks::{Errors, invalid_all, list, part, text};
use serde_json::{Map, Value};

const STANDARD_FOR_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Other standard resource names without a prefix.
const STANDARD: [&str; 16] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
];
const HUGE_PAGES: &str = "hugepages-";

/// Validates requests, limits and claims; `claims` are those of the pod.
pub(super) fn validate(resources: &Value, path: &Path<'_>, claims: &[&str]) -> Errors {
    let mut errors = Vec::new();
    let empty = Map::new();
    let amounts = |kind: &str| part(resources, kind).as_object().unwrap_or(&empty).clone();
    let (limits, requests) = (amounts("limits"), amounts("requests"));
    let (limits_path, requests_path) = (path.field("limits"), path.field("requests"));
    for (name, amount) in &limits {
        validate_amount(&mut errors, name, amount, &limits_path.key(name));
    }
    for (name, amount) in &requests {
        validate_amount(&mut errors, name, amount, &requests_path.key(name));
        let Some(request) = parse(amount) else { continue };
        match limits.get(name).and_then(parse) {
            Some(limit) if request != limit && !may_overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests_path, request.to_string(), detail));
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests_path, request.to_string(), detail));
            }
            None if !may_overcommit(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(Error::required(&limits_path, detail));
            }
            Some(_) | None => {}
        }
    }
    validate_claims(&mut errors, list(resources, "claims"), &path.field("claims"), claims);
    errors
}

fn parse(amount: &Value) -> Option<Quantity> {
    amount.as_str().and_then(Quantity::parse)
}

fn validate_amount(errors: &mut Errors, name: &str, amount: &Value, path: &Path<'_>) {
    validate_name(errors, name, path);
    let Some(amount) = parse(amount) else { return };
    if amount.is_negative() {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(path, amount.to_string(), detail));
    }
    if is_extended(name) && !amount.is_whole() {
        errors.push(Error::invalid(path, amount.to_string(), "must be an integer"));
    }
}

fn validate_name(errors: &mut Errors, name: &str, path: &Path<'_>) {
    let faults = names::label_key(name);
    let plain = !name.contains('/');
    if faults.is_empty() && plain && !STANDARD.contains(&name) && !name.starts_with(HUGE_PAGES) {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(Error::invalid(path, name, detail));
    }
    invalid_all(errors, path, name, faults);
    if plain {
        if !STANDARD_FOR_CONTAINERS.contains(&name) && !name.starts_with(HUGE_PAGES) {
            errors.push(Error::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(Error::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is an extended resource, such as `nvidia.com/gpu`; quantities are integers.
pub(in crate::strategy) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::label_key(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

fn validate_claims(errors: &mut Errors, claims: &[Value], path: &Path<'_>, known: &[&str]) {
    let mut seen = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = text(claim, "name");
        let key = (name, text(claim, "request"));
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
            continue;
        }
        if seen.contains(&key) {
            errors.push(Error::duplicate(&path, name));
        }
        seen.push(key);
        if !known.contains(&name) {
            let mut error = Error::not_found(&path, name);
            if !known.is_empty() {
                error.detail =
                    format!("must be one of the names in pod.spec.resourceClaims: {}", known.join(", "));
            }
            errors.push(error);
        }
    }
}
