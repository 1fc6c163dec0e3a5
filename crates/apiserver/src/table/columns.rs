//! The columns of built-in kinds.
//!
//! A description is the documentation of a type's field (`PodSpec.nodeName`), or a sentence.

use super::cells::Cells;
use super::{network, pod, storage, workload};
use crate::schema::builtin;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// Computes the cells of an object.
pub(super) type Row = fn(&Cells<'_>) -> Vec<Value>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// Positive for wide columns.
    priority: i32,
    about: &'static str,
}

const NAME: Column = text("Name", "ObjectMeta.name").names();
const AGE: Column = text("Age", "ObjectMeta.creationTimestamp");

const fn text(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0, about }
}

const fn wide(name: &'static str, about: &'static str) -> Column {
    Column { priority: 1, ..text(name, about) }
}

const fn number(name: &'static str, about: &'static str) -> Column {
    Column { kind: "integer", ..text(name, about) }
}

const fn flag(name: &'static str, about: &'static str) -> Column {
    Column { kind: "boolean", ..text(name, about) }
}

impl Column {
    pub(super) const NAME: Column = NAME;

    /// The column has the format `name`.
    const fn names(self) -> Self {
        Self { format: "name", ..self }
    }

    /// The `TableColumnDefinition`.
    pub(super) fn header(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": description(self.about),
            "priority": self.priority,
        })
    }
}

/// The documentation of a field given as `Type.field`, or the sentence itself.
pub(super) fn description(about: &str) -> String {
    let documented = about.split_once('.').filter(|(_, field)| !field.is_empty() && !about.contains(' '));
    let found = documented.and_then(|(name, field)| {
        let suffix = format!(".{name}");
        let mut types = builtin::definitions().filter(|definition| definition.name().ends_with(&suffix));
        types.find_map(|definition| definition.raw()["properties"][field]["description"].as_str())
    });
    found.unwrap_or(about).to_owned()
}

/// Column definitions and row function of a kind.
pub(super) fn of(group: &str, kind: &str) -> (Arc<Vec<Value>>, Row) {
    let group = if kind == "Event" { "event" } else { group };
    let index = TABLE.iter().position(|entry| entry.group == group && entry.kind == kind);
    let row = index.map_or(storage::plain as Row, |index| TABLE[index].row);
    (Arc::clone(&HEADERS[index.unwrap_or(TABLE.len())]), row)
}

/// Column definitions of every entry and of the fallback, cached since the documentation lookup is slow.
static HEADERS: LazyLock<Vec<Arc<Vec<Value>>>> = LazyLock::new(|| {
    let all = TABLE.iter().map(|entry| entry.columns).chain([PLAIN]);
    all.map(|columns| Arc::new(columns.iter().map(Column::header).collect())).collect()
});

/// The columns of kinds without their own: name and creation time.
const PLAIN: &[Column] =
    &[NAME, Column { kind: "date", ..text("Created At", "ObjectMeta.creationTimestamp") }];

struct Entry {
    /// The API group; `event` for both groups of Events.
    group: &'static str,
    kind: &'static str,
    row: Row,
    columns: &'static [Column],
}

const CONTAINERS: Column = wide("Containers", "Names of the containers in the template.");
const IMAGES: Column = wide("Images", "Images of the containers in the template.");

const fn entry(group: &'static str, kind: &'static str, row: Row, columns: &'static [Column]) -> Entry {
    Entry { group, kind, row, columns }
}

const TABLE: &[Entry] = &[
    entry(
        "",
        "Pod",
        pod::row,
        &[
            NAME,
            text("Ready", "Ready containers and all containers."),
            text("Status", "The phase or reason of the pod."),
            text("Restarts", "Number of container restarts, and the time of the last one."),
            AGE,
            wide("IP", "PodStatus.podIP"),
            wide("Node", "PodSpec.nodeName"),
            wide("Nominated Node", "PodStatus.nominatedNodeName"),
            wide("Readiness Gates", "PodSpec.readinessGates"),
        ],
    ),
    entry(
        "policy",
        "PodDisruptionBudget",
        workload::pod_disruption_budget,
        &[
            NAME,
            text("Min Available", "PodDisruptionBudgetSpec.minAvailable"),
            text("Max Unavailable", "PodDisruptionBudgetSpec.maxUnavailable"),
            number("Allowed Disruptions", "PodDisruptionBudgetStatus.disruptionsAllowed"),
            AGE,
        ],
    ),
    entry(
        "apps",
        "ReplicaSet",
        workload::replica_set,
        &[
            NAME,
            number("Desired", "ReplicaSetSpec.replicas"),
            number("Current", "ReplicaSetStatus.replicas"),
            number("Ready", "ReplicaSetStatus.readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "ReplicaSetSpec.selector"),
        ],
    ),
    entry(
        "apps",
        "DaemonSet",
        workload::daemon_set,
        &[
            NAME,
            number("Desired", "DaemonSetStatus.desiredNumberScheduled"),
            number("Current", "DaemonSetStatus.currentNumberScheduled"),
            number("Ready", "DaemonSetStatus.numberReady"),
            number("Up-to-date", "DaemonSetStatus.updatedNumberScheduled"),
            number("Available", "DaemonSetStatus.numberAvailable"),
            text("Node Selector", "PodSpec.nodeSelector"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "DaemonSetSpec.selector"),
        ],
    ),
    entry(
        "batch",
        "Job",
        workload::job,
        &[
            NAME,
            text("Status", "The state of the job."),
            text("Completions", "JobStatus.succeeded"),
            text("Duration", "The running time of the job."),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "JobSpec.selector"),
        ],
    ),
    entry(
        "batch",
        "CronJob",
        workload::cron_job,
        &[
            NAME,
            text("Schedule", "CronJobSpec.schedule"),
            text("Timezone", "CronJobSpec.timeZone"),
            flag("Suspend", "CronJobSpec.suspend"),
            number("Active", "CronJobStatus.active"),
            text("Last Schedule", "CronJobStatus.lastScheduleTime"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "JobSpec.selector"),
        ],
    ),
    entry(
        "",
        "Service",
        network::service,
        &[
            NAME,
            text("Type", "ServiceSpec.type"),
            text("Cluster-IP", "ServiceSpec.clusterIP"),
            text("External-IP", "ServiceSpec.externalIPs"),
            text("Port(s)", "ServiceSpec.ports"),
            AGE,
            wide("Selector", "ServiceSpec.selector"),
        ],
    ),
    entry(
        "apps",
        "StatefulSet",
        workload::stateful_set,
        &[NAME, text("Ready", "Ready pods and desired pods."), AGE, CONTAINERS, IMAGES],
    ),
    entry(
        "discovery.k8s.io",
        "EndpointSlice",
        network::endpoint_slice,
        &[
            NAME,
            text("AddressType", "EndpointSlice.addressType"),
            text("Ports", "EndpointSlice.ports"),
            text("Endpoints", "EndpointSlice.endpoints"),
            AGE,
        ],
    ),
    entry(
        "",
        "Node",
        workload::node,
        &[
            NAME,
            text("Status", "Readiness and schedulability of the node."),
            text("Roles", "The roles of the node, from its labels."),
            AGE,
            text("Version", "NodeSystemInfo.kubeletVersion"),
            wide("Internal-IP", "NodeStatus.addresses"),
            wide("External-IP", "NodeStatus.addresses"),
            wide("OS-Image", "NodeSystemInfo.osImage"),
            wide("Kernel-Version", "NodeSystemInfo.kernelVersion"),
            wide("Container-Runtime", "NodeSystemInfo.containerRuntimeVersion"),
        ],
    ),
    entry(
        "event",
        "Event",
        pod::event_row,
        &[
            text("Last Seen", "Event.lastTimestamp"),
            text("Type", "Event.type"),
            text("Reason", "Event.reason"),
            text("Object", "Event.involvedObject"),
            wide("Subobject", "ObjectReference.fieldPath"),
            wide("Source", "Event.source"),
            text("Message", "Event.message"),
            wide("First Seen", "Event.firstTimestamp"),
            wide("Count", "Event.count"),
            wide("Name", "ObjectMeta.name").names(),
        ],
    ),
    entry("", "Namespace", storage::namespace, &[NAME, text("Status", "NamespaceStatus.phase"), AGE]),
    entry(
        "",
        "Secret",
        storage::secret,
        &[NAME, text("Type", "Secret.type"), text("Data", "Secret.data"), AGE],
    ),
    entry("", "ConfigMap", storage::config_map, &[NAME, text("Data", "ConfigMap.data"), AGE]),
    entry("", "ServiceAccount", storage::aged, &[NAME, AGE]),
    entry(
        "",
        "PersistentVolume",
        storage::persistent_volume,
        &[
            NAME,
            text("Capacity", "PersistentVolumeSpec.capacity"),
            text("Access Modes", "PersistentVolumeSpec.accessModes"),
            text("Reclaim Policy", "PersistentVolumeSpec.persistentVolumeReclaimPolicy"),
            text("Status", "PersistentVolumeStatus.phase"),
            text("Claim", "PersistentVolumeSpec.claimRef"),
            text("StorageClass", "PersistentVolumeSpec.storageClassName"),
            text("VolumeAttributesClass", "PersistentVolumeSpec.volumeAttributesClassName"),
            text("Reason", "PersistentVolumeStatus.reason"),
            AGE,
            wide("VolumeMode", "PersistentVolumeSpec.volumeMode"),
        ],
    ),
    entry(
        "",
        "PersistentVolumeClaim",
        storage::persistent_volume_claim,
        &[
            NAME,
            text("Status", "PersistentVolumeClaimStatus.phase"),
            text("Volume", "PersistentVolumeClaimSpec.volumeName"),
            text("Capacity", "PersistentVolumeClaimStatus.capacity"),
            text("Access Modes", "PersistentVolumeClaimStatus.accessModes"),
            text("StorageClass", "PersistentVolumeClaimSpec.storageClassName"),
            text("VolumeAttributesClass", "PersistentVolumeClaimSpec.volumeAttributesClassName"),
            AGE,
            wide("VolumeMode", "PersistentVolumeClaimSpec.volumeMode"),
        ],
    ),
    entry(
        "apps",
        "Deployment",
        workload::deployment,
        &[
            NAME,
            text("Ready", "Ready pods and desired pods."),
            text("Up-to-date", "DeploymentStatus.updatedReplicas"),
            text("Available", "DeploymentStatus.availableReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "DeploymentSpec.selector"),
        ],
    ),
    entry(
        "apps",
        "ControllerRevision",
        workload::controller_revision,
        &[
            NAME,
            text("Controller", "The controller of the revision."),
            text("Revision", "ControllerRevision.revision"),
            AGE,
        ],
    ),
    entry(
        "autoscaling",
        "Scale",
        workload::scale,
        &[
            text("Name", "ObjectMeta.name"),
            number("Desired", "ScaleSpec.replicas"),
            number("Available", "ScaleStatus.replicas"),
            AGE,
        ],
    ),
    entry(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        network::role_binding,
        &[
            NAME,
            text("Role", "RoleBinding.roleRef"),
            AGE,
            wide("Users", "Users of the binding."),
            wide("Groups", "Groups of the binding."),
            wide("ServiceAccounts", "Service accounts of the binding."),
        ],
    ),
    entry(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        network::role_binding,
        &[
            NAME,
            text("Role", "ClusterRoleBinding.roleRef"),
            AGE,
            wide("Users", "Users of the binding."),
            wide("Groups", "Groups of the binding."),
            wide("ServiceAccounts", "Service accounts of the binding."),
        ],
    ),
    entry(
        "coordination.k8s.io",
        "Lease",
        storage::lease,
        &[NAME, text("Holder", "LeaseSpec.holderIdentity"), AGE],
    ),
    entry(
        "storage.k8s.io",
        "StorageClass",
        storage::storage_class,
        &[
            NAME,
            text("Provisioner", "StorageClass.provisioner"),
            text("ReclaimPolicy", "StorageClass.reclaimPolicy"),
            text("VolumeBindingMode", "StorageClass.volumeBindingMode"),
            text("AllowVolumeExpansion", "StorageClass.allowVolumeExpansion"),
            AGE,
        ],
    ),
    entry(
        "storage.k8s.io",
        "VolumeAttributesClass",
        storage::volume_attributes_class,
        &[NAME, text("DriverName", "VolumeAttributesClass.driverName"), AGE],
    ),
    entry(
        "storage.k8s.io",
        "VolumeAttachment",
        storage::volume_attachment,
        &[
            NAME,
            text("Attacher", "VolumeAttachmentSpec.attacher").names(),
            text("PV", "VolumeAttachmentSource.persistentVolumeName"),
            text("Node", "VolumeAttachmentSpec.nodeName"),
            flag("Attached", "VolumeAttachmentStatus.attached"),
            AGE,
        ],
    ),
    entry(
        "storage.k8s.io",
        "CSINode",
        storage::csi_node,
        &[NAME, number("Drivers", "Number of CSI drivers on the node."), AGE],
    ),
    entry(
        "storage.k8s.io",
        "CSIDriver",
        storage::csi_driver,
        &[
            NAME,
            flag("AttachRequired", "CSIDriverSpec.attachRequired"),
            flag("PodInfoOnMount", "CSIDriverSpec.podInfoOnMount"),
            flag("StorageCapacity", "CSIDriverSpec.storageCapacity"),
            text("TokenRequests", "CSIDriverSpec.tokenRequests"),
            flag("RequiresRepublish", "CSIDriverSpec.requiresRepublish"),
            text("Modes", "CSIDriverSpec.volumeLifecycleModes"),
            AGE,
        ],
    ),
    entry(
        "storage.k8s.io",
        "CSIStorageCapacity",
        storage::csi_storage_capacity,
        &[
            NAME,
            text("StorageClassName", "CSIStorageCapacity.storageClassName"),
            text("Capacity", "CSIStorageCapacity.capacity"),
        ],
    ),
    entry(
        "scheduling.k8s.io",
        "PriorityClass",
        workload::priority_class,
        &[
            NAME,
            number("Value", "PriorityClass.value"),
            flag("Global-Default", "PriorityClass.globalDefault"),
            AGE,
            text("PreemptionPolicy", "PriorityClass.preemptionPolicy"),
        ],
    ),
    entry(
        "node.k8s.io",
        "RuntimeClass",
        storage::runtime_class,
        &[NAME, text("Handler", "RuntimeClass.handler"), AGE],
    ),
    entry(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        network::webhooks,
        &[NAME, number("Webhooks", "Number of webhooks."), AGE],
    ),
    entry(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        network::webhooks,
        &[NAME, number("Webhooks", "Number of webhooks."), AGE],
    ),
    entry("resource.k8s.io", "DeviceClass", storage::aged, &[NAME, AGE]),
    entry(
        "resource.k8s.io",
        "ResourceClaim",
        storage::resource_claim,
        &[NAME, text("State", "The allocation state of the claim."), AGE],
    ),
    entry("resource.k8s.io", "ResourceClaimTemplate", storage::aged, &[NAME, AGE]),
    entry(
        "resource.k8s.io",
        "ResourceSlice",
        storage::resource_slice,
        &[
            NAME,
            text("Node", "ResourceSliceSpec.nodeName"),
            text("Driver", "ResourceSliceSpec.driver"),
            text("Pool", "ResourceSliceSpec.pool"),
            AGE,
        ],
    ),
];
