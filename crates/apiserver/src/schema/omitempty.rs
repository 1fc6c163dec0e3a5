//! Go's `omitempty` semantics of built-in types: which fields keep a zero value (empty string, zero, false).
//!
//! kube-apiserver decodes an object into a struct and encodes it again. An optional field without a pointer loses its
//! zero value; a pointer field (`replicas: 0`, `storageClassName: ""`) keeps it. The generated schemas do not contain
//! this, so pointer fields are listed here. Fields without `omitempty`, which are written even if they are not set,
//! are listed too.

use super::merge_rules::short_name;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::LazyLock;

/// Optional scalars that keep a zero value: `group.Type: field field …`; a line without a colon continues.
const KEPT: &str = "
    admissionregistration.MutatingWebhook: failurePolicy matchPolicy reinvocationPolicy timeoutSeconds
    admissionregistration.RuleWithOperations: scope
    admissionregistration.ServiceReference: path port
    admissionregistration.ValidatingWebhook: failurePolicy matchPolicy timeoutSeconds
    admissionregistration.WebhookClientConfig: url
    apiextensions.CustomResourceDefinitionVersion: deprecationWarning
    apiextensions.CustomResourceSubresourceScale: labelSelectorPath
    apiextensions.JSONSchemaProps: $ref maxItems maxLength maxProperties maximum minItems minLength
        minProperties minimum multipleOf x-kubernetes-list-type x-kubernetes-map-type
        x-kubernetes-preserve-unknown-fields
    apiextensions.ServiceReference: path port
    apiextensions.ValidationRule: optionalOldSelf reason
    apiextensions.WebhookClientConfig: url
    apps.DaemonSetSpec: revisionHistoryLimit
    apps.DaemonSetStatus: collisionCount
    apps.DeploymentSpec: progressDeadlineSeconds replicas revisionHistoryLimit
    apps.DeploymentStatus: collisionCount terminatingReplicas
    apps.ReplicaSetSpec: replicas
    apps.ReplicaSetStatus: terminatingReplicas
    apps.RollingUpdateStatefulSetStrategy: partition
    apps.StatefulSetSpec: replicas revisionHistoryLimit
    apps.StatefulSetStatus: collisionCount
    authentication.TokenRequestSpec: expirationSeconds
    batch.CronJobSpec: failedJobsHistoryLimit startingDeadlineSeconds successfulJobsHistoryLimit suspend
        timeZone
    batch.JobSpec: activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions
        managedBy manualSelector maxFailedIndexes parallelism podReplacementPolicy suspend
        ttlSecondsAfterFinished
    batch.JobStatus: failedIndexes ready terminating
    batch.PodFailurePolicyOnExitCodesRequirement: containerName
    batch.SuccessPolicyRule: succeededCount succeededIndexes
    coordination.LeaseSpec: holderIdentity leaseDurationSeconds leaseTransitions preferredHolder strategy
    core.AppArmorProfile: localhostProfile
    core.AzureDiskVolumeSource: cachingMode fsType kind readOnly
    core.AzureFilePersistentVolumeSource: secretNamespace
    core.CSIVolumeSource: fsType readOnly
    core.ClientIPConfig: timeoutSeconds
    core.ClusterTrustBundleProjection: name optional signerName
    core.ConfigMap: immutable
    core.ConfigMapEnvSource: optional
    core.ConfigMapKeySelector: optional
    core.ConfigMapProjection: optional
    core.ConfigMapVolumeSource: defaultMode optional
    core.Container: restartPolicy
    core.ContainerStatus: started stopSignal
    core.DownwardAPIVolumeFile: mode
    core.DownwardAPIVolumeSource: defaultMode
    core.EphemeralContainer: restartPolicy
    core.FCVolumeSource: lun
    core.FileKeySelector: optional
    core.GRPCAction: service
    core.GlusterfsPersistentVolumeSource: endpointsNamespace
    core.HostPathVolumeSource: type
    core.ISCSIPersistentVolumeSource: initiatorName
    core.ISCSIVolumeSource: initiatorName
    core.KeyToPath: mode
    core.Lifecycle: stopSignal
    core.LoadBalancerIngress: ipMode
    core.LocalVolumeSource: fsType
    core.NodeFeatures: supplementalGroupsPolicy
    core.NodeRuntimeHandlerFeatures: recursiveReadOnlyMounts userNamespaces
    core.NodeSwapStatus: capacity
    core.PersistentVolumeClaimSpec: storageClassName volumeAttributesClassName volumeMode
    core.PersistentVolumeClaimStatus: currentVolumeAttributesClassName
    core.PersistentVolumeSpec: volumeAttributesClassName volumeMode
    core.PodCertificateProjection: maxExpirationSeconds
    core.PodDNSConfigOption: value
    core.PodResourceClaim: resourceClaimName resourceClaimTemplateName
    core.PodResourceClaimStatus: resourceClaimName
    core.PodSchedulingGroup: podGroupName
    core.PodSecurityContext: fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser
        seLinuxChangePolicy supplementalGroupsPolicy
    core.PodSpec: activeDeadlineSeconds automountServiceAccountToken enableServiceLinks hostUsers
        hostnameOverride preemptionPolicy priority runtimeClassName setHostnameAsFQDN shareProcessNamespace
        terminationGracePeriodSeconds
    core.PortStatus: error
    core.Probe: terminationGracePeriodSeconds
    core.ProjectedVolumeSource: defaultMode
    core.ResourceHealth: message
    core.SeccompProfile: localhostProfile
    core.Secret: immutable
    core.SecretEnvSource: optional
    core.SecretKeySelector: optional
    core.SecretProjection: optional
    core.SecretVolumeSource: defaultMode optional
    core.SecurityContext: allowPrivilegeEscalation privileged procMount readOnlyRootFilesystem runAsGroup
        runAsNonRoot runAsUser
    core.ServiceAccount: automountServiceAccountToken
    core.ServiceAccountTokenProjection: expirationSeconds
    core.ServicePort: appProtocol
    core.ServiceSpec: allocateLoadBalancerNodePorts internalTrafficPolicy ipFamilyPolicy loadBalancerClass
        trafficDistribution
    core.Toleration: tolerationSeconds
    core.TopologySpreadConstraint: minDomains nodeAffinityPolicy nodeTaintsPolicy
    core.TypedLocalObjectReference: apiGroup
    core.TypedObjectReference: apiGroup namespace
    core.VolumeMount: mountPropagation recursiveReadOnly
    core.VolumeMountStatus: recursiveReadOnly
    core.WindowsSecurityContextOptions: gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName
    discovery.Endpoint: hostname nodeName zone
    discovery.EndpointConditions: ready serving terminating
    discovery.EndpointPort: appProtocol name port protocol
    meta.DeleteOptions: gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential orphanDependents
        propagationPolicy
    meta.ListMeta: remainingItemCount
    meta.ObjectMeta: deletionGracePeriodSeconds
    meta.OwnerReference: blockOwnerDeletion controller
    meta.Preconditions: resourceVersion uid
    policy.PodDisruptionBudgetSpec: unhealthyPodEvictionPolicy
    resource.AllocatedDeviceStatus: shareID
    resource.Device: allNodes allowMultipleAllocations bindsToNode nodeName
    resource.DeviceAttribute: bool int string version
    resource.DeviceClassSpec: extendedResourceName
    resource.DeviceConstraint: distinctAttribute matchAttribute
    resource.DeviceRequestAllocationResult: adminAccess shareID
    resource.DeviceToleration: tolerationSeconds
    resource.ExactDeviceRequest: adminAccess
    resource.NodeAllocatableResourceMapping: capacityKey
    resource.ResourceSliceSpec: allNodes nodeName perDeviceNodeSelection
    scheduling.PriorityClass: preemptionPolicy
    storage.CSIDriverSpec: attachRequired fsGroupPolicy nodeAllocatableUpdatePeriodSeconds podInfoOnMount
        preventPodSchedulingIfMissing requiresRepublish seLinuxMount serviceAccountTokenInSecrets
        storageCapacity
    storage.StorageClass: allowVolumeExpansion reclaimPolicy volumeBindingMode
    storage.TokenRequest: expirationSeconds
    storage.VolumeAttachmentSource: persistentVolumeName
    storage.VolumeError: errorCode
    storage.VolumeNodeResources: count
";

/// Scalars that are written even if they are not set, although the schema does not require them.
const WRITTEN: &str = "
    apps.StatefulSetOrdinals: start
    apps.StatefulSetSpec: serviceName
    apps.StatefulSetStatus: availableReplicas
    core.Event: reportingComponent reportingInstance
    core.NodeRuntimeHandler: name
    core.ResourceFieldSelector: divisor
    policy.PodDisruptionBudgetStatus: currentHealthy desiredHealthy disruptionsAllowed expectedPods
    rbac.RoleRef: apiGroup
    scheduling.PriorityClass: value
";

/// Scalars that are omitted if they are zero, although the schema requires them.
const OMITTED: &str = "
    authentication.TokenReviewSpec: token
    core.ConfigMapEnvSource: name
    core.ConfigMapKeySelector: name
    core.ConfigMapProjection: name
    core.ConfigMapVolumeSource: name
    core.ContainerRestartRule: action
    core.ContainerRestartRuleOnExitCodes: operator
    core.ImageVolumeStatus: imageRef
    core.LocalObjectReference: name
    core.PodCertificateProjection: keyType signerName
    core.SecretEnvSource: name
    core.SecretKeySelector: name
    core.SecretProjection: name
";

/// Times and lists that are written as null if they are not set.
const NULLED: &str = "
    apiextensions.CustomResourceDefinitionCondition: lastTransitionTime
    apps.DaemonSetCondition: lastTransitionTime
    apps.DeploymentCondition: lastTransitionTime lastUpdateTime
    apps.ReplicaSetCondition: lastTransitionTime
    apps.StatefulSetCondition: lastTransitionTime
    batch.JobCondition: lastProbeTime lastTransitionTime
    core.ContainerStateRunning: startedAt
    core.ContainerStateTerminated: finishedAt startedAt
    core.Event: eventTime firstTimestamp lastTimestamp
    core.EventSeries: lastObservedTime
    core.NamespaceCondition: lastTransitionTime
    core.NodeCondition: lastHeartbeatTime lastTransitionTime
    core.NodeSelector: nodeSelectorTerms
    core.PersistentVolumeClaimCondition: lastProbeTime lastTransitionTime
    core.PodCondition: lastProbeTime lastTransitionTime
    discovery.EndpointSlice: endpoints ports
    events.Event: deprecatedFirstTimestamp deprecatedLastTimestamp eventTime
    meta.Condition: lastTransitionTime
    rbac.ClusterRole: rules
    rbac.Role: rules
    storage.CSINodeDriver: topologyKeys
    storage.CSINodeSpec: drivers
";

/// Embedded structs, which are written even if they are empty. In addition: `metadata` of every type, and `spec` and
/// `status` of every kind.
const EMBEDDED: &str = "
    admissionregistration.MutatingWebhook: clientConfig
    admissionregistration.ValidatingWebhook: clientConfig
    apiextensions.CustomResourceDefinitionSpec: names
    apiextensions.CustomResourceDefinitionStatus: acceptedNames
    apps.DaemonSetSpec: template updateStrategy
    apps.DeploymentSpec: strategy template
    apps.ReplicaSetSpec: template
    apps.StatefulSetSpec: template updateStrategy
    authentication.SelfSubjectReviewStatus: userInfo
    authentication.TokenReviewStatus: user
    batch.CronJobSpec: jobTemplate
    batch.JobSpec: template
    batch.JobTemplateSpec: spec
    core.Binding: target
    core.Container: resources
    core.ContainerStatus: lastState state
    core.EphemeralContainer: resources
    core.Event: involvedObject source
    core.NodeDaemonEndpoints: kubeletEndpoint
    core.NodeStatus: daemonEndpoints nodeInfo
    core.PersistentVolumeClaimSpec: resources
    core.PersistentVolumeClaimTemplate: spec
    core.PodTemplateSpec: spec
    core.PreferredSchedulingTerm: preference
    core.ServiceStatus: loadBalancer
    core.WeightedPodAffinityTerm: podAffinityTerm
    discovery.Endpoint: conditions
    events.Event: deprecatedSource regarding
    rbac.ClusterRoleBinding: roleRef
    rbac.RoleBinding: roleRef
    resource.AllocationResult: devices
    resource.ResourceClaimSpec: devices
    resource.ResourceClaimTemplateSpec: spec
    resource.ResourceSliceSpec: pool
    storage.VolumeAttachmentSpec: source
";

static KEPT_FIELDS: LazyLock<FxHashMap<&'static str, FxHashSet<&'static str>>> =
    LazyLock::new(|| table(KEPT));
static WRITTEN_FIELDS: LazyLock<FxHashMap<&'static str, FxHashSet<&'static str>>> =
    LazyLock::new(|| table(WRITTEN));

type Table = FxHashMap<&'static str, FxHashSet<&'static str>>;

static EMBEDDED_FIELDS: LazyLock<Table> = LazyLock::new(|| table(EMBEDDED));
static OMITTED_FIELDS: LazyLock<Table> = LazyLock::new(|| table(OMITTED));
static NULLED_FIELDS: LazyLock<Table> = LazyLock::new(|| table(NULLED));

fn table(text: &'static str) -> Table {
    let mut table: FxHashMap<_, FxHashSet<_>> = FxHashMap::default();
    let mut name = "";
    for line in text.lines() {
        let fields = match line.split_once(':') {
            Some((head, fields)) => {
                name = head.trim();
                fields
            }
            None => line,
        };
        table.entry(name).or_default().extend(fields.split_ascii_whitespace());
    }
    table
}

/// The lists of one type.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OmitEmpty {
    kept: Option<&'static FxHashSet<&'static str>>,
    written: Option<&'static FxHashSet<&'static str>>,
    embedded: Option<&'static FxHashSet<&'static str>>,
    omitted: Option<&'static FxHashSet<&'static str>>,
    nulled: Option<&'static FxHashSet<&'static str>>,
}

impl OmitEmpty {
    pub(super) fn of(definition: &str) -> Self {
        let name = short_name(definition).unwrap_or_default();
        let name = name.as_str();
        Self {
            kept: KEPT_FIELDS.get(name),
            written: WRITTEN_FIELDS.get(name),
            embedded: EMBEDDED_FIELDS.get(name),
            omitted: OMITTED_FIELDS.get(name),
            nulled: NULLED_FIELDS.get(name),
        }
    }

    /// Whether an optional field keeps its zero value.
    pub(super) fn keep(self, field: &str) -> bool {
        self.kept.is_some_and(|fields| fields.contains(field)) || self.write(field)
    }

    /// Whether a required field is omitted if it is zero.
    pub(super) fn omit(self, field: &str) -> bool {
        self.omitted.is_some_and(|fields| fields.contains(field))
    }

    /// Whether a field is written as null if it is not set.
    pub(super) fn null(self, field: &str) -> bool {
        self.nulled.is_some_and(|fields| fields.contains(field))
    }

    /// Whether a missing struct field is written as empty.
    pub(super) fn embed(self, field: &str) -> bool {
        self.embedded.is_some_and(|fields| fields.contains(field))
    }

    /// Whether a missing scalar is written as zero.
    pub(super) fn write(self, field: &str) -> bool {
        self.written.is_some_and(|fields| fields.contains(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn pointer_fields_keep_zero_values() {
        assert!(OmitEmpty::of("io.k8s.api.apps.v1.DeploymentSpec").keep("replicas"));
        assert!(OmitEmpty::of("io.k8s.api.core.v1.PersistentVolumeClaimSpec").keep("storageClassName"));
        assert!(!OmitEmpty::of("io.k8s.api.core.v1.PodSpec").keep("nodeName"));
        assert!(OmitEmpty::of("io.k8s.api.core.v1.Event").write("reportingComponent"));
    }

    #[test]
    fn every_listed_field_exists() {
        let mut listed: Vec<_> = KEPT_FIELDS
            .iter()
            .chain(WRITTEN_FIELDS.iter())
            .chain(EMBEDDED_FIELDS.iter())
            .chain(OMITTED_FIELDS.iter())
            .chain(NULLED_FIELDS.iter())
            .collect();
        listed.sort_unstable_by_key(|(name, _)| **name);
        let known: Vec<_> = builtin::definitions().collect();
        for (name, fields) in listed.into_iter().filter(|(name, _)| !name.is_empty()) {
            let types: Vec<_> =
                known.iter().filter(|one| short_name(one.name()).as_deref() == Some(*name)).collect();
            assert!(!types.is_empty(), "{name} is not a type of a served kind");
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable();
            for field in fields {
                let found = types.iter().any(|one| one.raw()["properties"].get(*field).is_some());
                assert!(found, "{name} has no field {field}");
            }
        }
    }
}
