//! `BindRequest` (`scheduling.run.ai/v1alpha2`): the scheduler's decision to bind one pod to one node.

use crate::{ResourceAmounts, schema::custom_resource_schema, value::null_is_empty};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pod, the node, and the devices that the scheduler selected. Fields follow KAI's `BindRequestSpec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v1alpha2",
    kind = "BindRequest",
    plural = "bindrequests",
    namespaced,
    doc = "A bind request: the decision to run one pod on one node.",
    status = "BindRequestStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    // Accepts an object without a spec; kube takes serde attributes in no other form.
    attr = "cfg_attr(all(), serde(default))"
)]
#[serde(rename_all = "camelCase", default)]
pub struct BindRequestSpec {
    /// The pod to bind, in the namespace of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_name: String,
    /// The node to bind it to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selected_node: String,
    /// How the pod receives its GPUs: `Regular`, `Fraction`, `MigInstance` or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub received_resource_type: String,
    /// Number and portion of the GPUs that the pod receives.
    #[serde(rename = "receivedGPU", skip_serializing_if = "Option::is_none")]
    pub received_gpu: Option<ReceivedGpu>,
    /// GPU groups of the shared GPUs, one for each device.
    #[serde(
        rename = "selectedGPUGroups",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_empty"
    )]
    pub selected_gpu_groups: Vec<String>,
    /// Allocations of the pod's resource claims.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub resource_claim_allocations: Vec<ResourceClaimAllocation>,
    /// Allocation for extended resources that are backed by devices (KEP-5004).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_claim_allocation: Option<ExtendedResourceClaimAllocation>,
    /// NUMA zones from which the topology manager of the node is expected to allocate.
    #[serde(
        rename = "predictedNUMAZones",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_empty"
    )]
    pub predicted_numa_zones: Vec<NumaZoneAmount>,
    /// Number of failed bind attempts after which the request has failed; absent allows one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
}

/// The longest value of a label.
const LABEL_VALUE_MAX: usize = 63;

/// The label `selected-node` of the requests for a node; none where the node's name is too long for a label.
pub fn selected_node_label(node: &str) -> Option<&str> {
    (node.len() <= LABEL_VALUE_MAX).then_some(node)
}

impl BindRequestSpec {
    /// `received_resource_type` of whole devices.
    pub const REGULAR: &str = "Regular";
    /// `received_resource_type` of shared devices.
    pub const FRACTION: &str = "Fraction";
    /// `received_resource_type` of MIG instances.
    pub const MIG_INSTANCE: &str = "MigInstance";
}

/// Number and portion of the GPUs that a pod receives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReceivedGpu {
    /// Number of devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Portion of each device, as a decimal with two digits such as `0.50`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub portion: String,
}

/// The allocation of one resource claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimAllocation {
    /// Name of the entry in the pod's `spec.resourceClaims`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The allocation to write to the claim, as in `resource.k8s.io/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
}

/// The allocation for extended resources; the binder creates the ResourceClaim for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedResourceClaimAllocation {
    /// The allocation to write to the claim, as in `resource.k8s.io/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
    /// The device requests of the claim, as in `resource.k8s.io/v1`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub device_requests: Vec<DeviceRequest>,
    /// Which container uses which device request.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub container_mappings: Vec<ContainerResourceMapping>,
}

/// The device request that serves one extended resource of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourceMapping {
    /// Name of the container.
    pub container_name: String,
    /// Name of the extended resource.
    pub resource_name: String,
    /// Name of the device request.
    pub request_name: String,
}

/// Resources that a pod uses of one NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaZoneAmount {
    /// Name of the zone, such as `node-0`.
    pub zone: String,
    /// Quantities by resource name.
    #[serde(deserialize_with = "null_is_empty")]
    pub amount: ResourceAmounts,
}

/// The result of the bind attempts so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BindRequestStatus {
    /// `Pending`, `Succeeded`, `Failed`, or empty before the first attempt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How many attempts failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_attempts: Option<i32>,
}

impl BindRequestStatus {
    /// `phase` before the first attempt.
    pub const PENDING: &str = "Pending";
    /// `phase` when the pod is bound.
    pub const SUCCEEDED: &str = "Succeeded";
    /// `phase` when the last attempt failed.
    pub const FAILED: &str = "Failed";
    /// Begins the `reason` of a succeeded request whose shared GPUs have lost their reservations.
    const RESERVATION_LOST: &str = "GPUReservationLost: ";

    /// The GPU groups of a succeeded request that have lost their reservation: no further pod may share these GPUs.
    pub fn drained_gpu_groups(&self) -> impl Iterator<Item = &str> {
        let listed = self.reason.strip_prefix(Self::RESERVATION_LOST);
        let listed = listed.filter(|_| self.phase == Self::SUCCEEDED).unwrap_or_default();
        listed.split(", ").filter(|group| !group.is_empty())
    }

    /// The `reason` from which [`drained_gpu_groups`](Self::drained_gpu_groups) reads these groups; empty without groups.
    pub fn drained_reason<'a>(groups: impl IntoIterator<Item = &'a str>) -> String {
        let groups: Vec<&str> = groups.into_iter().collect();
        if groups.is_empty() {
            String::new()
        } else {
            format!("{}{}", Self::RESERVATION_LOST, groups.join(", "))
        }
    }
}

custom_resource_schema!(
    BindRequest,
    "A bind request: the decision to run one pod on one node.",
    { spec: optional BindRequestSpec, status: BindRequestStatus }
);
