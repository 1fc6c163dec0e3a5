//! Object metadata (`meta/v1`), reduced to the fields that scheduling reads.

use crate::value::{Labels, List, Stamp, Text, null_is_empty};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name, unique in the namespace.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub namespace: Text,
    /// UID, unique over the lifetime of the cluster.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub uid: Text,
    /// The state of the object on the server; not part of its contents.
    #[serde(skip_serializing)]
    pub resource_version: Version,
    /// Time of creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Stamp>,
    /// End of the grace period; set by a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Stamp>,
    /// All labels.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Annotations that the scheduler reads; all others are dropped by the decoder.
    #[serde(skip_serializing_if = "Labels::is_empty", deserialize_with = "read_annotations")]
    pub annotations: Labels,
    /// Owner references.
    #[serde(skip_serializing_if = "<[Owner]>::is_empty")]
    pub owner_references: List<Owner>,
    /// Finalizers that delay the removal after a deletion.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    pub finalizers: List<Text>,
}

/// A resource version as a number (KEP-5504); 0 where there is none. All are equal, so that two states of an object are
/// equal if their contents are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Version(pub u64);

impl PartialEq for Version {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Version {}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Text = null_is_empty(deserializer)?;
        Ok(Self(text.parse().unwrap_or(0)))
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: Text,
    /// Kind of the owner.
    pub kind: Text,
    /// Name of the owner.
    pub name: Text,
    /// UID of the owner.
    pub uid: Text,
    /// Whether the owner is the managing controller.
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

/// Skips annotations that are not read: they can be large (whole manifests, certificates).
fn read_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
    struct AnnotationsVisitor;
    impl<'de> Visitor<'de> for AnnotationsVisitor {
        type Value = Labels;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
            let mut read: Vec<(Text, Text)> = Vec::new();
            while let Some(Name(name)) = map.next_key()? {
                match name {
                    Some(name) => read.push((name, map.next_value()?)),
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok(read.into_iter().collect())
        }
        fn visit_unit<E>(self) -> Result<Labels, E> {
            Ok(Labels::default())
        }
    }
    deserializer.deserialize_any(AnnotationsVisitor)
}

/// The name of an annotation, if it is read.
struct Name(Option<Text>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name(is_read(name).then(|| name.into())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
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
