//! Storage: volumes, volume claims, storage classes, CSI drivers and storage capacity.

use kai_api::meta::Meta;
use kai_api::selector::{LabelSelector, NodeSelector};
use kai_api::value::{Amount, List, Resources, Text, null_is_empty};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolume {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PersistentVolumeSpec,
    #[serde(deserialize_with = "null_is_empty")]
    pub status: Phase,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// `storage` is its size.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub access_modes: List<Text>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_mode: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub storage_class_name: Text,
    /// The claim it is bound to or kept for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<VolumeNodeAffinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiSource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    pub namespace: Text,
    pub name: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub uid: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    pub driver: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_handle: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phase {
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub phase: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PersistentVolumeClaimSpec,
    #[serde(deserialize_with = "null_is_empty")]
    pub status: Phase,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub access_modes: List<Text>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_mode: Text,
    /// Class; absent means the default one, empty means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<Text>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_name: Text,
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: VolumeResources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeResources {
    /// `storage` is the size.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub requests: Resources,
}

/// Free capacity of one class in one part of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStorageCapacity {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<LabelSelector>,
    pub storage_class_name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_volume_size: Option<Amount>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    pub provisioner: Text,
    /// `Immediate` (the default) or `WaitForFirstConsumer`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_binding_mode: Text,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub allowed_topologies: List<TopologySelectorTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    pub match_label_expressions: List<TopologySelectorExpression>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorExpression {
    pub key: Text,
    pub values: List<Text>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriver {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: CsiDriverSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub storage_capacity: bool,
}
