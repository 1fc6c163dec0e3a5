//! Completes one record of a snapshot, so that an API server takes it.
//!
//! Records hold what scheduling reads and no more. What the API demands beyond that is filled in with words that say
//! where the object comes from.

use super::text_at;
use kai_cache::Kind;
use kai_object::{map_mut, set_meta, str_at};
use kai_sim::node;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Stands for images, paths and handles that a snapshot does not have.
const UNKNOWN: &str = "from-snapshot";

/// The order in which objects are made: what others name comes first. Budgets are not among them: their records say
/// what is left of a budget, not what it is.
pub(super) const ORDER: [Kind; 18] = [
    Kind::PriorityClass,
    Kind::StorageClass,
    Kind::CsiDriver,
    Kind::DeviceClass,
    Kind::Topology,
    Kind::Queue,
    Kind::Node,
    Kind::CsiNode,
    Kind::NodeResourceTopology,
    Kind::ResourceSlice,
    Kind::CsiStorageCapacity,
    Kind::ConfigMap,
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::ResourceClaim,
    Kind::PodGroup,
    Kind::Pod,
    Kind::BindRequest,
];

/// Where the API keeps objects of a kind; nothing for those that are not made from records.
pub(super) fn resource(kind: Kind) -> Option<kai_runtime::ResourceKind> {
    let (group, version, plural, namespaced) = match kind {
        Kind::PriorityClass => ("scheduling.k8s.io", "v1", "priorityclasses", false),
        Kind::StorageClass => ("storage.k8s.io", "v1", "storageclasses", false),
        Kind::CsiDriver => ("storage.k8s.io", "v1", "csidrivers", false),
        Kind::CsiNode => ("storage.k8s.io", "v1", "csinodes", false),
        Kind::CsiStorageCapacity => ("storage.k8s.io", "v1", "csistoragecapacities", true),
        Kind::DeviceClass => ("resource.k8s.io", "v1", "deviceclasses", false),
        Kind::ResourceSlice => ("resource.k8s.io", "v1", "resourceslices", false),
        Kind::ResourceClaim => ("resource.k8s.io", "v1", "resourceclaims", true),
        Kind::Topology => ("kai.scheduler", "v1alpha1", "topologies", false),
        Kind::Queue => ("scheduling.run.ai", "v2", "queues", false),
        Kind::PodGroup => ("scheduling.run.ai", "v2alpha2", "podgroups", true),
        Kind::BindRequest => ("scheduling.run.ai", "v1alpha2", "bindrequests", true),
        Kind::NodeResourceTopology => ("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", false),
        Kind::Node => ("", "v1", "nodes", false),
        Kind::Pod => ("", "v1", "pods", true),
        Kind::ConfigMap => ("", "v1", "configmaps", true),
        Kind::PersistentVolume => ("", "v1", "persistentvolumes", false),
        Kind::PersistentVolumeClaim => ("", "v1", "persistentvolumeclaims", true),
        Kind::Namespace | Kind::PodDisruptionBudget => return None,
    };
    Some(kai_runtime::ResourceKind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        kind: Cow::Borrowed(kind.name()),
        plural: Cow::Borrowed(plural),
        namespaced,
    })
}

/// Why a record is not brought to life.
pub(super) fn unfit(kind: Kind, record: &Value) -> Option<&'static str> {
    if !str_at(record, "/metadata/deletionTimestamp").is_empty() {
        return Some("was being deleted");
    }
    let has_ended = kind == Kind::Pod && matches!(str_at(record, "/status/phase"), "Succeeded" | "Failed");
    has_ended.then_some("had ended")
}

/// Who an object was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    uid: Option<String>,
    created: Option<String>,
}

impl Identity {
    /// Makes the object who it was.
    pub(super) fn put_back(&self, object: &mut Value) {
        if let Some(uid) = &self.uid {
            set_meta(object, "uid", Some(Value::from(uid.as_str())));
        }
        if let Some(created) = &self.created {
            // The API counts whole seconds.
            let whole =
                created.split_once('.').map_or_else(|| created.clone(), |(whole, _)| whole.to_owned() + "Z");
            set_meta(object, "creationTimestamp", Some(Value::from(whole)));
        }
    }
}

/// Turns a record into what the API takes; says who it was.
pub(super) fn prepare(
    kind: Kind,
    record: &mut Value,
    uids: &BTreeSet<String>,
    classes: &BTreeSet<String>,
    now: &str,
) -> Identity {
    let created = text_at(record, "/metadata/creationTimestamp");
    let identity = Identity { uid: text_at(record, "/metadata/uid"), created };
    let metadata = map_mut(record, "metadata");
    // Nobody is there who would lift a finalizer.
    for field in ["uid", "creationTimestamp", "finalizers", "resourceVersion", "generation"] {
        metadata.remove(field);
    }
    // An object whose owner is not there is garbage.
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        owners.retain(|owner| uids.contains(str_at(owner, "/uid")));
    }
    match kind {
        Kind::Node => *record = node::adopt(record, now),
        Kind::Pod => complete_pod(record, classes),
        Kind::PersistentVolume => complete_volume(record),
        Kind::CsiNode => complete_drivers(record),
        Kind::PersistentVolumeClaim
        | Kind::PriorityClass
        | Kind::StorageClass
        | Kind::CsiDriver
        | Kind::CsiStorageCapacity
        | Kind::DeviceClass
        | Kind::ResourceSlice
        | Kind::ResourceClaim
        | Kind::Topology
        | Kind::Queue
        | Kind::PodGroup
        | Kind::BindRequest
        | Kind::NodeResourceTopology
        | Kind::ConfigMap
        | Kind::Namespace
        | Kind::PodDisruptionBudget => {}
    }
    identity
}

/// Takes out the status that is to be written after the object is made. Nodes come with theirs; pods live theirs
/// anew, but for the claims that were made for them.
pub(super) fn status(kind: Kind, record: &mut Value) -> Option<Value> {
    if kind == Kind::Node {
        return None;
    }
    let mut status = record.as_object_mut()?.remove("status")?;
    if kind == Kind::Pod {
        let claims = status.get_mut("resourceClaimStatuses")?.take();
        return Some(json!({"resourceClaimStatuses": claims}));
    }
    status.as_object().is_some_and(|status| !status.is_empty()).then_some(status)
}

fn complete_pod(pod: &mut Value, classes: &BTreeSet<String>) {
    let is_guaranteed = str_at(pod, "/status/qosClass") == "Guaranteed";
    let spec = map_mut(pod, "spec");
    // The server works the value out from the class; one that is not there would be refused.
    spec.remove("priority");
    let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
    if !class.starts_with("system-") && !classes.contains(class) {
        spec.remove("priorityClassName");
    }
    spec.remove("ephemeralContainers");
    if spec.get("containers").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("containers".to_owned(), json!([{}]));
    }
    for (list, prefix) in [("containers", "main"), ("initContainers", "init")] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else { continue };
        for (index, container) in containers.iter_mut().enumerate() {
            complete_container(container, &format!("{prefix}-{index}"), is_guaranteed);
        }
    }
    complete_spec(spec);
}

fn complete_container(container: &mut Value, name: &str, is_guaranteed: bool) {
    if str_at(container, "/name").is_empty() {
        container["name"] = Value::from(name);
    }
    container["image"] = Value::from(UNKNOWN);
    let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) else {
        return complete_limits(&mut container["resources"], is_guaranteed);
    };
    for mount in mounts {
        mount["mountPath"] = Value::from(format!("/{}", str_at(mount, "/name")));
    }
    complete_limits(&mut container["resources"], is_guaranteed);
}

/// Limits are not in a record once the class of service is known. Devices must be limited to what is requested, and a
/// guaranteed pod is limited so in everything.
fn complete_limits(resources: &mut Value, is_guaranteed: bool) {
    let Some(requests) = resources.get("requests").and_then(Value::as_object).cloned() else { return };
    for (resource, amount) in requests {
        let is_device = resource.contains('/') || resource.starts_with("hugepages-");
        if (is_device || is_guaranteed)
            && resources.pointer(&format!("/limits/{}", resource.replace('/', "~1"))).is_none()
        {
            resources["limits"][resource] = amount;
        }
    }
}

/// What the API demands of parts of a pod that a record holds in short.
fn complete_spec(spec: &mut serde_json::Map<String, Value>) {
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if volume.get("ephemeral").is_some() {
            let claim =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
            volume["ephemeral"] = json!({"volumeClaimTemplate": {"spec": claim}});
        }
    }
}

/// A volume must say what it is made of.
fn complete_volume(volume: &mut Value) {
    let spec = map_mut(volume, "spec");
    match spec.get_mut("csi") {
        Some(csi) if str_at(csi, "/volumeHandle").is_empty() => csi["volumeHandle"] = Value::from(UNKNOWN),
        Some(_) => {}
        None => {
            spec.insert("hostPath".to_owned(), json!({"path": format!("/{UNKNOWN}")}));
        }
    }
}

/// A storage driver must say what it calls the node.
fn complete_drivers(node: &mut Value) {
    for driver in node.pointer_mut("/spec/drivers").and_then(Value::as_array_mut).into_iter().flatten() {
        if str_at(driver, "/nodeID").is_empty() {
            driver["nodeID"] = Value::from(UNKNOWN);
        }
    }
}
