//! Names the resources that clients in this crate read and write, and the objects in them.

use kai_object as object;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A resource: what its objects are called and where the API keeps them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The group; empty for the core.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// What objects call themselves.
    pub kind: Cow<'static, str>,
    /// What paths call them.
    pub plural: Cow<'static, str>,
    /// Whether they live in namespaces.
    pub namespaced: bool,
}

/// A resource; for those that only one component knows.
pub const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        kind: Cow::Borrowed(kind),
        plural: Cow::Borrowed(plural),
        namespaced,
    }
}

/// Pods.
pub const POD: Kind = kind("", "v1", "Pod", "pods", true);
/// Nodes.
pub const NODE: Kind = kind("", "v1", "Node", "nodes", false);
/// Namespaces.
pub const NAMESPACE: Kind = kind("", "v1", "Namespace", "namespaces", false);
/// Service accounts.
pub const SERVICE_ACCOUNT: Kind = kind("", "v1", "ServiceAccount", "serviceaccounts", true);
/// Events.
pub const EVENT: Kind = kind("", "v1", "Event", "events", true);
/// Maps of configuration.
pub const CONFIG_MAP: Kind = kind("", "v1", "ConfigMap", "configmaps", true);
/// Claims on storage.
pub const VOLUME_CLAIM: Kind = kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true);
/// Storage.
pub const VOLUME: Kind = kind("", "v1", "PersistentVolume", "persistentvolumes", false);
/// Classes of storage.
pub const STORAGE_CLASS: Kind = kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", false);
/// Priority classes.
pub const PRIORITY_CLASS: Kind = kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);
/// Jobs.
pub const JOB: Kind = kind("batch", "v1", "Job", "jobs", true);
/// Cron jobs.
pub const CRON_JOB: Kind = kind("batch", "v1", "CronJob", "cronjobs", true);
/// Replica sets.
pub const REPLICA_SET: Kind = kind("apps", "v1", "ReplicaSet", "replicasets", true);
/// Deployments.
pub const DEPLOYMENT: Kind = kind("apps", "v1", "Deployment", "deployments", true);
/// Stateful sets.
pub const STATEFUL_SET: Kind = kind("apps", "v1", "StatefulSet", "statefulsets", true);
/// Daemon sets.
pub const DAEMON_SET: Kind = kind("apps", "v1", "DaemonSet", "daemonsets", true);
/// Versions of the templates of stateful and daemon sets.
pub const CONTROLLER_REVISION: Kind = kind("apps", "v1", "ControllerRevision", "controllerrevisions", true);
/// Leases.
pub const LEASE: Kind = kind("coordination.k8s.io", "v1", "Lease", "leases", true);
/// Budgets of disruption.
pub const POD_DISRUPTION_BUDGET: Kind =
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);
/// Claims on devices.
pub const RESOURCE_CLAIM: Kind = kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true);
/// Templates of claims on devices.
pub const RESOURCE_CLAIM_TEMPLATE: Kind =
    kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", true);
/// Devices of nodes.
pub const RESOURCE_SLICE: Kind = kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false);
/// Classes of devices.
pub const DEVICE_CLASS: Kind = kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", false);
/// Definitions of custom resources.
pub const DEFINITION: Kind =
    kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false);
/// NUMA zones of nodes, as the topology exporters publish them.
pub const NODE_RESOURCE_TOPOLOGY: Kind =
    kind("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology", "noderesourcetopologies", false);

impl Kind {
    /// Group and version, as objects write them.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of all objects, or of those in a namespace.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let version = self.api_version();
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/{version}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{root}/{version}/{}", self.plural)
        }
    }

    /// The path of one object.
    pub fn path_of(&self, key: &Key) -> String {
        format!("{}/{}", self.path(&key.namespace), key.name)
    }
}

/// Which object of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace; empty where there is none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object.
    pub fn of(object: &Value) -> Self {
        Self::new(object::namespace(object), object::name(object))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_namespace() {
        assert_eq!(POD.path_of(&Key::new("a", "b")), "/api/v1/namespaces/a/pods/b");
        assert_eq!(JOB.path(""), "/apis/batch/v1/jobs");
        assert_eq!(NODE.path_of(&Key::new("", "n1")), "/api/v1/nodes/n1");
    }
}
