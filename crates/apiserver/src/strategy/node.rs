//! The strategies of Nodes and Namespaces.

use super::checks::{Errors, invalid_all, list, part, text};
use super::pod::{EFFECTS, is_extended};
use crate::field::{Error, Path};
use crate::names;
use crate::object;
use crate::quantity::Quantity;
use serde_json::{Value, json};

/// Allocatable defaults to capacity.
pub(super) fn default(node: &mut Value) {
    let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) else { return };
    if !status.contains_key("allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
}

pub(super) fn validate(node: &Value) -> Errors {
    let mut errors = Vec::new();
    // kube-apiserver reports taints with a path below `metadata`.
    let metadata = Path::of("metadata");
    let path = metadata.field("taints");
    let mut seen = Vec::new();
    for (index, taint) in list(part(node, "spec"), "taints").iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        invalid_all(&mut errors, &path.field("key"), key, names::label_key(key));
        invalid_all(&mut errors, &path.field("value"), value, names::label_value(value));
        if effect.is_empty() {
            errors.push(Error::required(&path.field("effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(Error::not_supported(&path.field("effect"), effect, &EFFECTS));
        }
        if seen.contains(&(key, effect)) {
            let time = taint.get("timeAdded").cloned().unwrap_or(Value::Null);
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{time}}}",
                json!(key),
                json!(value),
                json!(effect)
            );
            let mut error = Error::duplicate(&path, "");
            error.value = None;
            error.detail = format!("{shown}: taints must be unique by key and effect pair");
            errors.push(error);
        }
        seen.push((key, effect));
    }
    let status = Path::of("status");
    for field in ["capacity", "allocatable"] {
        let path = status.field(field);
        let amounts = part(part(node, "status"), field).as_object();
        for (name, amount) in amounts.into_iter().flatten().filter(|(name, _)| is_extended(name)) {
            if let Some(amount) =
                amount.as_str().and_then(Quantity::parse).filter(|amount| !amount.is_whole())
            {
                errors.push(Error::invalid(&path.field(name), amount.to_string(), "must be an integer"));
            }
        }
    }
    errors
}

pub(super) fn validate_namespace(namespace: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let path = path.field("finalizers");
    for name in list(part(namespace, "spec"), "finalizers").iter().filter_map(Value::as_str) {
        let faults = names::label_key(name);
        if faults.is_empty() && !name.contains('/') && name != "kubernetes" {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path, name, detail));
        }
        invalid_all(&mut errors, &path, name, faults);
    }
    errors
}

pub(super) fn validate_change(old: &Value, new: &Value) -> Errors {
    let mut errors = validate(new);
    let provider = |node: &Value| object::str_at(node, "/spec/providerID").to_owned();
    if !provider(old).is_empty() && provider(old) != provider(new) {
        let path = Path::of("spec");
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&path.field("providerID"), detail));
    }
    errors
}

/// The phase of a namespace must match its `deletionTimestamp`.
pub(super) fn validate_phase(namespace: &Value) -> Errors {
    let phase = object::str_at(namespace, "/status/phase");
    let (wanted, empty) =
        if object::is_deleting(namespace) { ("Terminating", "not ") } else { ("Active", "") };
    if phase == wanted {
        return Vec::new();
    }
    // The field name as kube-apiserver spells it.
    let status = Path::of("status");
    let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {empty}empty");
    vec![Error::invalid(&status.field("Phase"), phase, detail)]
}
