//! Devices and claims on them (`resource.k8s.io`): slices, classes, claims.
//!
//! Read in the v1 form; where older versions put the same fact elsewhere, that place is read too. Written as v1.

use kai_api::meta::Meta;
use kai_api::selector::{NodeSelector, Taint, Toleration};
use kai_api::value::{Amount, List, Pairs, Text, null_is_empty};
use serde::{Deserialize, Serialize};

/// Devices of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSlice {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// The devices.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: ResourceSliceSpec,
}

/// Devices of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    /// Driver.
    pub driver: Text,
    /// Pool.
    #[serde(deserialize_with = "null_is_empty")]
    pub pool: Pool,
    /// Usable on this node.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_name: Text,
    /// Usable on these nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Usable everywhere.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub all_nodes: bool,
    /// Each device says where.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub per_device_node_selection: bool,
    /// Counters that devices share.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub shared_counters: List<CounterSet>,
    /// The devices.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub devices: List<Device>,
}

/// A pool of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Name.
    pub name: Text,
    /// Slices of older generations do not count.
    #[serde(deserialize_with = "null_is_empty")]
    pub generation: i64,
    /// How many slices a complete pool has.
    #[serde(deserialize_with = "null_is_empty")]
    pub resource_slice_count: i64,
}

/// A named set of counters, shared or consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSet {
    /// Name of the set (where it is shared).
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    /// Name of the set (where it is consumed).
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub counter_set: Text,
    /// Counters.
    pub counters: Pairs<Counter>,
}

/// A counter or a capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counter {
    /// Its value.
    pub value: Amount,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Name.
    pub name: Text,
    /// What it is.
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    pub attributes: Pairs<AttributeValue>,
    /// What it has.
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    pub capacity: Pairs<Counter>,
    /// Counters it draws from.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub consumes_counters: List<CounterSet>,
    /// Usable on this node.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_name: Text,
    /// Usable on these nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Usable everywhere.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub all_nodes: bool,
    /// Taints.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub taints: List<Taint>,
    /// It may serve several claims.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub allow_multiple_allocations: bool,
    /// Where v1beta1 keeps all of the above.
    #[serde(skip_serializing)]
    pub basic: Option<Box<Device>>,
}

/// The value of an attribute: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttributeValue {
    /// A number.
    #[serde(rename = "int", skip_serializing_if = "Option::is_none")]
    pub integer: Option<i64>,
    /// A truth value.
    #[serde(rename = "bool", skip_serializing_if = "Option::is_none")]
    pub boolean: Option<bool>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<Text>,
    /// A semantic version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
}

/// A device class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClass {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What it selects.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: DeviceClassSpec,
}

/// What a device class selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// All must accept a device.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub selectors: List<DeviceSelector>,
    /// The extended resource it backs.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub extended_resource_name: Text,
    /// What drivers are told about its devices.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub config: List<DeviceConfig>,
}

/// What a driver is told about devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConfig {
    /// For which requests of a claim; empty means all, as it always is in a class.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: List<Text>,
    /// What it is told, which only the driver can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Box<OpaqueConfig>>,
}

/// What one driver is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpaqueConfig {
    /// Which driver.
    pub driver: Text,
    /// What.
    pub parameters: serde_json::Value,
}

/// A selector over devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSelector {
    /// As an expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelSelector>,
}

/// An expression over `device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CelSelector {
    /// The expression.
    pub expression: Text,
}

/// A claim on devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: ResourceClaimSpec,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: ResourceClaimStatus,
}

/// What a claim wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimSpec {
    /// Requests and constraints.
    #[serde(deserialize_with = "null_is_empty")]
    pub devices: DeviceClaim,
}

/// Requests and constraints of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaim {
    /// Requests.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: List<DeviceRequest>,
    /// Constraints.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub constraints: List<DeviceConstraint>,
    /// What drivers are told.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub config: List<DeviceConfig>,
}

/// A request for devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Name.
    pub name: Text,
    /// Exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<DeviceSubRequest>,
    /// The first of these that can be had.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub first_available: List<DeviceSubRequest>,
    /// Where v1beta1 keeps `exactly`.
    #[serde(flatten, skip_serializing)]
    pub flat: FlatRequest,
}

/// The fields of `exactly`, as v1beta1 has them one level up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlatRequest {
    /// Device class.
    pub device_class_name: Text,
    /// Selectors.
    pub selectors: List<DeviceSelector>,
    /// `ExactCount` (the default) or `All`.
    pub allocation_mode: Text,
    /// How many.
    pub count: Option<i64>,
    /// For administration only.
    #[serde(deserialize_with = "null_is_empty")]
    pub admin_access: bool,
    /// Taints that are tolerated.
    pub tolerations: List<Toleration>,
}

/// One way to satisfy a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Name; empty for `exactly`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    /// Device class.
    pub device_class_name: Text,
    /// Selectors.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub selectors: List<DeviceSelector>,
    /// `ExactCount` (the default) or `All`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub allocation_mode: Text,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// For administration only.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub admin_access: bool,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tolerations: List<Toleration>,
}

/// A constraint over the devices of some requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// Which requests; empty means all.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: List<Text>,
    /// All share the value of this attribute.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub match_attribute: Text,
    /// All differ in the value of this attribute.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub distinct_attribute: Text,
}

/// What is reported of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// What it has been given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
    /// Who uses it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub reserved_for: List<Consumer>,
}

/// What a claim has been given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// Devices.
    #[serde(deserialize_with = "null_is_empty")]
    pub devices: DeviceResults,
    /// Nodes it can be used from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
}

/// Devices given to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResults {
    /// The devices.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub results: List<DeviceResult>,
}

/// A device given to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResult {
    /// Request, or `request/alternative`.
    pub request: Text,
    /// Driver.
    pub driver: Text,
    /// Pool.
    pub pool: Text,
    /// Device.
    pub device: Text,
    /// For administration only.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub admin_access: bool,
}

/// Who uses a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    /// API group; empty for pods.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub api_group: Text,
    /// `pods`, mostly.
    pub resource: Text,
    /// Name.
    pub name: Text,
    /// Unique id.
    pub uid: Text,
}

impl ResourceSlice {
    /// Moves what v1beta1 keeps elsewhere to its v1 place.
    pub fn normalize(&mut self) {
        for device in &mut self.spec.devices {
            if let Some(basic) = device.basic.take() {
                *device = Device { name: std::mem::take(&mut device.name), basic: None, ..*basic };
            }
        }
    }
}

impl ResourceClaim {
    /// Moves what v1beta1 keeps elsewhere to its v1 place.
    pub fn normalize(&mut self) {
        for request in &mut self.spec.devices.requests {
            let flat = std::mem::take(&mut request.flat);
            if request.exactly.is_none() && !flat.device_class_name.is_empty() {
                request.exactly = Some(DeviceSubRequest {
                    name: Text::default(),
                    device_class_name: flat.device_class_name,
                    selectors: flat.selectors,
                    allocation_mode: flat.allocation_mode,
                    count: flat.count,
                    admin_access: flat.admin_access,
                    tolerations: flat.tolerations,
                });
            }
        }
    }
}
