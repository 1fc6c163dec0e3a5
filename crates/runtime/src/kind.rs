//! Identifies API resources and the objects in them.
//!
//! Group, version, kind, plural and scope come from the resource traits of `kube` and `k8s-openapi`, which the custom
//! resources of `kai-api` implement too. The constants are for dynamic access to built-in kinds.

use crate::url;
use k8s_openapi::api::{
    admissionregistration, apps, batch, coordination, core, policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kai_object as object;
pub use kai_units::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Group, version, kind, plural and scope of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKind {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    pub namespaced: bool,
}

/// The scope of a resource that is known at compile time.
pub trait Scope {
    const NAMESPACED: bool;
}

impl Scope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// A typed API object: any kind of `k8s-openapi` and any custom resource derived with `kube`.
pub trait ApiObject:
    kube::Resource<DynamicType = (), Scope: Scope>
    + Clone
    + fmt::Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<T> ApiObject for T where
    T: kube::Resource<DynamicType = (), Scope: Scope>
        + Clone
        + fmt::Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// The resource of a built-in kind, for use in constants.
pub const fn builtin<T: k8s_openapi::Resource<Scope: Scope>>() -> ResourceKind {
    ResourceKind {
        group: Cow::Borrowed(T::GROUP),
        version: Cow::Borrowed(T::VERSION),
        kind: Cow::Borrowed(T::KIND),
        plural: Cow::Borrowed(T::URL_PATH_SEGMENT),
        namespaced: <T::Scope as Scope>::NAMESPACED,
    }
}

/// A resource for which there is no Rust type with a resource trait.
pub const fn untyped(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> ResourceKind {
    ResourceKind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        kind: Cow::Borrowed(kind),
        plural: Cow::Borrowed(plural),
        namespaced,
    }
}

pub const POD: ResourceKind = builtin::<core::v1::Pod>();
pub const NODE: ResourceKind = builtin::<core::v1::Node>();
pub const NAMESPACE: ResourceKind = builtin::<core::v1::Namespace>();
pub const SERVICE_ACCOUNT: ResourceKind = builtin::<core::v1::ServiceAccount>();
pub const EVENT: ResourceKind = builtin::<core::v1::Event>();
pub const CONFIG_MAP: ResourceKind = builtin::<core::v1::ConfigMap>();
pub const PERSISTENT_VOLUME_CLAIM: ResourceKind = builtin::<core::v1::PersistentVolumeClaim>();
pub const PERSISTENT_VOLUME: ResourceKind = builtin::<core::v1::PersistentVolume>();
pub const STORAGE_CLASS: ResourceKind = builtin::<storage::v1::StorageClass>();
pub const PRIORITY_CLASS: ResourceKind = builtin::<scheduling::v1::PriorityClass>();
pub const JOB: ResourceKind = builtin::<batch::v1::Job>();
pub const CRON_JOB: ResourceKind = builtin::<batch::v1::CronJob>();
pub const REPLICA_SET: ResourceKind = builtin::<apps::v1::ReplicaSet>();
pub const DEPLOYMENT: ResourceKind = builtin::<apps::v1::Deployment>();
pub const STATEFUL_SET: ResourceKind = builtin::<apps::v1::StatefulSet>();
pub const DAEMON_SET: ResourceKind = builtin::<apps::v1::DaemonSet>();
pub const CONTROLLER_REVISION: ResourceKind = builtin::<apps::v1::ControllerRevision>();
pub const LEASE: ResourceKind = builtin::<coordination::v1::Lease>();
pub const POD_DISRUPTION_BUDGET: ResourceKind = builtin::<policy::v1::PodDisruptionBudget>();
pub const RESOURCE_CLAIM: ResourceKind = builtin::<resource::v1::ResourceClaim>();
pub const RESOURCE_CLAIM_TEMPLATE: ResourceKind = builtin::<resource::v1::ResourceClaimTemplate>();
pub const RESOURCE_SLICE: ResourceKind = builtin::<resource::v1::ResourceSlice>();
pub const DEVICE_CLASS: ResourceKind = builtin::<resource::v1::DeviceClass>();
pub const CUSTOM_RESOURCE_DEFINITION: ResourceKind = builtin::<apiextensions::v1::CustomResourceDefinition>();
pub const CLUSTER_ROLE: ResourceKind = builtin::<rbac::v1::ClusterRole>();
pub const CLUSTER_ROLE_BINDING: ResourceKind = builtin::<rbac::v1::ClusterRoleBinding>();
pub const ROLE: ResourceKind = builtin::<rbac::v1::Role>();
pub const ROLE_BINDING: ResourceKind = builtin::<rbac::v1::RoleBinding>();
pub const MUTATING_WEBHOOK_CONFIGURATION: ResourceKind =
    builtin::<admissionregistration::v1::MutatingWebhookConfiguration>();
pub const VALIDATING_WEBHOOK_CONFIGURATION: ResourceKind =
    builtin::<admissionregistration::v1::ValidatingWebhookConfiguration>();
/// NUMA zones of nodes (`noderesourcetopology-api`), which `k8s-openapi` does not have.
pub const NODE_RESOURCE_TOPOLOGY: ResourceKind =
    untyped("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology", "noderesourcetopologies", false);

impl ResourceKind {
    pub fn of<T: ApiObject>() -> Self {
        Self {
            group: T::group(&()),
            version: T::version(&()),
            kind: T::kind(&()),
            plural: T::plural(&()),
            namespaced: <T::Scope as Scope>::NAMESPACED,
        }
    }

    /// Group and version as the field `apiVersion` has them.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection, in one namespace or, with an empty namespace, in all.
    pub fn path(&self, namespace: &str) -> String {
        let (root, plural) = (group_path(&self.group, &self.version), url::segment(&self.plural));
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/namespaces/{}/{plural}", url::segment(namespace))
        } else {
            format!("{root}/{plural}")
        }
    }

    pub fn path_of(&self, key: &Key) -> String {
        format!("{}/{}", self.path(&key.namespace), url::segment(&key.name))
    }
}

/// The path of a group version, where discovery lists its resources.
pub fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{}", url::segment(version))
    } else {
        format!("/apis/{}/{}", url::segment(group), url::segment(version))
    }
}

/// The key of an untyped object.
pub fn key_of(object: &Value) -> Key {
    Key::new(object::namespace(object), object::name(object))
}

pub fn key_of_typed<T: kube::Resource>(object: &T) -> Key {
    let meta = object.meta();
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_namespace() {
        assert_eq!(POD.path_of(&Key::new("a", "b")), "/api/v1/namespaces/a/pods/b");
        assert_eq!(JOB.path(""), "/apis/batch/v1/jobs");
        assert_eq!(POD.path_of(&Key::new("a/..", "x y?")), "/api/v1/namespaces/a%2F../pods/x%20y%3F");
        assert_eq!(NODE.path_of(&Key::new("", "n1")), "/api/v1/nodes/n1");
    }

    #[test]
    fn constants_and_typed_lookup_agree() {
        assert_eq!(ResourceKind::of::<core::v1::Pod>(), POD);
        assert_eq!(ResourceKind::of::<core::v1::Node>(), NODE);
        assert_eq!(ResourceKind::of::<resource::v1::ResourceClaim>(), RESOURCE_CLAIM);
    }
}
