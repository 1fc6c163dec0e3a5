//! What is kept of watched objects, and by what they are found.

use super::{claim, gpu_memory};
use crate::keep;
use kai_api::Pod;
use kai_api::pod::{Container, PodSpec};
use kai_api::value::{List, Pairs};
use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::kind::Key;
use serde::Deserialize;
use serde_json::Value;

pub(super) fn group_key(pod: &Value) -> Option<Key> {
    let name = pod.pointer("/metadata/annotations")?.get(annotation::POD_GROUP)?.as_str()?;
    Some(Key::new(object::namespace(pod), name))
}

pub(super) fn group_of_pod(pod: &Value) -> Vec<String> {
    group_key(pod).iter().map(Key::to_string).collect()
}

pub(super) fn claims_of_pod(pod: &Value) -> Vec<String> {
    if pod.pointer("/spec/resourceClaims").is_none() {
        return Vec::new();
    }
    let Ok(typed) = Pod::deserialize(pod) else { return Vec::new() };
    claim::names(&typed).map(|name| Key::new(object::namespace(pod), name).to_string()).collect()
}

pub(super) fn memory_node_of_pod(pod: &Value) -> Vec<String> {
    let by_memory = pod.pointer("/metadata/annotations").and_then(|all| all.get(annotation::GPU_MEMORY));
    let node = object::str_at(pod, "/spec/nodeName");
    if by_memory.is_none() || node.is_empty() { Vec::new() } else { vec![node.to_owned()] }
}

pub(super) fn class_of_group(group: &Value) -> Vec<String> {
    vec![object::str_at(group, "/spec/priorityClassName").to_owned()]
}

/// Keeps of a pod what decides how it counts: exactly what the typed form reads of it, without what only placing
/// needs.
pub(super) fn pod(pod: &mut Value) {
    let version = object::meta_str(pod, "resourceVersion").to_owned();
    let Ok(mut typed) = Pod::deserialize(&*pod) else { return node(pod) };
    typed.compact();
    let spec = &mut typed.spec;
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut()) {
        let resources = std::mem::take(&mut container.resources);
        let restart_policy = std::mem::take(&mut container.restart_policy);
        *container = Container { resources, restart_policy, ..Default::default() };
        container.resources.limits = Pairs::default();
    }
    typed.spec = PodSpec {
        node_name: std::mem::take(&mut spec.node_name),
        containers: std::mem::take(&mut spec.containers),
        init_containers: std::mem::take(&mut spec.init_containers),
        overhead: std::mem::take(&mut spec.overhead),
        resources: spec.resources.take(),
        resource_claims: std::mem::take(&mut spec.resource_claims),
        ..Default::default()
    };
    typed.metadata.labels = Pairs::default();
    typed.metadata.owner_references = List::default();
    *pod = serde_json::to_value(&typed).unwrap_or_default();
    object::set_meta(pod, "resourceVersion", Some(Value::from(version)));
}

pub(super) fn group(group: &mut Value) {
    keep::metadata(group, &[]);
    keep::only_of(group, "spec", &["priorityClassName", "preemptibility"]);
    keep::only_of(group, "status", &["resourcesStatus"]);
}

pub(super) fn node(object: &mut Value) {
    keep::metadata(object, &["labels"]);
    keep::only(object, &["metadata"]);
    let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) else { return };
    labels.retain(|label, _| gpu_memory::is_read(label));
}

pub(super) fn class(class: &mut Value) {
    keep::metadata(class, &[]);
    keep::only(class, &["metadata", "value", "globalDefault"]);
}

pub(super) fn claim(claim: &mut Value) {
    keep::metadata(claim, &["annotations"]);
    keep::only(claim, &["metadata", "spec"]);
}
