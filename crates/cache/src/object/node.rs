//! Nodes, their NUMA zones (NodeResourceTopology) and their CSI attach limits (CSINode).

use kai_api::meta::Meta;
use kai_api::selector::Taint;
use kai_api::value::{Amount, List, Resources, Text, null_is_empty};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "null_is_empty")]
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub unschedulable: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub taints: List<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// No rule reads it; kept because readers of a snapshot expect it beside `allocatable`.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocatable: Resources,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: List<NodeCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub kind: Text,
    pub status: Text,
}

/// NUMA zones of the node of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResourceTopology {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// The older way to name policy and scope.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub topology_policies: List<Text>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub attributes: List<Attribute>,
    pub zones: List<Zone>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attribute {
    pub name: Text,
    pub value: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Zone {
    pub name: Text,
    /// `Node` for NUMA zones.
    #[serde(rename = "type")]
    pub kind: Text,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resources: List<ZoneResource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneResource {
    pub name: Text,
    pub capacity: Amount,
    pub allocatable: Amount,
    pub available: Amount,
}

/// Storage drivers on the node of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNode {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: CsiNodeSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeSpec {
    pub drivers: List<CsiNodeDriver>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    pub name: Text,
    #[serde(rename = "nodeID", skip_serializing_if = "Text::is_empty")]
    pub node_id: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<VolumeLimit>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeLimit {
    /// Most volumes; absent is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}
