//! Object metadata, cut down to what scheduling reads.

use crate::value::{Labels, List, Stamp, Text, null_is_empty};
use serde::{Deserialize, Deserializer, Serialize};

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub namespace: Text,
    /// Unique id.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub uid: Text,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Stamp>,
    /// When it is, or was, to be gone; set once deletion has been asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Stamp>,
    /// Labels.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Annotations that some rule reads; all others are dropped while reading.
    #[serde(skip_serializing_if = "Labels::is_empty", deserialize_with = "read_annotations")]
    pub annotations: Labels,
    /// Owners.
    #[serde(skip_serializing_if = "<[Owner]>::is_empty")]
    pub owner_references: List<Owner>,
    /// What must happen before it can be gone.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    pub finalizers: List<Text>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// API version.
    pub api_version: Text,
    /// Kind.
    pub kind: Text,
    /// Name.
    pub name: Text,
    /// Unique id.
    pub uid: Text,
    /// It is the managing owner.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub controller: bool,
}

impl Meta {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|v| &**v)
    }
    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|v| &**v)
    }
    /// The uid of the only owner, when that is a pod.
    pub fn only_owner_pod(&self) -> Option<&str> {
        match &*self.owner_references {
            [owner] if owner.kind == "Pod" => Some(&owner.uid),
            _ => None,
        }
    }
}

/// Annotations can be large (whole manifests, certificates) and only few are read.
fn read_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
    let all: Labels = null_is_empty(deserializer)?;
    Ok(all.kept(is_read))
}

fn is_read(key: &str) -> bool {
    const PREFIXES: [&str; 5] =
        ["kai.scheduler/", "nvidia.com/mig-", "gpu-", "volume.kubernetes.io/", "volume.beta.kubernetes.io/"];
    const NAMES: [&str; 4] = [
        "pod-group-name",
        "received-resource-type",
        "runai/shared-gpu-configmap",
        "resource.kubernetes.io/extended-resource-claim",
    ];
    PREFIXES.iter().any(|p| key.starts_with(p)) || NAMES.contains(&key)
}
