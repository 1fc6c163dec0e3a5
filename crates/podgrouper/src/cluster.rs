//! What a grouping reads besides the pod and its owners.

use crate::objects::{OwnerObject, PodSummary};
use kai_api::PodGroupSpec;
use kai_runtime::Key;
use std::sync::Arc;

/// The objects of the cluster that every grouping may read at no cost: the stores of the informers.
pub trait ClusterView: Sync {
    fn priority_class_exists(&self, name: &str) -> bool;

    fn group(&self, key: &Key) -> Option<StoredGroupView>;

    /// The groups whose name is `base`, or begins with `base` and a dash.
    fn groups_named(&self, namespace: &str, base: &str) -> Vec<StoredGroupView>;

    /// The pods of this scheduler with this label.
    fn pods_labelled(&self, namespace: &str, key: &str, value: &str) -> Vec<Arc<PodSummary>>;
}

/// A stored pod group, as far as groupings read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredGroupView {
    /// Kind of the first owner reference.
    pub owner_kind: Option<String>,
    pub has_sub_groups: bool,
}

impl StoredGroupView {
    pub(crate) fn has_sub_groups(spec: Option<&PodGroupSpec>) -> bool {
        spec.is_some_and(|spec| !spec.sub_groups.is_empty())
    }
}

/// A further object that a grouping needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectRef {
    /// An object in the namespace of the pod.
    Object { api_version: String, kind: String, name: String },
    /// The Kartas that describe a kind.
    Kartas { group: String, version: String, kind: String },
    /// All topologies.
    Topologies,
}

/// The objects of the references that a grouping declared; objects that do not exist are missing.
#[derive(Clone, Debug, Default)]
pub struct ReadObjects(pub Vec<(ObjectRef, Vec<Arc<OwnerObject>>)>);

impl ReadObjects {
    /// The object of a reference.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Arc<OwnerObject>> {
        self.all(reference).first()
    }

    /// Whether the reference was read, whatever was found.
    pub fn has(&self, reference: &ObjectRef) -> bool {
        self.0.iter().any(|(of, _)| of == reference)
    }

    pub fn all(&self, reference: &ObjectRef) -> &[Arc<OwnerObject>] {
        let found = self.0.iter().find(|(of, _)| of == reference);
        found.map(|(_, objects)| objects.as_slice()).unwrap_or_default()
    }
}
