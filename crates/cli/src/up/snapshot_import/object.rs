//! Completes one object of a snapshot, so that the API server accepts it.
//!
//! Snapshots hold only the fields that scheduling reads. Other required fields get placeholders.

use super::text_at;
use kai_cache::Kind;
use kai_object::{map_mut, set_meta, str_at};
use kai_sim::node;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Placeholder of images, paths and handles, which a snapshot does not have.
const PLACEHOLDER: &str = "from-snapshot";

/// The order of creation: objects that others refer to come first. Without `PodDisruptionBudgets`, of which a snapshot
/// holds the status and not the spec.
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

/// The API resource of a kind; `None` for kinds that are not imported.
pub(super) fn resource(kind: Kind) -> Option<kai_runtime::ResourceKind> {
    ORDER.contains(&kind).then(|| kai_scheduler::resources::of(kind))
}

/// Why an object is not imported.
pub(super) fn exclusion(kind: Kind, record: &Value) -> Option<&'static str> {
    if !str_at(record, "/metadata/deletionTimestamp").is_empty() {
        return Some("terminating");
    }
    let is_completed = kind == Kind::Pod && kai_object::is_terminal(record);
    is_completed.then_some("completed")
}

/// Original UID and creation timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    uid: Option<String>,
    created: Option<String>,
}

impl Identity {
    pub(super) fn restore(&self, object: &mut Value) {
        if let Some(uid) = &self.uid {
            set_meta(object, "uid", Some(Value::from(uid.as_str())));
        }
        if let Some(created) = &self.created {
            // `metav1.Time` has whole seconds.
            let whole =
                created.split_once('.').map_or_else(|| created.clone(), |(whole, _)| whole.to_owned() + "Z");
            set_meta(object, "creationTimestamp", Some(Value::from(whole)));
        }
    }
}

/// Converts a record to an object that the API accepts, and returns its identity.
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
    // No controller of the simulated cluster removes finalizers.
    for field in ["uid", "creationTimestamp", "finalizers", "resourceVersion", "generation"] {
        metadata.remove(field);
    }
    // The garbage collector would delete an object whose owner does not exist.
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

/// Removes and returns the status that is written after the object is created. Nodes are created with theirs; pods get a
/// new one, except for the resource claims that were created for them.
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
    // The server derives the value from the class; an unknown class would be rejected.
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
    container["image"] = Value::from(PLACEHOLDER);
    let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) else {
        return complete_limits(&mut container["resources"], is_guaranteed);
    };
    for mount in mounts {
        mount["mountPath"] = Value::from(format!("/{}", str_at(mount, "/name")));
    }
    complete_limits(&mut container["resources"], is_guaranteed);
}

/// Snapshots hold the `qosClass` instead of limits. Extended resources require limits equal to requests, and so do all
/// resources of a guaranteed pod.
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

/// Fills in required fields of volumes.
fn complete_spec(spec: &mut serde_json::Map<String, Value>) {
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if volume.get("ephemeral").is_some() {
            let claim =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
            volume["ephemeral"] = json!({"volumeClaimTemplate": {"spec": claim}});
        }
    }
}

/// Sets a volume source, which the API requires.
fn complete_volume(volume: &mut Value) {
    let spec = map_mut(volume, "spec");
    match spec.get_mut("csi") {
        Some(csi) if str_at(csi, "/volumeHandle").is_empty() => {
            csi["volumeHandle"] = Value::from(PLACEHOLDER);
        }
        Some(_) => {}
        None => {
            spec.insert("hostPath".to_owned(), json!({"path": format!("/{PLACEHOLDER}")}));
        }
    }
}

/// Sets the `nodeID` of drivers, which the API requires.
fn complete_drivers(node: &mut Value) {
    for driver in node.pointer_mut("/spec/drivers").and_then(Value::as_array_mut).into_iter().flatten() {
        if str_at(driver, "/nodeID").is_empty() {
            driver["nodeID"] = Value::from(PLACEHOLDER);
        }
    }
}
