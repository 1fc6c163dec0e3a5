//! `RuntimeClass` admission: sets the pod overhead and the node selector of the pod's `RuntimeClass`.

use super::forbidden;
use crate::object;
use crate::server::Core;
use crate::status_error::StatusError;
use crate::verbs::Call;
use serde_json::{Value, json};

/// Applies the `RuntimeClass`, or rejects a pod whose overhead conflicts with it.
pub(super) fn resolve(core: &Core, call: &Call, pod: &mut Value) -> Result<(), StatusError> {
    let name = object::str_at(pod, "/spec/runtimeClassName");
    let own = pod.pointer("/spec/overhead");
    let refused = |why: &str| Err(forbidden(call, pod, &format!("pod rejected: {why}")));
    if name.is_empty() {
        if own.is_some() {
            return refused("Pod Overhead set without corresponding RuntimeClass defined Overhead");
        }
        return Ok(());
    }
    let classes = core.builtin("node.k8s.io", "runtimeclasses");
    let Some(class) = core.store.get(classes.table, name) else {
        return refused(&format!("RuntimeClass \"{name}\" not found"));
    };
    let class = class.value();
    let overhead = class.pointer("/overhead/podFixed");
    match (own, overhead) {
        (Some(_), None) => {
            return refused("Pod Overhead set without corresponding RuntimeClass defined Overhead");
        }
        (Some(own), Some(overhead)) if own != overhead => {
            return refused("Pod's Overhead doesn't match RuntimeClass's defined Overhead");
        }
        (Some(_) | None, _) => {}
    }
    let spec = object::map_mut(pod, "spec");
    if let Some(overhead) = overhead {
        spec.insert("overhead".to_owned(), overhead.clone());
    }
    if let Some(labels) = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object) {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        for (key, value) in labels {
            selector[key] = value.clone();
        }
    }
    if let Some(more) = class.pointer("/scheduling/tolerations").and_then(Value::as_array) {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(tolerations) = tolerations.as_array_mut() {
            let new: Vec<_> = more.iter().filter(|one| !tolerations.contains(one)).cloned().collect();
            tolerations.extend(new);
        }
    }
    Ok(())
}
