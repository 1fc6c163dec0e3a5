//! Which columns the tables of built-in kinds have.
//!
//! A column says where its description comes from: a field of a type (`PodSpec.nodeName`), whose documentation is
//! taken, or a sentence.

use super::cells::Cells;
use super::{network, pod, storage, workload};
use crate::schema::builtin;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// Makes the cells of an object.
pub(super) type Row = fn(&Cells<'_>) -> Vec<Value>;

/// One column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// Wide columns have one above zero.
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
    /// The name of the object.
    pub(super) const NAME: Column = NAME;

    /// The column holds names of objects.
    const fn names(self) -> Self {
        Self { format: "name", ..self }
    }

    /// The column as a table defines it.
    pub(super) fn header(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": description(self.about),
            "priority": self.priority,
        })
    }
}

/// The documentation of a field written as `Type.field`, or the sentence itself.
pub(super) fn description(about: &str) -> String {
    let documented = about.split_once('.').filter(|(_, field)| !field.is_empty() && !about.contains(' '));
    let found = documented.and_then(|(name, field)| {
        let suffix = format!(".{name}");
        let mut types = builtin::definitions().filter(|definition| definition.name().ends_with(&suffix));
        types.find_map(|definition| definition.raw()["properties"][field]["description"].as_str())
    });
    found.unwrap_or(about).to_owned()
}

/// The headers and the row of a kind of a group.
pub(super) fn of(group: &str, kind: &str) -> (Arc<Vec<Value>>, Row) {
    let group = if kind == "Event" { "event" } else { group };
    let index = TABLE.iter().position(|entry| entry.group == group && entry.kind == kind);
    let row = index.map_or(storage::plain as Row, |index| TABLE[index].row);
    (Arc::clone(&HEADERS[index.unwrap_or(TABLE.len())]), row)
}

/// The headers of every entry of the table, and of what is not in it: looking up documentation takes a while.
static HEADERS: LazyLock<Vec<Arc<Vec<Value>>>> = LazyLock::new(|| {
    let all = TABLE.iter().map(|entry| entry.columns).chain([PLAIN]);
    all.map(|columns| Arc::new(columns.iter().map(Column::header).collect())).collect()
});

/// Kinds without columns of their own: the time as it is.
const PLAIN: &[Column] =
    &[NAME, Column { kind: "date", ..text("Created At", "ObjectMeta.creationTimestamp") }];

struct Entry {
    /// The API group; `event` for both groups that have events.
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
            text("Ready", "How many containers are ready, of all."),
            text("Status", "How the pod is, in one word."),
            text("Restarts", "How often containers restarted, and when last."),
            AGE,
            wide("IP", "PodStatus.podIP"),
            wide("Node", "PodSpec.nodeName"),
            wide("Nominated Node", "PodStatus.nominatedNodeName"),
            wide("Readiness Gates", "PodSpec.readinessGates"),
        ],
    ),
    entry(
        "",
        "PodTemplate",
        workload::pod_template,
        &[
            NAME,
            text("Containers", "Names of the containers in the template."),
            text("Images", "Images of the containers in the template."),
            text("Pod Labels", "Labels of the pods made from the template."),
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
        "",
        "ReplicationController",
        workload::replication_controller,
        &[
            NAME,
            number("Desired", "ReplicationControllerSpec.replicas"),
            number("Current", "ReplicationControllerStatus.replicas"),
            number("Ready", "ReplicationControllerStatus.readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "ReplicationControllerSpec.selector"),
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
            text("Status", "How the job is, in one word."),
            text("Completions", "JobStatus.succeeded"),
            text("Duration", "How long the job took or has been running."),
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
        "networking.k8s.io",
        "Ingress",
        network::ingress,
        &[
            NAME,
            text("Class", "IngressSpec.ingressClassName"),
            text("Hosts", "Hosts that requests are matched against."),
            text("Address", "Addresses of the load balancer."),
            text("Ports", "Ports that are open."),
            AGE,
        ],
    ),
    entry(
        "networking.k8s.io",
        "IngressClass",
        network::ingress_class,
        &[
            NAME,
            text("Controller", "IngressClassSpec.controller"),
            text("Parameters", "IngressClassSpec.parameters"),
            AGE,
        ],
    ),
    entry(
        "networking.k8s.io",
        "NetworkPolicy",
        network::network_policy,
        &[NAME, text("Pod-Selector", "NetworkPolicySpec.podSelector"), AGE],
    ),
    entry(
        "networking.k8s.io",
        "IPAddress",
        network::ip_address,
        &[NAME, text("ParentRef", "IPAddressSpec.parentRef"), AGE],
    ),
    entry(
        "networking.k8s.io",
        "ServiceCIDR",
        network::service_cidr,
        &[NAME, text("CIDRs", "ServiceCIDRSpec.cidrs"), AGE],
    ),
    entry(
        "apps",
        "StatefulSet",
        workload::stateful_set,
        &[NAME, text("Ready", "How many pods are ready, of all."), AGE, CONTAINERS, IMAGES],
    ),
    entry("", "Endpoints", network::endpoints, &[NAME, text("Endpoints", "Endpoints.subsets"), AGE]),
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
            text("Status", "Whether the node is ready and takes pods."),
            text("Roles", "The roles of the node, by its labels."),
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
        "",
        "ResourceQuota",
        storage::resource_quota,
        &[
            NAME,
            text("Request", "Used and allowed requests and counts."),
            text("Limit", "Used and allowed limits."),
            AGE,
        ],
    ),
    entry(
        "apps",
        "Deployment",
        workload::deployment,
        &[
            NAME,
            text("Ready", "How many pods are ready, of all."),
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
            text("Controller", "The controller the revision belongs to."),
            text("Revision", "ControllerRevision.revision"),
            AGE,
        ],
    ),
    entry(
        "autoscaling",
        "HorizontalPodAutoscaler",
        workload::horizontal_pod_autoscaler,
        &[
            NAME,
            text("Reference", "HorizontalPodAutoscalerSpec.scaleTargetRef"),
            text("Targets", "HorizontalPodAutoscalerSpec.metrics"),
            text("MinPods", "HorizontalPodAutoscalerSpec.minReplicas"),
            text("MaxPods", "HorizontalPodAutoscalerSpec.maxReplicas"),
            text("Replicas", "HorizontalPodAutoscalerStatus.currentReplicas"),
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
        "certificates.k8s.io",
        "CertificateSigningRequest",
        network::signing_request,
        &[
            NAME,
            AGE,
            text("SignerName", "CertificateSigningRequestSpec.signerName"),
            text("Requestor", "CertificateSigningRequestSpec.username"),
            text("RequestedDuration", "CertificateSigningRequestSpec.expirationSeconds"),
            text("Condition", "CertificateSigningRequestStatus.conditions"),
        ],
    ),
    entry(
        "coordination.k8s.io",
        "Lease",
        storage::lease,
        &[NAME, text("Holder", "LeaseSpec.holderIdentity"), AGE],
    ),
    entry(
        "coordination.k8s.io",
        "LeaseCandidate",
        storage::lease_candidate,
        &[
            NAME,
            text("LeaseName", "LeaseCandidateSpec.leaseName"),
            text("BinaryVersion", "LeaseCandidateSpec.binaryVersion"),
            text("EmulationVersion", "LeaseCandidateSpec.emulationVersion"),
            AGE,
        ],
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
        &[NAME, number("Drivers", "How many drivers the node has."), AGE],
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
        "scheduling.k8s.io",
        "PodGroup",
        workload::pod_group,
        &[
            NAME,
            text("Policy", "How the pods of the group are scheduled."),
            text("Workload", "The workload the group was made for."),
            text("Status", "How the group is, in one word."),
            AGE,
        ],
    ),
    entry("scheduling.k8s.io", "Workload", storage::aged, &[NAME, AGE]),
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
        &[NAME, number("Webhooks", "How many webhooks there are."), AGE],
    ),
    entry(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        network::webhooks,
        &[NAME, number("Webhooks", "How many webhooks there are."), AGE],
    ),
    entry(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        network::admission_policy,
        &[
            NAME,
            number("Validations", "How many validations there are."),
            text("ParamKind", "ValidatingAdmissionPolicySpec.paramKind"),
            AGE,
        ],
    ),
    entry(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        network::admission_policy,
        &[
            NAME,
            number("Mutations", "How many mutations there are."),
            text("ParamKind", "MutatingAdmissionPolicySpec.paramKind"),
            AGE,
        ],
    ),
    entry(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        network::admission_policy_binding,
        &[
            NAME,
            text("PolicyName", "ValidatingAdmissionPolicyBindingSpec.policyName"),
            text("ParamRef", "ValidatingAdmissionPolicyBindingSpec.paramRef"),
            AGE,
        ],
    ),
    entry(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        network::admission_policy_binding,
        &[
            NAME,
            text("PolicyName", "MutatingAdmissionPolicyBindingSpec.policyName"),
            text("ParamRef", "MutatingAdmissionPolicyBindingSpec.paramRef"),
            AGE,
        ],
    ),
    entry("resource.k8s.io", "DeviceClass", storage::aged, &[NAME, AGE]),
    entry(
        "resource.k8s.io",
        "ResourceClaim",
        storage::resource_claim,
        &[NAME, text("State", "Whether the claim is pending, allocated, reserved."), AGE],
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
    entry(
        "apiregistration.k8s.io",
        "APIService",
        network::api_service,
        &[
            NAME,
            text("Service", "APIServiceSpec.service"),
            text("Available", "Whether the API can be used."),
            AGE,
        ],
    ),
];
