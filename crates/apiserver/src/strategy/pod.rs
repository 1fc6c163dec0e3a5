//! The strategy of Pods: defaulting, preparation and validation.

mod affinity;
mod change;
mod container;
mod resources;
mod spec;
mod volume;

pub(super) use affinity::EFFECTS;
pub(super) use change::{prepare_update, validate_update};
pub(super) use container::port_name_faults;
pub(super) use resources::is_extended;
pub(super) use spec::{validate, validate_template, warnings};

use super::checks::{Errors, invalid_all, list, number, part, text};
use super::defaults::{self, set};
use crate::field::{Error, Path};
use crate::names;
use crate::object;
use crate::quantity::Quantity;
use crate::server::Core;
use serde_json::{Map, Value, json};

/// The fields that hold containers.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Images without a tag or with `latest` default to `Always`.
pub(super) fn default_pull_policy(container: &mut Map<String, Value>) {
    if container.contains_key("imagePullPolicy") {
        return;
    }
    let image = defaults::text(container, "image");
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map_or("latest", |(_, tag)| tag);
    let policy = if tag == "latest" && digest.is_none() { "Always" } else { "IfNotPresent" };
    container.insert("imagePullPolicy".to_owned(), json!(policy));
}

/// Defaults host ports with `hostNetwork`, and both fields of the service account name.
pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for field in CONTAINERS {
            let containers = spec.get_mut(field).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let ports = container.get_mut("ports").and_then(Value::as_array_mut);
                for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                    if let Some(number) = port.get("containerPort").cloned() {
                        set(port, "hostPort", number);
                    }
                }
            }
        }
    }
    let account = match defaults::text(spec, "serviceAccountName") {
        "" => defaults::text(spec, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !account.is_empty() {
        spec.insert("serviceAccountName".to_owned(), json!(account));
        spec.insert("serviceAccount".to_owned(), json!(account));
    }
}

/// Defaults of Pods that pod templates do not get.
pub(super) fn default(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    set(spec, "enableServiceLinks", json!(true));
    for field in CONTAINERS {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(resources) = container.get_mut("resources") else { continue };
            let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { continue };
            let requests = object::map_mut(resources, "requests");
            for (name, limit) in limits {
                requests.entry(name).or_insert(limit);
            }
        }
    }
}

/// Sets the initial status.
pub(super) fn prepare_create(core: &Core, pod: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(pod)});
    if !list(part(pod, "spec"), "schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": core.clock.time(),
        }]);
    }
    pod["status"] = status;
}

/// The `QoS` class.
pub(super) fn qos_class(pod: &Value) -> &'static str {
    let spec = part(pod, "spec");
    let (mut any, mut guaranteed) = (false, true);
    for container in CONTAINERS.iter().flat_map(|field| list(spec, field)) {
        let resources = part(container, "resources");
        let amount = |kind: &str, name: &str| {
            let amount = part(part(resources, kind), name).as_str().and_then(Quantity::parse);
            amount.filter(|amount| !amount.is_zero())
        };
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", name), amount("limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Validates an update of the status.
pub(super) fn validate_status(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("status");
    let status = part(new, "status");
    let conditions = path.field("conditions");
    for (index, condition) in list(status, "conditions").iter().enumerate() {
        let name = text(condition, "type");
        // The path as kube-apiserver spells it.
        invalid_all(&mut errors, &conditions.index(index).field("Type"), name, names::label_key(name));
    }
    let nominated = text(status, "nominatedNodeName");
    let bound = !object::str_at(new, "/spec/nodeName").is_empty();
    if bound && !nominated.is_empty() && nominated != text(part(old, "status"), "nominatedNodeName") {
        let detail = "may not be set on pods that are already bound to a node";
        errors.push(Error::forbidden(&path.field("nominatedNodeName"), detail));
    }
    let class = text(status, "qosClass");
    if class != text(part(old, "status"), "qosClass") {
        errors.push(Error::invalid(&path.field("qosClass"), class, "field is immutable"));
    }
    errors.extend(validate_terminated(part(old, "status"), status, part(new, "spec"), &path));
    errors
}

/// A terminated container stays terminated unless the restart policy restarts it.
fn validate_terminated(old: &Value, new: &Value, spec: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    if text(spec, "restartPolicy") == "Always" {
        return errors;
    }
    for field in ["containerStatuses", "initContainerStatuses"] {
        let path = path.field(field);
        for (index, status) in list(new, field).iter().enumerate() {
            let was = list(old, field).iter().find(|was| was["name"] == status["name"]);
            let ended = |status: &Value| status.pointer("/state/terminated").cloned();
            let Some(exit) = was.and_then(ended) else { continue };
            let retries = text(spec, "restartPolicy") == "OnFailure" && number(&exit, "exitCode") != Some(0);
            if !retries && ended(status).is_none() {
                let at = path.index(index);
                errors.push(Error::forbidden(
                    &at.field("state"),
                    "may not be transitioned to non-terminated state",
                ));
            }
        }
    }
    errors
}
