//! The `binding` subresource.

use super::update::{ATTEMPTS, check_uid, commit};
use super::{Call, Reply, find, served};
use crate::field::{Error, Path};
use crate::object;
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use serde_json::{Value, json};

const RESOURCE: QualifiedName<'static> = QualifiedName { group: "", name: "pods/binding" };

/// Binds the pod of the call to the node of the Binding.
pub fn bind(core: &Core, call: &Call, binding: &Value) -> Result<Reply, StatusError> {
    check(call, binding)?;
    let node = object::str_at(binding, "/target/name");
    let dry_run = call.dry_run()?;
    for _ in 0..ATTEMPTS {
        let live = find(core, call)?;
        let mut pod = served(&call.resource, &live);
        check_uid(&call.resource, &live, object::uid(binding), object::uid(&pod))?;
        check_pod(call, &pod)?;
        pod["spec"]["nodeName"] = Value::from(node);
        copy_metadata(binding, &mut pod);
        let time = core.clock.time();
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time});
        set_condition(&mut pod, &condition);
        if dry_run {
            return Ok(Reply::success(201, None));
        }
        if commit(core, &call.resource, &live, pod).is_ok() {
            return Ok(Reply::success(201, None));
        }
    }
    Err(StatusError::modified(RESOURCE, &call.name))
}

fn check(call: &Call, binding: &Value) -> Result<(), StatusError> {
    let name = object::name(binding);
    if !name.is_empty() && name != call.name {
        return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
    }
    let target = Path::of("target");
    let mut errors = Vec::new();
    let kind = object::str_at(binding, "/target/kind");
    if !matches!(kind, "" | "Node") {
        errors.push(Error::not_supported(&target.field("kind"), kind, &["Node", "<empty>"]));
    }
    if object::str_at(binding, "/target/name").is_empty() {
        errors.push(Error::required(&target.field("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::new(500, "", crate::field::aggregate(&errors)))
}

/// Copies labels and annotations of the Binding to the pod.
fn copy_metadata(binding: &Value, pod: &mut Value) {
    for field in ["annotations", "labels"] {
        let wanted = object::meta(binding, field).and_then(Value::as_object);
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) {
            let own = object::meta_mut(pod).entry(field).or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.extend(wanted.clone());
            }
        }
    }
}

fn check_pod(call: &Call, pod: &Value) -> Result<(), StatusError> {
    let name = &call.name;
    let conflict = |why: String| Err(StatusError::conflict(RESOURCE, name, &why));
    if object::is_deleting(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = object::str_at(pod, "/spec/nodeName");
    if !node.is_empty() {
        return conflict(format!("pod {name} is already assigned to node \"{node}\""));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

/// Sets a pod condition; `lastTransitionTime` is kept if the status does not change.
pub(super) fn set_condition(object: &mut Value, condition: &Value) {
    let status = object::map_mut(object, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let found = conditions.iter_mut().find(|known| known["type"] == condition["type"]);
    match found {
        Some(known) => {
            let time = (known["status"] == condition["status"]).then(|| known["lastTransitionTime"].clone());
            *known = condition.clone();
            if let Some(time) = time {
                known["lastTransitionTime"] = time;
            }
        }
        None => conditions.push(condition.clone()),
    }
}
