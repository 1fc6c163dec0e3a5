//! The scaling pod of a pending pod: it requests whole GPUs, so that autoscalers see what annotations and claims request.
//!
//! It names a scheduler that does not exist, so that it stays pending until its pods are bound: an autoscaler places all
//! pending pods together, on free capacity and on new nodes, so that the pods of a gang count together. KAI's scaling pods
//! are scheduled and end at once; those of a gang would use the same free GPU one after the other, and cause no node.

use super::Options;
use super::observed::Observed;
use super::plan::Creation;
use kai_api::well_known::{annotation, label, label_value, name, resource};
use kai_object as object;
use kai_runtime::Key;
use kai_units::Quantity;
use serde_json::{Map, Value, json};

/// The container's name, as in KAI.
const CONTAINER: &str = "scaling-pod";
/// The maximum lengths of a name and of a label value.
const NAME_MAX: usize = 253;
const LABEL_VALUE_MAX: usize = 63;

/// A scaling pod, as it is created. `source` is the whole pod that it is named after; `owner` is the uid of the service
/// account, whose deletion removes all scaling pods.
pub fn build(
    options: &Options,
    creation: &Creation,
    source: &Value,
    name: &str,
    owner: Option<&str>,
) -> Value {
    let (namespace, pod) = (object::namespace(source), object::name(source));
    let mut labels = json!({label::APP: options.app_label});
    for (key, value) in [(label::SCALING_FOR_NAME, pod), (label::SCALING_FOR_NAMESPACE, namespace)] {
        if value.len() <= LABEL_VALUE_MAX {
            object::set(&mut labels, &[key], value);
        }
    }
    let gpus = creation.gpus.to_string();
    let requests = json!({
        resource::NVIDIA_GPU: gpus,
        resource::CPU: Quantity::from_milli(creation.cpu_milli).to_string(),
        resource::MEMORY: creation.memory.to_string(),
    });
    let mut spec = json!({
        "schedulerName": name::SCALING_POD_SCHEDULER,
        "serviceAccountName": options.service_account,
        // Its process needs no API server.
        "automountServiceAccountToken": false,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": CONTAINER, "image": options.image, "imagePullPolicy": options.image_pull_policy,
            "resources": {"requests": requests, "limits": {resource::NVIDIA_GPU: gpus}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 10_000,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            },
        }],
    });
    for field in ["nodeSelector", "tolerations"] {
        if let Some(value) = source["spec"].get(field) {
            object::set(&mut spec, &[field], value.clone());
        }
    }
    if let Some(affinity) = affinity(source) {
        object::set(&mut spec, &["affinity"], affinity);
    }
    let mut metadata = json!({
        "name": name, "namespace": options.namespace, "labels": labels,
        "annotations": {
            annotation::SCALING_FOR: format!("{namespace}/{pod}"),
            annotation::SCALING_FOR_UID: creation.source_uid,
            // It has no controller, and must not keep a node alive.
            annotation::SAFE_TO_EVICT: label_value::TRUE,
        },
    });
    if let Some(uid) = owner {
        let owner = json!({"apiVersion": "v1", "kind": "ServiceAccount", "name": options.service_account, "uid": uid});
        object::set(&mut metadata, &["ownerReferences"], json!([owner]));
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The status that makes autoscalers act before the default scheduler has looked at the pod.
pub fn unschedulable(now: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now,
        "message": "the node scale adjuster requests a node for pods that share GPUs or claim devices",
    }]}})
}

/// The name of a scaling pod: `NAMESPACE-NAME`, as in KAI. Where that is too long, or another pod's scaling pod has it, a
/// part of the uid tells them apart.
pub fn pod_name(observed: &Observed, options: &Options, creation: &Creation) -> String {
    let Key { namespace, name } = &creation.source;
    let plain = format!("{namespace}-{name}");
    let taken = observed.scaling.get(&Key::new(&options.namespace, &plain));
    let is_taken = taken.is_some_and(|taken| taken.source.as_ref() != Some(&creation.source));
    if plain.len() <= NAME_MAX && !is_taken {
        return plain;
    }
    let uid = object::name_start(&creation.source_uid, 13);
    format!("{}-{uid}", object::name_start(&plain, NAME_MAX - 1 - uid.len()).trim_end_matches(['-', '.']))
}

/// The affinity of a pod, valid in another namespace: terms without namespaces mean those of the pod's own. Terms that the
/// pod itself satisfies are left out, since the scaling pod does not have its labels.
fn affinity(source: &Value) -> Option<Value> {
    let mut affinity = source["spec"].get("affinity").filter(|affinity| affinity.is_object())?.clone();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        for terms in pods.values_mut().filter_map(Value::as_array_mut) {
            if kind == "podAffinity" {
                terms.retain(|entry| !selects(term(entry), source));
            }
            for entry in terms {
                set_namespace(entry, object::namespace(source));
            }
        }
    }
    Some(affinity)
}

/// Preferred terms have a weight around them.
fn term(entry: &Value) -> &Value {
    entry.get("podAffinityTerm").unwrap_or(entry)
}

fn set_namespace(entry: &mut Value, namespace: &str) {
    let term = if entry.get("podAffinityTerm").is_some() { &mut entry["podAffinityTerm"] } else { entry };
    let names_some = term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
        || term.get("namespaces").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
    if let Some(term) = term.as_object_mut()
        && !names_some
    {
        term.insert("namespaces".to_owned(), json!([namespace]));
    }
}

/// Whether a term selects the pod by plain labels.
fn selects(term: &Value, pod: &Value) -> bool {
    let empty = Map::new();
    let selector = &term["labelSelector"];
    let labels = object::meta(pod, "labels").and_then(Value::as_object).unwrap_or(&empty);
    let wanted = selector["matchLabels"].as_object().unwrap_or(&empty);
    let is_plain = selector.get("matchExpressions").and_then(Value::as_array).is_none_or(Vec::is_empty);
    selector.is_object() && is_plain && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
