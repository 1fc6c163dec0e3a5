//! The Binding of a pod that needs nothing of the binder, and which pods those are.

use crate::direct_bindings::DirectBinding;
use kai_api::pod::PodStatus;
use kai_api::well_known::{annotation, label};
use kai_cache::object::{Objects, Pod};
use kai_engine::input::{Key, Received};
use kai_engine::outcome::Bind;
use kai_runtime::kind::POD;
use kai_runtime::writer::{Done, Retry, Write, WritePriority};
use serde_json::{Map, Value, json};

/// Write queue slot of the Binding.
pub(crate) const SLOT: &str = "binding";

/// Whether GPUs of a node are shared, or kept for pods that share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeGpus {
    Whole,
    Shared,
}

/// Whether the binder has nothing to do for a pod but to post the Binding.
pub(crate) fn needs_no_binder(bind: &Bind, node: NodeGpus, objects: &Objects) -> bool {
    let Some(pod) = objects.pods.get(&bind.pod).filter(|pod| *pod.metadata.uid == *bind.uid) else {
        return false;
    };
    // Reservations may have to be deleted or renewed before a pod with whole GPUs arrives.
    let gpus_are_settled = bind.gpu_count == 0 || node == NodeGpus::Whole;
    bind.received != Some(Received::Fraction)
        && bind.gpu_groups.is_empty()
        && gpus_are_settled
        && bind.claims.is_empty()
        && bind.extended.is_none()
        && pod.spec.resource_claims.is_empty()
        // They are for the binder's plugins.
        && bind.annotations.0.is_empty()
        && !has_group_label(pod)
        && !has_failed(pod)
        && !has_volume_claims(pod)
}

/// A label of an earlier attempt, which the binder removes.
fn has_group_label(pod: &Pod) -> bool {
    pod.metadata
        .labels
        .iter()
        .any(|(name, _)| name == label::GPU_GROUP || name.starts_with(label::GPU_GROUP_PREFIX))
}

/// Whether a failed binding is reported on the pod. The binder reports that a later one has succeeded.
fn has_failed(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|condition| condition.kind == PodStatus::BOUND_CONDITION)
}

/// The binder reads claims anew: a claim that was bound here can have been deleted and created again, or be unbound since etcd
/// was restored, and a pod on a node without its volume would wait for ever.
fn has_volume_claims(pod: &Pod) -> bool {
    pod.spec
        .volumes
        .iter()
        .any(|volume| volume.ephemeral.is_some() || volume.persistent_volume_claim.is_some())
}

/// Posts the Binding of a request, as the binder does. A failure is not retried by the write queue: the binding may be
/// obsolete by then.
pub(crate) fn write(binding: &DirectBinding, pod_uid: &str, done: Done) -> Write {
    let request = &binding.request;
    let namespace = request.metadata.namespace.clone().unwrap_or_default();
    let key = Key::new(namespace.as_str(), request.spec.pod_name.as_str());
    // The API server copies them to the pod.
    let added = binding.annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    let mut annotations: Map<String, Value> = added.collect();
    annotations.insert(
        annotation::RECEIVED_RESOURCE_TYPE.to_owned(),
        Value::from(request.spec.received_resource_type.as_str()),
    );
    let zones = &request.spec.predicted_numa_zones;
    if let Some(zones) = serde_json::to_value(zones).ok().filter(|_| !zones.is_empty()) {
        annotations.insert(annotation::NUMA_PREDICTED.to_owned(), Value::from(zones.to_string()));
    }
    Write {
        priority: WritePriority::Action,
        path: POD.path_of(&key) + "/binding",
        body: json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {
                "name": key.name, "namespace": key.namespace, "uid": pod_uid, "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": request.spec.selected_node},
        }),
        object: (POD, key),
        slot: Some(SLOT),
        method: "POST",
        content_type: "application/json",
        retry: Retry::Never,
        done: Some(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_cache::Object;
    use kai_engine::outcome::ExtendedClaim;
    use serde_json::from_value;

    fn objects(pod: &Value) -> Objects {
        let mut pod = from_value::<Pod>(pod.clone()).unwrap();
        pod.metadata.name = "p".into();
        pod.metadata.namespace = "a".into();
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = "u".into();
        }
        pod.compact();
        let mut objects = Objects::default();
        objects.insert(Object::from(pod));
        objects
    }

    fn whole_gpu() -> Bind {
        Bind {
            pod: Key::new("a", "p"),
            uid: "u".to_owned(),
            node: "n".to_owned(),
            received: Some(Received::Regular),
            gpu_count: 1,
            ..Bind::default()
        }
    }

    #[test]
    fn pod_that_the_binder_has_to_prepare_is_not_bound_directly() {
        let table = [
            (json!({}), true),
            (
                json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}),
                false,
            ),
            (json!({"spec": {"volumes": [{"name": "v", "ephemeral": {}}]}}), false),
            (json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}), true),
            (json!({"spec": {"resourceClaims": [{"name": "c"}]}}), false),
            (json!({"metadata": {"labels": {"runai-gpu-group": "g"}}}), false),
            (json!({"metadata": {"labels": {"runai-gpu-group/g": "g"}}}), false),
            (json!({"status": {"conditions": [{"type": "PodBound", "status": "False"}]}}), false),
            (json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}), true),
            (json!({"metadata": {"uid": "another"}}), false),
        ];
        for (changes, expected) in table {
            let direct = needs_no_binder(&whole_gpu(), NodeGpus::Whole, &objects(&changes));
            assert_eq!(direct, expected, "{changes}");
        }
    }

    #[test]
    fn decision_with_devices_of_the_binder_is_not_bound_directly() {
        let objects = objects(&json!({}));
        let claim = ("c".to_owned(), Vec::new());
        let table = [
            (whole_gpu(), NodeGpus::Shared, false),
            (Bind { gpu_count: 0, received: None, ..whole_gpu() }, NodeGpus::Shared, true),
            (Bind { received: Some(Received::Fraction), ..whole_gpu() }, NodeGpus::Whole, false),
            (Bind { received: Some(Received::Mig), ..whole_gpu() }, NodeGpus::Whole, true),
            (Bind { gpu_groups: vec!["g".to_owned()], ..whole_gpu() }, NodeGpus::Whole, false),
            (Bind { claims: vec![claim], ..whole_gpu() }, NodeGpus::Whole, false),
            (
                Bind { extended: Some(Box::new(ExtendedClaim::default())), ..whole_gpu() },
                NodeGpus::Whole,
                false,
            ),
        ];
        for (bind, node, expected) in table {
            assert_eq!(needs_no_binder(&bind, node, &objects), expected, "{bind:?} {node:?}");
        }
    }
}
