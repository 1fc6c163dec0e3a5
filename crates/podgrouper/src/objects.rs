//! The objects that the pod grouper reads, reduced to the fields it reads, so that memory follows what is used.

use k8s_openapi::api::core::v1::{Pod, PodSchedulingGroup};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_api::pod::Empty;
use kai_api::value::List;
use kai_api::well_known::{annotation, label};
use kai_runtime::Key;
use serde::Deserialize;
use serde_json::Value;

/// A pod, as far as grouping reads it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodSummary {
    pub metadata: ObjectMeta,
    pub spec: PodSpecSummary,
    pub status: PodStatusSummary,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecSummary {
    pub scheduler_name: Option<String>,
    pub priority_class_name: Option<String>,
    pub node_name: Option<String>,
    pub scheduling_group: Option<PodSchedulingGroup>,
    /// Only whether there are any is read.
    pub resource_claims: List<Empty>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodStatusSummary {
    pub phase: Option<String>,
}

impl From<Pod> for PodSummary {
    fn from(pod: Pod) -> Self {
        let spec = pod.spec.unwrap_or_default();
        Self {
            metadata: pod.metadata,
            spec: PodSpecSummary {
                scheduler_name: spec.scheduler_name,
                priority_class_name: spec.priority_class_name,
                node_name: spec.node_name,
                scheduling_group: spec.scheduling_group,
                resource_claims: spec.resource_claims.iter().flatten().map(|_| Empty {}).collect(),
            },
            status: PodStatusSummary { phase: pod.status.and_then(|status| status.phase) },
        }
    }
}

/// An owner of any kind: typed metadata, and the rest as JSON for the kinds that read it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerObject {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(flatten)]
    pub data: Value,
}

impl OwnerObject {
    /// The whole object.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = self.data.clone();
        kai_object::set(&mut object, &["apiVersion"], Value::from(self.api_version.as_str()));
        kai_object::set(&mut object, &["kind"], Value::from(self.kind.as_str()));
        // Metadata has string keys, so serialisation cannot fail.
        kai_object::set(&mut object, &["metadata"], serde_json::to_value(&self.metadata).unwrap_or_default());
        object
    }
}

/// Reads of the optional maps and lists of metadata.
pub trait MetaExt {
    fn label(&self, key: &str) -> Option<&str>;
    fn annotation(&self, key: &str) -> Option<&str>;
    fn owners(&self) -> &[OwnerReference];
    fn uid_str(&self) -> &str;
    fn name_str(&self) -> &str;
    fn namespace_str(&self) -> &str;
}

impl MetaExt for ObjectMeta {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn owners(&self) -> &[OwnerReference] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    fn uid_str(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    fn name_str(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn namespace_str(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

pub(crate) fn key_of(metadata: &ObjectMeta) -> Key {
    Key::new(metadata.namespace_str(), metadata.name_str())
}

/// Whether a pod without owners is assigned to a group: nothing is left to do, unless that group is deleted. An empty name
/// assigns it to none.
pub(crate) fn is_assigned_without_owners(pod: &PodSummary) -> bool {
    let group = pod.metadata.annotation(annotation::POD_GROUP).unwrap_or_default();
    pod.metadata.owners().is_empty() && pod.spec.scheduling_group.is_none() && !group.is_empty()
}

/// The Spark application of a pod, which names the group of its pods.
pub(crate) fn spark_application(pod: &ObjectMeta) -> Option<&str> {
    pod.label(label::SPARK_APP_NAME).and(pod.label(label::SPARK_APP_SELECTOR))
}

/// Leaves what identifies an object and its version.
pub(crate) fn trim_to_identity(metadata: &mut ObjectMeta) {
    *metadata = ObjectMeta {
        name: metadata.name.take(),
        namespace: metadata.namespace.take(),
        uid: metadata.uid.take(),
        resource_version: metadata.resource_version.take(),
        deletion_timestamp: metadata.deletion_timestamp.take(),
        ..ObjectMeta::default()
    };
}

/// As [`trim_to_identity`], with labels, annotations and owners.
fn trim_metadata(metadata: &mut ObjectMeta) {
    let (labels, annotations, owners) =
        (metadata.labels.take(), metadata.annotations.take(), metadata.owner_references.take());
    trim_to_identity(metadata);
    metadata.labels = labels;
    metadata.annotations = annotations;
    metadata.owner_references = owners;
}

pub(crate) fn trim_pod(pod: &mut PodSummary) {
    trim_metadata(&mut pod.metadata);
    if is_assigned_without_owners(pod) {
        let group = pod.metadata.annotation(annotation::POD_GROUP).map(str::to_owned);
        let of_application = spark_application(&pod.metadata).is_some();
        let labels = pod.metadata.labels.take().filter(|_| of_application);
        trim_to_identity(&mut pod.metadata);
        // The group of an application is restored, and only labels tell that it is one.
        pod.metadata.labels = labels.map(|labels| {
            let is_read = |key: &str| [label::SPARK_APP_NAME, label::SPARK_APP_SELECTOR].contains(&key);
            labels.into_iter().filter(|(key, _)| is_read(key)).collect()
        });
        pod.metadata.annotations =
            group.map(|group| [(annotation::POD_GROUP.to_owned(), group)].into_iter().collect());
        pod.spec = PodSpecSummary::default();
        pod.status = PodStatusSummary::default();
    }
}
