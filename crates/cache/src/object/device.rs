//! Dynamic resource allocation (`resource.k8s.io`): slices, device classes and claims.
//!
//! Read as v1; fields that v1beta1 has elsewhere are read from there too. Written as v1.

use kai_api::meta::Meta;
use kai_api::selector::{NodeSelector, Taint, Toleration};
use kai_api::value::{Amount, List, Pairs, Text, null_is_empty};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSlice {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: ResourceSliceSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    pub driver: Text,
    #[serde(deserialize_with = "null_is_empty")]
    pub pool: Pool,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub all_nodes: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub per_device_node_selection: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub shared_counters: List<CounterSet>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub devices: List<Device>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
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
    pub counters: Pairs<Counter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counter {
    pub value: Amount,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    pub name: Text,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    pub attributes: Pairs<AttributeValue>,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    pub capacity: Pairs<Counter>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub consumes_counters: List<CounterSet>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub all_nodes: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub taints: List<Taint>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub allow_multiple_allocations: bool,
    /// Where v1beta1 has all of the above.
    #[serde(skip_serializing)]
    pub basic: Option<Box<Device>>,
}

/// The value of an attribute: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttributeValue {
    #[serde(rename = "int", skip_serializing_if = "Option::is_none")]
    pub integer: Option<i64>,
    #[serde(rename = "bool", skip_serializing_if = "Option::is_none")]
    pub boolean: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClass {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: DeviceClassSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub selectors: List<DeviceSelector>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub extended_resource_name: Text,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub config: List<DeviceConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConfig {
    /// For which requests of a claim; empty means all, as it always is in a class.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: List<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Box<OpaqueConfig>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpaqueConfig {
    pub driver: Text,
    pub parameters: serde_json::Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSelector {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelSelector>,
}

/// An expression over `device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CelSelector {
    pub expression: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: ResourceClaimSpec,
    #[serde(deserialize_with = "null_is_empty")]
    pub status: ResourceClaimStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimSpec {
    #[serde(deserialize_with = "null_is_empty")]
    pub devices: DeviceClaim,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaim {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: List<DeviceRequest>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub constraints: List<DeviceConstraint>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub config: List<DeviceConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    pub name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<DeviceSubRequest>,
    /// The first of these that can be had.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub first_available: List<DeviceSubRequest>,
    /// Where v1beta1 has `exactly`.
    #[serde(flatten, skip_serializing)]
    pub flat: FlatRequest,
}

/// The fields of `exactly`, as v1beta1 has them one level up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlatRequest {
    pub device_class_name: Text,
    pub selectors: List<DeviceSelector>,
    /// `ExactCount` (the default) or `All`.
    pub allocation_mode: Text,
    pub count: Option<i64>,
    #[serde(deserialize_with = "null_is_empty")]
    pub admin_access: bool,
    /// Taints that are tolerated.
    pub tolerations: List<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Name; empty for `exactly`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    pub device_class_name: Text,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub selectors: List<DeviceSelector>,
    /// `ExactCount` (the default) or `All`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub allocation_mode: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub admin_access: bool,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tolerations: List<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// Which requests; empty means all.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: List<Text>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub match_attribute: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub distinct_attribute: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub reserved_for: List<Consumer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    #[serde(deserialize_with = "null_is_empty")]
    pub devices: DeviceResults,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResults {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub results: List<DeviceResult>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResult {
    /// Request, or `request/alternative`.
    pub request: Text,
    pub driver: Text,
    pub pool: Text,
    pub device: Text,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub admin_access: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    /// API group; empty for pods.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub api_group: Text,
    pub resource: Text,
    pub name: Text,
    pub uid: Text,
}

impl ResourceSlice {
    /// Moves fields of v1beta1 to their place in v1.
    pub fn normalize(&mut self) {
        for device in &mut self.spec.devices {
            if let Some(basic) = device.basic.take() {
                *device = Device { name: std::mem::take(&mut device.name), basic: None, ..*basic };
            }
        }
    }
}

impl ResourceClaim {
    /// Moves fields of v1beta1 to their place in v1.
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
