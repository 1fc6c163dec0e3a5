//! Storage: volumes, claims on volumes, classes, drivers and free capacity.

use kai_api::meta::Meta;
use kai_api::selector::{LabelSelector, NodeSelector};
use kai_api::value::{Amount, List, Resources, Text, null_is_empty};
use serde::{Deserialize, Serialize};

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolume {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What it is.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PersistentVolumeSpec,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: Phase,
}

/// What a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// `storage` is its size.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    /// How it can be mounted.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub access_modes: List<Text>,
    /// Block or file system.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_mode: Text,
    /// Its class.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub storage_class_name: Text,
    /// The claim it is bound to or kept for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ObjectRef>,
    /// Nodes it can be used from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// The driver it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiSource>,
}

/// A reference to a namespaced object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// Unique id.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub uid: Text,
}

/// Nodes a volume can be used from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeAffinity {
    /// What must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
}

/// Where a volume comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// Driver name.
    pub driver: Text,
    /// The volume in the driver's words.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_handle: Text,
}

/// A status of which only the phase matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phase {
    /// The phase.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub phase: Text,
}

/// A claim on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PersistentVolumeClaimSpec,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: Phase,
}

/// What a volume claim wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// How it is mounted.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub access_modes: List<Text>,
    /// Block or file system.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_mode: Text,
    /// Class; absent means the default one, empty means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<Text>,
    /// The volume it is bound to.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_name: Text,
    /// How much is wanted.
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: VolumeResources,
}

/// How much a volume claim wants.
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
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// Nodes it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<LabelSelector>,
    /// Class.
    pub storage_class_name: Text,
    /// What is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// The largest volume that can be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_volume_size: Option<Amount>,
}

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// Who makes its volumes.
    pub provisioner: Text,
    /// `Immediate` (the default) or `WaitForFirstConsumer`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub volume_binding_mode: Text,
    /// Where volumes can be made.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub allowed_topologies: List<TopologySelectorTerm>,
}

/// All expressions of a term must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    /// The expressions.
    pub match_label_expressions: List<TopologySelectorExpression>,
}

/// A node label and its allowed values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorExpression {
    /// Label.
    pub key: Text,
    /// Allowed values.
    pub values: List<Text>,
}

/// A storage driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriver {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What it can do.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: CsiDriverSpec,
}

/// What a storage driver can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// It reports free capacity.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub storage_capacity: bool,
}
