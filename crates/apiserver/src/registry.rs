//! The registry of served resources: names, verbs, subresources and storage.
//!
//! Built-in resources come from a table ([`builtin`]); `CustomResourceDefinition`s add more at run time. A request uses
//! one [`Catalog`], so that definitions do not change while it runs.

pub mod builtin;
pub mod convert;

mod catalog;

pub use builtin::Builtin;
pub(crate) use catalog::version_rank;
pub use catalog::{Catalog, Group, Registry};

use crate::crd::CustomVersion;
use crate::schema::Schema;
use crate::status_error::QualifiedName;
use crate::store::TableId;
use std::sync::Arc;

/// The verbs of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    All,
    NoDeleteCollection,
    /// A review, which is created and not stored.
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

    pub fn allow(self, verb: &str) -> bool {
        self.names().contains(&verb)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subresource {
    Binding,
    EphemeralContainers,
    Eviction,
    Finalize,
    Log,
    Resize,
    Scale,
    Status,
    Token,
}

impl Subresource {
    /// The last segment of the path.
    pub fn name(self) -> &'static str {
        match self {
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
            Self::EphemeralContainers | Self::Resize | Self::Scale | Self::Status => {
                &["get", "patch", "update"]
            }
        }
    }

    /// Group, version and kind of its objects, if they differ from those of the resource.
    pub fn own_kind(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Binding => Some(("", "v1", "Binding")),
            Self::Eviction => Some(("policy", "v1", "Eviction")),
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
            Self::EphemeralContainers | Self::Finalize | Self::Log | Self::Resize | Self::Status => None,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Origin {
    Builtin(&'static Builtin),
    Custom(Arc<CustomVersion>),
}

/// One resource in one version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Box<str>,
    pub version: Box<str>,
    /// `group/version`, or `version` in the core group.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub list_kind: Box<str>,
    /// The name in paths.
    pub plural: Box<str>,
    pub singular: Box<str>,
    pub short_names: Vec<Box<str>>,
    /// Such as `all`.
    pub categories: Vec<Box<str>>,
    pub namespaced: bool,
    pub verbs: Verbs,
    pub subresources: Vec<Subresource>,
    /// The table of the store that holds the objects.
    pub table: TableId,
    /// The API version in which objects are stored.
    pub storage_api_version: Box<str>,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// Whether an update without `resourceVersion` is allowed (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// Whether an update may create the object (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether a delete returns the object instead of a `Status` (`ReturnDeletedObject`).
    pub returns_deleted: bool,
    pub origin: Origin,
}

impl Resource {
    /// The resource as errors name it.
    pub fn qualified_resource(&self) -> QualifiedName<'_> {
        QualifiedName { group: &self.group, name: &self.plural }
    }

    /// The kind as validation errors name it.
    pub fn qualified_kind(&self) -> QualifiedName<'_> {
        // Objects that are stored in another group are also reported in that group.
        let group = self.storage_api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let group = if self.custom().is_some() { &self.group } else { group };
        QualifiedName { group, name: &self.kind }
    }

    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|subresource| subresource.name() == name)
    }

    /// Whether this is the built-in resource with this group and plural name.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        matches!(self.origin, Origin::Builtin(_)) && &*self.group == group && &*self.plural == plural
    }

    pub fn custom(&self) -> Option<&Arc<CustomVersion>> {
        match &self.origin {
            Origin::Custom(version) => Some(version),
            Origin::Builtin(_) => None,
        }
    }

    pub fn schema(&self) -> &Schema {
        match &self.origin {
            Origin::Custom(version) => &version.schema,
            Origin::Builtin(builtin) => builtin.schema(),
        }
    }

    pub fn is_storage_version(&self) -> bool {
        self.api_version == self.storage_api_version
    }

    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// The key prefix of all objects of a namespace; empty for all namespaces.
    pub fn prefix(&self, namespace: &str) -> String {
        if namespace.is_empty() || !self.namespaced { String::new() } else { format!("{namespace}/") }
    }
}

/// `group/version`, or `version` in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
