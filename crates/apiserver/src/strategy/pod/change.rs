//! Validation of pod updates: which fields are mutable, and which only while the pod has scheduling gates (KEP-3838).

use crate::field::{Error, Path};
use crate::object;
use crate::registry::Subresource;
use crate::strategy::checks::{Errors, list, number, part, text};
use serde_json::{Map, Value};

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

/// Reverts the parts of a new version that the endpoint may not change.
pub(in crate::strategy) fn prepare_update(part: Option<Subresource>, old: &Value, new: &mut Value) {
    match part {
        Some(Subresource::EphemeralContainers) => {
            let debug = new.pointer("/spec/ephemeralContainers").cloned();
            keep_spec(old, new);
            if let Some(debug) = debug {
                object::map_mut(new, "spec").insert("ephemeralContainers".to_owned(), debug);
            }
        }
        Some(Subresource::Resize) => {
            let wanted = new.get("spec").cloned().unwrap_or_default();
            keep_spec(old, new);
            for field in CONTAINERS {
                let own = new.pointer_mut(&format!("/spec/{field}")).and_then(Value::as_array_mut);
                for container in own.into_iter().flatten().filter_map(Value::as_object_mut) {
                    let name = container.get("name");
                    let found = list(&wanted, field).iter().find(|one| one.get("name") == name);
                    for part in ["resources", "resizePolicy"] {
                        if let Some(value) = found.and_then(|found| found.get(part)) {
                            container.insert(part.to_owned(), value.clone());
                        }
                    }
                }
            }
        }
        Some(_) | None => {}
    }
    if object::str_at(new, "/status/qosClass").is_empty()
        && let Some(class) = old.pointer("/status/qosClass")
    {
        object::map_mut(new, "status").insert("qosClass".to_owned(), class.clone());
    }
}

fn keep_spec(old: &Value, new: &mut Value) {
    if let Some(spec) = old.get("spec") {
        new["spec"] = spec.clone();
    }
}

/// Validates an update.
pub(in crate::strategy) fn validate_update(part_of: Option<Subresource>, old: &Value, new: &Value) -> Errors {
    if matches!(part_of, Some(Subresource::EphemeralContainers | Subresource::Resize)) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let (was, is) = (part(old, "spec"), part(new, "spec"));
    for field in CONTAINERS {
        if list(was, field).len() != list(is, field).len() {
            errors.push(Error::forbidden(&path.field(field), "pod updates may not add or remove containers"));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    for field in CONTAINERS {
        let path = path.field(field);
        for (index, container) in list(is, field).iter().enumerate() {
            if text(container, "image").is_empty() {
                let path = path.index(index);
                errors.push(Error::required(&path.field("image"), ""));
            }
        }
    }
    validate_deadline(&mut errors, was, is, &path);
    let gated = !list(was, "schedulingGates").is_empty();
    validate_gates(&mut errors, was, is, &path);
    let known = list(is, "tolerations");
    if list(was, "tolerations").iter().any(|toleration| !known.contains(toleration)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        let kept = list(was, "tolerations").iter().all(|toleration| {
            known.iter().any(|other| without_seconds(other) == without_seconds(toleration))
        });
        if !kept {
            errors.push(Error::forbidden(&path.field("tolerations"), detail));
        }
    }
    if gated {
        validate_tightened(&mut errors, was, is, &path);
    }
    let munged = |spec: &Value| comparable(spec, gated);
    let grace = |spec: &Value| number(spec, "terminationGracePeriodSeconds");
    let set_to_one = grace(was).is_some_and(|seconds| seconds < 0) && grace(is) == Some(1);
    let (mut before, after) = (munged(was), munged(is));
    if set_to_one {
        before.insert("terminationGracePeriodSeconds".to_owned(), Value::from(1));
    }
    if before != after {
        errors.push(Error::forbidden(&path, FIXED));
    }
    errors
}

fn without_seconds(toleration: &Value) -> Map<String, Value> {
    let mut fields = toleration.as_object().cloned().unwrap_or_default();
    fields.remove("tolerationSeconds");
    fields
}

/// The spec without its mutable fields.
fn comparable(spec: &Value, gated: bool) -> Map<String, Value> {
    let mut fields = spec.as_object().cloned().unwrap_or_default();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.remove(field);
    }
    if gated {
        fields.remove("nodeSelector");
        fields.remove("affinity");
    }
    for field in CONTAINERS {
        let containers = fields.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    fields
}

fn validate_deadline(errors: &mut Errors, was: &Value, is: &Value, path: &Path<'_>) {
    let path = path.field("activeDeadlineSeconds");
    let (before, after) = (number(was, "activeDeadlineSeconds"), number(is, "activeDeadlineSeconds"));
    match (before, after) {
        (Some(before), Some(after)) if after > before => {
            errors.push(Error::invalid(&path, after, "must be less than or equal to previous value"));
        }
        (Some(_), None) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(Error::invalid(&path, Value::Null, detail));
        }
        (Some(_) | None, Some(_)) | (None, None) => {}
    }
}

/// Scheduling gates can be removed, not added.
fn validate_gates(errors: &mut Errors, was: &Value, is: &Value, path: &Path<'_>) {
    let path = path.field("schedulingGates");
    let known = list(was, "schedulingGates");
    for (index, gate) in list(is, "schedulingGates").iter().enumerate() {
        if !known.contains(gate) {
            let name = text(gate, "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(Error::forbidden(&path.index(index).field("name"), detail));
        }
    }
}

/// The node affinity and selector of a gated pod can only be restricted further.
fn validate_tightened(errors: &mut Errors, was: &Value, is: &Value, path: &Path<'_>) {
    let now = part(is, "nodeSelector");
    let before = part(was, "nodeSelector").as_object();
    let kept = before.into_iter().flatten().all(|(key, value)| now.get(key) == Some(value));
    if !kept {
        let detail = "field is immutable except for additions";
        let shown = now.clone();
        errors.push(Error::invalid(&path.field("nodeSelector"), shown, detail));
    }
    let required = |spec: &Value| {
        let pointer =
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        spec.pointer(pointer).and_then(Value::as_array).cloned()
    };
    if let Some(before) = required(was) {
        let after = required(is).unwrap_or_default();
        let tightened = before.len() == after.len()
            && before.iter().zip(&after).all(|(before, after)| {
                ["matchExpressions", "matchFields"]
                    .iter()
                    .all(|field| list(before, field).iter().all(|one| list(after, field).contains(one)))
            });
        if !tightened {
            let affinity = path.field("affinity");
            let node = affinity.field("nodeAffinity");
            let at = node.field("requiredDuringSchedulingIgnoredDuringExecution");
            let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
            errors.push(Error::invalid(&at.field("nodeSelectorTerms"), after, detail));
        }
    }
}
