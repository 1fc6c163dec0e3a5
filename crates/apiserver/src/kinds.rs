//! Knows every resource the server serves: its names, verbs and sub-resources, and where its objects are kept.
//!
//! Built-in resources come from a table ([`builtin`]); a `CustomResourceDefinition` adds more while the server runs.
//! A request works on one [`Catalog`], so that what it found stays what it is until it is done.

pub mod builtin;
pub mod convert;

mod catalog;

pub use builtin::Builtin;
pub(crate) use catalog::version_rank;
pub use catalog::{Catalog, Group, Registry};

use crate::crd::CustomVersion;
use crate::failure::About;
use crate::schema::Schema;
use crate::store::TableId;
use std::sync::Arc;

/// What a client may do with a resource as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// Everything.
    All,
    /// Everything but deleting many at once.
    NoDeleteCollection,
    /// A question that is answered and not kept.
    CreateOnly,
}

impl Verbs {
    /// The verbs as discovery lists them.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            Self::NoDeleteCollection => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Self::CreateOnly => &["create"],
        }
    }

    /// Whether the verb is among them.
    pub fn allow(self, verb: &str) -> bool {
        self.names().contains(&verb)
    }
}

/// A part of an object, or something done to it, with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subresource {
    /// Approval of a certificate request.
    Approval,
    /// Puts a pod on a node.
    Binding,
    /// Debug containers of a pod.
    EphemeralContainers,
    /// Deletes a pod where disruption budgets allow it.
    Eviction,
    /// The finalizers of a namespace.
    Finalize,
    /// What a pod printed.
    Log,
    /// The resources of a running pod.
    Resize,
    /// The number of replicas.
    Scale,
    /// What is observed, as opposed to what is wanted.
    Status,
    /// A token of a service account.
    Token,
}

impl Subresource {
    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Eviction => "eviction",
            Self::Finalize => "finalize",
            Self::Log => "log",
            Self::Resize => "resize",
            Self::Scale => "scale",
            Self::Status => "status",
            Self::Token => "token",
        }
    }

    /// The verbs as discovery lists them.
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Binding | Self::Eviction | Self::Token => &["create"],
            Self::Finalize => &["update"],
            Self::Log => &["get"],
            Self::Approval | Self::EphemeralContainers | Self::Resize | Self::Scale | Self::Status => {
                &["get", "patch", "update"]
            }
        }
    }

    /// Group, version and kind of its objects, where they differ from the resource's own.
    pub fn own_kind(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Binding => Some(("", "v1", "Binding")),
            Self::Eviction => Some(("policy", "v1", "Eviction")),
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
            Self::Approval
            | Self::EphemeralContainers
            | Self::Finalize
            | Self::Log
            | Self::Resize
            | Self::Status => None,
        }
    }
}

/// Where a resource comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The built-in table.
    Builtin(&'static Builtin),
    /// A version of a `CustomResourceDefinition`.
    Custom(Arc<CustomVersion>),
}

/// One resource in one version, as it is served.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The version.
    pub version: Box<str>,
    /// Group and version as objects name them.
    pub api_version: Box<str>,
    /// The kind of its objects.
    pub kind: Box<str>,
    /// The kind of its lists.
    pub list_kind: Box<str>,
    /// The name in paths.
    pub plural: Box<str>,
    /// The name people may type for one.
    pub singular: Box<str>,
    /// Shorter names people may type.
    pub short_names: Vec<Box<str>>,
    /// Names of sets of resources it belongs to, such as `all`.
    pub categories: Vec<Box<str>>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What may be done with it.
    pub verbs: Verbs,
    /// Its sub-resources.
    pub subresources: Vec<Subresource>,
    /// Where its objects are kept.
    pub table: TableId,
    /// The version in which they are kept.
    pub storage_api_version: Box<str>,
    /// Whether `metadata.generation` counts changes of what is wanted.
    pub generation: bool,
    /// Whether an update without `resourceVersion` is allowed.
    pub unconditional_update: bool,
    /// Whether an update may create the object.
    pub create_on_update: bool,
    /// Whether a delete answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Where it comes from.
    pub origin: Origin,
}

impl Resource {
    /// How failures name it.
    pub fn about(&self) -> About<'_> {
        About { group: &self.group, what: &self.plural }
    }

    /// How validation failures name its kind.
    pub fn about_kind(&self) -> About<'_> {
        // Objects that are kept as another group's are also named as such.
        let group = self.storage_api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let group = if self.custom().is_some() { &self.group } else { group };
        About { group, what: &self.kind }
    }

    /// Whether it has this sub-resource.
    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// The sub-resource of this name.
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|subresource| subresource.name() == name)
    }

    /// Whether this is the built-in resource of this group and plural name.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        matches!(self.origin, Origin::Builtin(_)) && &*self.group == group && &*self.plural == plural
    }

    /// The version of a custom resource, where it is one.
    pub fn custom(&self) -> Option<&Arc<CustomVersion>> {
        match &self.origin {
            Origin::Custom(version) => Some(version),
            Origin::Builtin(_) => None,
        }
    }

    /// What its objects look like.
    pub fn schema(&self) -> &Schema {
        match &self.origin {
            Origin::Custom(version) => &version.schema,
            Origin::Builtin(builtin) => builtin.schema(),
        }
    }

    /// Whether objects are kept in the version they are served in.
    pub fn is_storage_version(&self) -> bool {
        self.api_version == self.storage_api_version
    }

    /// The key of an object in the store.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// What the keys of all objects of a namespace begin with; of all objects when it is empty.
    pub fn prefix(&self, namespace: &str) -> String {
        if namespace.is_empty() || !self.namespaced { String::new() } else { format!("{namespace}/") }
    }
}

/// Group and version as objects name them.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
