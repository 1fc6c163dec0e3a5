//! The informers of the binder: which objects it watches, which fields it stores, and its indices.
//!
//! A bound pod is trimmed to its identity, node and GPU groups: large clusters have many of them.

use crate::bind_target::StoredRequest;
use crate::objects::{gpu_groups, is_bound, is_gpu_group_label, node_name};
use crate::plugin::volume_binding;
use k8s_openapi::api::core::v1::{
    Container, EphemeralVolumeSource, Node, PersistentVolume, PersistentVolumeSpec, PersistentVolumeStatus,
    Pod, PodSpec, PodStatus, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::BindRequest;
use kai_api::well_known::{annotation, env};
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::{Key, ResourceKind};
use std::collections::BTreeMap;

/// The index of pods and BindRequests by their GPU groups.
pub(crate) const BY_GROUP: &str = "gpu-group";
/// The index of pods with GPU groups by their node.
pub(crate) const SHARING_ON: &str = "sharing-on-node";
/// The index of volumes by the claim that they are bound or pre-bound to (`namespace/name`).
pub(crate) const FOR_CLAIM: &str = "for-claim";
/// The index of volumes that no claim has by their storage class.
pub(crate) const AVAILABLE_OF_CLASS: &str = "available-of-class";
/// The condition with which the binder reports the result of a bind attempt on the pod.
pub(crate) const POD_BOUND: &str = "PodBound";

pub(crate) fn informers() -> Informers {
    let pods = Informer::<Pod>::typed()
        .trim(trim_pod)
        .index(BY_GROUP, |pod| gpu_groups(pod).into_iter().map(str::to_owned).collect())
        .index(SHARING_ON, |pod| {
            let shares = is_bound(pod) && !gpu_groups(pod).is_empty();
            if shares { vec![node_name(pod).to_owned()] } else { Vec::new() }
        });
    let requests = Informer::partial(ResourceKind::of::<BindRequest>(), StoredRequest::identity)
        .index(BY_GROUP, |request| request.gpu_groups().to_vec());
    let nodes = Informer::<Node>::metadata().trim(trim_node);
    let volumes = Informer::<PersistentVolume>::typed()
        .trim(trim_persistent_volume)
        .index(FOR_CLAIM, |volume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let named = claim.and_then(|claim| claim.namespace.as_ref().zip(claim.name.as_ref()));
            named.map(|(namespace, name)| Key::new(namespace, name).to_string()).into_iter().collect()
        })
        .index(AVAILABLE_OF_CLASS, |volume| {
            let available = volume.spec.as_ref().filter(|spec| volume_binding::is_available(volume, spec));
            available.and_then(|spec| spec.storage_class_name.clone()).into_iter().collect()
        });
    Informers::default().with(pods).with(nodes).with(requests).with(volumes)
}

/// The annotations of pods that the binder reads.
const ANNOTATIONS: [&str; 8] = [
    annotation::GPU_FRACTION,
    annotation::GPU_MEMORY,
    annotation::SHARED_GPU_CONFIG_MAP,
    annotation::GPU_FRACTION_CONTAINER,
    annotation::GPU_FRACTION_NUM_DEVICES,
    annotation::RESERVED_GPU,
    annotation::RENEWED_GPU,
    annotation::SCALING_FOR,
];

/// Keeps the identity, and what tells a terminating object from others.
fn trim_metadata(
    metadata: &mut ObjectMeta,
    labels: impl Fn(&str) -> bool,
    annotations: impl Fn(&str) -> bool,
) {
    let kept = |map: Option<BTreeMap<String, String>>, keep: &dyn Fn(&str) -> bool| {
        let mut map = map?;
        map.retain(|name, _| keep(name));
        (!map.is_empty()).then_some(map)
    };
    let full = std::mem::take(metadata);
    *metadata = ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        deletion_timestamp: full.deletion_timestamp,
        deletion_grace_period_seconds: full.deletion_grace_period_seconds,
        labels: kept(full.labels, &labels),
        annotations: kept(full.annotations, &annotations),
        ..ObjectMeta::default()
    };
}

fn trim_pod(pod: &mut Pod) {
    trim_metadata(&mut pod.metadata, is_gpu_group_label, |name| ANNOTATIONS.contains(&name));
    let bound = is_bound(pod);
    if let Some(full) = pod.spec.take() {
        let shares_gpu = !crate::objects::annotation(pod, annotation::SHARED_GPU_CONFIG_MAP).is_empty();
        pod.spec = Some(if bound { trim_bound_spec(full, shares_gpu) } else { trim_unbound_spec(full) });
    }
    if let Some(full) = pod.status.take() {
        pod.status = Some(if bound { trim_bound_status(full) } else { trim_unbound_status(full) });
    }
}

/// The containers of a pod that shares a GPU say in which config map its devices are, which a renewal of the GPU's
/// reservation reads.
fn trim_bound_spec(mut full: PodSpec, shares_gpu: bool) -> PodSpec {
    let node_name = full.node_name.take();
    let kept = if shares_gpu { trim_unbound_spec(full) } else { PodSpec::default() };
    PodSpec {
        node_name,
        containers: kept.containers,
        init_containers: kept.init_containers,
        ..PodSpec::default()
    }
}

fn trim_bound_status(full: PodStatus) -> PodStatus {
    PodStatus { phase: full.phase, reason: full.reason, message: full.message, ..PodStatus::default() }
}

fn trim_unbound_spec(full: PodSpec) -> PodSpec {
    let init_containers =
        full.init_containers.map(|containers| containers.into_iter().map(trim_container).collect());
    let volumes: Vec<Volume> = full.volumes.into_iter().flatten().filter_map(trim_volume).collect();
    PodSpec {
        containers: full.containers.into_iter().map(trim_container).collect(),
        init_containers,
        scheduler_name: full.scheduler_name,
        tolerations: full.tolerations,
        runtime_class_name: full.runtime_class_name,
        resource_claims: full.resource_claims,
        volumes: (!volumes.is_empty()).then_some(volumes),
        ..PodSpec::default()
    }
}

fn trim_unbound_status(full: PodStatus) -> PodStatus {
    let conditions = full.conditions.into_iter().flatten().filter(|condition| condition.type_ == POD_BOUND);
    let conditions: Vec<_> = conditions.collect();
    PodStatus {
        phase: full.phase,
        resource_claim_statuses: full.resource_claim_statuses,
        extended_resource_claim_status: full.extended_resource_claim_status,
        conditions: (!conditions.is_empty()).then_some(conditions),
        ..PodStatus::default()
    }
}

/// Keeps the name of a container, the variable with its visible devices, and the config maps that it takes variables from.
fn trim_container(full: Container) -> Container {
    let devices =
        full.env.into_iter().flatten().filter(|variable| variable.name == env::NVIDIA_VISIBLE_DEVICES);
    let devices: Vec<_> = devices.collect();
    let maps: Vec<_> =
        full.env_from.into_iter().flatten().filter(|source| source.config_map_ref.is_some()).collect();
    Container {
        name: full.name,
        env: (!devices.is_empty()).then_some(devices),
        env_from: (!maps.is_empty()).then_some(maps),
        ..Container::default()
    }
}

/// Keeps volumes from persistent volume claims.
fn trim_volume(full: Volume) -> Option<Volume> {
    let Volume { name, persistent_volume_claim, ephemeral, .. } = full;
    if persistent_volume_claim.is_some() {
        return Some(Volume { name, persistent_volume_claim, ..Volume::default() });
    }
    ephemeral?;
    Some(Volume { name, ephemeral: Some(EphemeralVolumeSource::default()), ..Volume::default() })
}

fn trim_node(node: &mut Node) {
    trim_metadata(&mut node.metadata, |_| true, |_| false);
}

/// Keeps what the selection of a volume reads.
fn trim_persistent_volume(volume: &mut PersistentVolume) {
    trim_metadata(&mut volume.metadata, |_| true, |_| false);
    if let Some(full) = volume.spec.take() {
        volume.spec = Some(PersistentVolumeSpec {
            access_modes: full.access_modes,
            capacity: full.capacity,
            claim_ref: full.claim_ref,
            node_affinity: full.node_affinity,
            storage_class_name: full.storage_class_name,
            volume_mode: full.volume_mode,
            ..PersistentVolumeSpec::default()
        });
    }
    if let Some(full) = volume.status.take() {
        volume.status =
            Some(PersistentVolumeStatus { phase: full.phase, ..PersistentVolumeStatus::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn trimmed(pod: Value) -> Value {
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        trim_pod(&mut pod);
        serde_json::to_value(&pod).unwrap()
    }

    #[test]
    fn bound_pods_are_trimmed_to_identity_node_and_phase() {
        let pod = trimmed(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "3", "labels": {"app": "x"},
                "annotations": {"other": "y"}, "managedFields": [{}]},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "conditions": []},
        }));
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "3"},
                "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"},
            })
        );
    }

    #[test]
    fn bound_pods_that_share_a_gpu_keep_where_their_devices_are() {
        let variable = json!({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}});
        let pod = trimmed(json!({
            "metadata": {"name": "a", "annotations": {"runai/shared-gpu-configmap": "m"}},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i", "env": [variable]}]},
        }));
        assert_eq!(
            pod["spec"],
            json!({"nodeName": "n", "containers": [{"name": "main", "env": [variable]}]})
        );
    }

    #[test]
    fn unbound_pods_keep_what_a_bind_attempt_reads() {
        let pod = trimmed(json!({
            "metadata": {"name": "a", "annotations": {"gpu-fraction-num-devices": "2", "x": "y"}},
            "spec": {
                "containers": [{
                    "name": "main", "image": "i", "env": [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES"}],
                    "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "m"}}],
                }],
                "volumes": [{"name": "t", "projected": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
                "tolerations": [{"operator": "Exists"}],
            },
            "status": {"conditions": [{"type": "PodScheduled", "status": "False"}, {"type": "PodBound", "status": "False"}]},
        }));
        assert_eq!(pod["metadata"]["annotations"], json!({"gpu-fraction-num-devices": "2"}));
        assert_eq!(
            pod["spec"]["containers"],
            json!([{
                "name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}],
                "envFrom": [{"configMapRef": {"name": "m"}}],
            }])
        );
        assert_eq!(pod["spec"]["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(pod["status"]["conditions"], json!([{"type": "PodBound", "status": "False"}]));
        assert!(pod["spec"]["tolerations"].is_array());
    }
}
