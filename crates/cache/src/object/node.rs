//! Nodes and what describes them from the side: NUMA zones and attach limits.

use kai_api::meta::Meta;
use kai_api::selector::Taint;
use kai_api::value::{Amount, List, Resources, Text, null_is_empty};
use serde::{Deserialize, Serialize};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: NodeSpec,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: NodeStatus,
}

/// What is wanted of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// It is cordoned.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub unschedulable: bool,
    /// Taints.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub taints: List<Taint>,
}

/// What is reported of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// All there is; no rule reads it, but whoever opens a snapshot expects it beside what may be handed out.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    /// What may be handed out.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocatable: Resources,
    /// Conditions.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: List<NodeCondition>,
}

/// A condition of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
}

/// NUMA zones of the node of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResourceTopology {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// The older way to name policy and scope.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub topology_policies: List<Text>,
    /// Named facts, among them policy and scope.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub attributes: List<Attribute>,
    /// Zones of all kinds.
    pub zones: List<Zone>,
}

/// A named fact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attribute {
    /// Name.
    pub name: Text,
    /// Value.
    pub value: Text,
}

/// A part of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Zone {
    /// Name.
    pub name: Text,
    /// `Node` for NUMA zones.
    #[serde(rename = "type")]
    pub kind: Text,
    /// What it has.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resources: List<ZoneResource>,
}

/// One resource of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneResource {
    /// Resource name.
    pub name: Text,
    /// All there is.
    pub capacity: Amount,
    /// What may be handed out.
    pub allocatable: Amount,
    /// What is free.
    pub available: Amount,
}

/// Storage drivers on the node of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNode {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: CsiNodeSpec,
}

/// Storage drivers on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeSpec {
    /// The drivers.
    pub drivers: List<CsiNodeDriver>,
}

/// A storage driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// Its name.
    pub name: Text,
    /// The node's name in the driver's words.
    #[serde(rename = "nodeID", skip_serializing_if = "Text::is_empty")]
    pub node_id: Text,
    /// How many volumes it can attach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<VolumeLimit>,
}

/// How many volumes a driver can attach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeLimit {
    /// Most volumes; absent is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}
