//! Validation of Events in both groups. As in kube-apiserver, errors name the fields of the core group.

use super::checks::{Errors, invalid_all, text};
use crate::field::{Error, Path};
use crate::names;
use crate::object;
use crate::registry::{Resource, convert};
use serde_json::Value;

/// The group with the stricter validation.
const NEW_GROUP: &str = "events.k8s.io";

pub(super) fn validate(resource: &Resource, event: &Value) -> Errors {
    let event = &convert::to_storage(resource, event.clone());
    let mut errors = Vec::new();
    let namespace = object::str_at(event, "/involvedObject/namespace");
    let own = object::namespace(event);
    // Events about cluster-scoped objects are in the namespace `default`.
    let fits = namespace == own || (namespace.is_empty() && matches!(own, "default" | "kube-system"));
    if !fits {
        let path = Path::of("involvedObject");
        let detail = "does not match event.namespace";
        errors.push(Error::invalid(&path.field("namespace"), namespace, detail));
    }
    if &*resource.group != NEW_GROUP {
        return errors;
    }
    if event.get("eventTime").is_none_or(Value::is_null) {
        errors.push(Error::required(&Path::of("eventTime"), ""));
    }
    let controller = text(event, "reportingComponent");
    let path = Path::of("reportingController");
    if controller.is_empty() {
        errors.push(Error::required(&path, ""));
    }
    invalid_all(&mut errors, &path, controller, names::label_key(controller));
    for field in ["reportingInstance", "action", "reason"] {
        if text(event, field).is_empty() {
            errors.push(Error::required(&Path::of(field), ""));
        }
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(Error::invalid(&Path::of("type"), "", format!("has invalid value: {kind}")));
    }
    errors
}

/// Validates an update: in `events.k8s.io` only the series may change.
pub(super) fn validate_change(resource: &Resource, old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    if &*resource.group != NEW_GROUP {
        return errors;
    }
    let old = &convert::to_storage(resource, old.clone());
    let new = &convert::to_storage(resource, new.clone());
    for field in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ] {
        if old.get(field) != new.get(field) {
            let shown = if field == "reportingComponent" { "reportingController" } else { field };
            let value = new.get(field).cloned().unwrap_or(Value::Null);
            errors.push(Error::invalid(&Path::of(shown), value, "field is immutable"));
        }
    }
    errors
}
