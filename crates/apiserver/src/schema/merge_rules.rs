//! Merge strategies of the lists and maps of built-in types, for strategic merge patch and server-side apply.
//!
//! The generated schemas do not contain them, so they are listed here and compared with the `OpenAPI` document of
//! kube-apiserver. A list that is not in the table is atomic. Types are named by API group without the version, since
//! all versions of a type agree.

use super::{ListType, Merge, Strategy};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

use Strategy::{Merge as Merged, Plain, Replace};

/// One row: the list type for apply, the strategy and merge key for patches, and the fields.
struct Row {
    list: List,
    strategy: Strategy,
    patch_key: &'static str,
    /// `group.Type.field`, separated by blanks.
    fields: &'static str,
}

enum List {
    Atomic,
    Set,
    Map(&'static [&'static str]),
}

const ROWS: &[Row] = &[
    Row {
        list: List::Map(&["name"]),
        strategy: Merged,
        patch_key: "name",
        fields: "core.PodSpec.containers core.PodSpec.initContainers core.PodSpec.ephemeralContainers \
            core.PodSpec.volumes core.PodSpec.imagePullSecrets core.PodSpec.schedulingGates \
            core.PodSpec.resourceClaims core.PodStatus.resourceClaimStatuses core.Container.env \
            core.EphemeralContainer.env core.ContainerStatus.allocatedResourcesStatus \
            core.ServiceAccount.secrets storage.CSINodeSpec.drivers \
            admissionregistration.MutatingWebhookConfiguration.webhooks \
            admissionregistration.ValidatingWebhookConfiguration.webhooks \
            admissionregistration.MutatingWebhook.matchConditions \
            admissionregistration.ValidatingWebhook.matchConditions",
    },
    Row {
        list: List::Map(&["name"]),
        strategy: Plain,
        patch_key: "",
        fields: "core.ResourceRequirements.claims",
    },
    Row {
        list: List::Map(&["type"]),
        strategy: Merged,
        patch_key: "type",
        fields: "core.PodStatus.conditions core.NodeStatus.conditions core.NodeStatus.addresses \
            core.NamespaceStatus.conditions core.PersistentVolumeClaimStatus.conditions \
            core.ServiceStatus.conditions apps.DeploymentStatus.conditions apps.ReplicaSetStatus.conditions \
            apps.StatefulSetStatus.conditions apps.DaemonSetStatus.conditions \
            policy.PodDisruptionBudgetStatus.conditions",
    },
    Row {
        list: List::Map(&["type"]),
        strategy: Plain,
        patch_key: "",
        fields: "apiextensions.CustomResourceDefinitionStatus.conditions \
            resource.AllocatedDeviceStatus.conditions",
    },
    Row {
        list: List::Map(&["containerPort", "protocol"]),
        strategy: Merged,
        patch_key: "containerPort",
        fields: "core.Container.ports core.EphemeralContainer.ports",
    },
    Row {
        list: List::Map(&["port", "protocol"]),
        strategy: Merged,
        patch_key: "port",
        fields: "core.ServiceSpec.ports",
    },
    Row {
        list: List::Map(&["mountPath"]),
        strategy: Merged,
        patch_key: "mountPath",
        fields: "core.Container.volumeMounts core.EphemeralContainer.volumeMounts \
            core.ContainerStatus.volumeMounts",
    },
    Row {
        list: List::Map(&["devicePath"]),
        strategy: Merged,
        patch_key: "devicePath",
        fields: "core.Container.volumeDevices core.EphemeralContainer.volumeDevices",
    },
    Row {
        list: List::Map(&["ip"]),
        strategy: Merged,
        patch_key: "ip",
        fields: "core.PodSpec.hostAliases core.PodStatus.podIPs",
    },
    Row { list: List::Atomic, strategy: Merged, patch_key: "ip", fields: "core.PodStatus.hostIPs" },
    Row {
        list: List::Map(&["topologyKey", "whenUnsatisfiable"]),
        strategy: Merged,
        patch_key: "topologyKey",
        fields: "core.PodSpec.topologySpreadConstraints",
    },
    Row {
        list: List::Map(&["uid"]),
        strategy: Merged,
        patch_key: "uid",
        fields: "meta.ObjectMeta.ownerReferences resource.ResourceClaimStatus.reservedFor",
    },
    Row {
        list: List::Map(&["driver", "device", "pool", "shareID"]),
        strategy: Plain,
        patch_key: "",
        fields: "resource.ResourceClaimStatus.devices",
    },
    Row {
        list: List::Map(&["resourceID"]),
        strategy: Plain,
        patch_key: "",
        fields: "core.ResourceStatus.resources",
    },
    Row {
        list: List::Map(&["rule"]),
        strategy: Merged,
        patch_key: "rule",
        fields: "apiextensions.JSONSchemaProps.x-kubernetes-validations",
    },
    Row {
        list: List::Set,
        strategy: Merged,
        patch_key: "",
        fields: "meta.ObjectMeta.finalizers core.NodeSpec.podCIDRs",
    },
    Row {
        list: List::Set,
        strategy: Plain,
        patch_key: "",
        fields: "batch.UncountedTerminatedPods.failed batch.UncountedTerminatedPods.succeeded \
            batch.PodFailurePolicyOnExitCodesRequirement.values core.ContainerRestartRuleOnExitCodes.values \
            core.NodeAllocatableResourceClaimStatus.containers discovery.Endpoint.addresses \
            storage.CSIDriverSpec.volumeLifecycleModes",
    },
    Row { list: List::Atomic, strategy: Merged, patch_key: "type", fields: "batch.JobStatus.conditions" },
    Row {
        list: List::Atomic,
        strategy: Replace,
        patch_key: "",
        fields: "policy.PodDisruptionBudgetSpec.selector",
    },
];

/// Types that apply treats as atomic.
const ATOMIC_TYPES: &str = "core.ConfigMapKeySelector core.FileKeySelector core.LocalObjectReference \
    core.NodeSelector core.NodeSelectorTerm core.ObjectFieldSelector core.ObjectReference \
    core.ResourceFieldSelector core.SecretKeySelector core.SecretReference core.TopologySelectorTerm \
    core.TypedLocalObjectReference meta.LabelSelector meta.OwnerReference rbac.RoleRef rbac.Subject \
    discovery.EndpointPort";

/// Maps that apply treats as atomic.
const ATOMIC_MAPS: &str = "core.PodSpec.nodeSelector core.ServiceSpec.selector node.Scheduling.nodeSelector";

/// Fields of an atomic type that apply merges field by field.
const GRANULAR_FIELDS: &str = "core.PersistentVolumeSpec.claimRef";

/// Key fields that a client may omit, with their defaults.
const KEY_DEFAULTS: [(&str, &str); 2] =
    [("core.ContainerPort.protocol", "TCP"), ("core.ServicePort.protocol", "TCP")];

static FIELDS: LazyLock<FxHashMap<&'static str, Merge>> = LazyLock::new(|| {
    let mut fields = FxHashMap::default();
    for row in ROWS {
        for field in row.fields.split_ascii_whitespace() {
            fields.insert(field, row.merge());
        }
    }
    for field in ATOMIC_MAPS.split_ascii_whitespace() {
        fields.insert(field, Merge { atomic_map: true, ..Merge::default() });
    }
    fields
});

impl Row {
    fn merge(&self) -> Merge {
        let list = match self.list {
            List::Atomic => ListType::Atomic,
            List::Set => ListType::Set,
            List::Map(keys) => ListType::Map(keys.iter().map(|&key| key.to_owned()).collect()),
        };
        let patch_key = (!self.patch_key.is_empty()).then(|| self.patch_key.to_owned());
        Merge { list, atomic_map: false, strategy: self.strategy, patch_key }
    }
}

/// The merge strategy of one field or type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `group.Type.field`, or `group.Type` for an atomic type.
    pub at: &'static str,
    pub merge: Merge,
}

/// The whole table, in source order.
pub fn entries() -> Vec<Entry> {
    let rows = ROWS.iter().flat_map(|row| {
        row.fields.split_ascii_whitespace().map(|at| Entry { at, merge: row.merge() }).collect::<Vec<_>>()
    });
    let atomic = ATOMIC_MAPS.split_ascii_whitespace().chain(ATOMIC_TYPES.split_ascii_whitespace());
    let atomic = atomic.map(|at| Entry { at, merge: Merge { atomic_map: true, ..Merge::default() } });
    rows.chain(atomic).collect()
}

/// The merge strategy of a field; `None` if the table has no entry.
pub fn of_field(definition: &str, field: &str) -> Option<&'static Merge> {
    FIELDS.get(format!("{}.{field}", short_name(definition)?).as_str())
}

/// Whether apply treats values of this type as atomic.
pub fn is_atomic_type(definition: &str) -> bool {
    short_name(definition)
        .is_some_and(|name| ATOMIC_TYPES.split_ascii_whitespace().any(|atomic| atomic == name))
}

/// Whether this field is merged field by field although its type is atomic.
pub fn is_granular(definition: &str, field: &str) -> bool {
    short_name(definition).is_some_and(|name| format!("{name}.{field}") == GRANULAR_FIELDS)
}

/// The default of an omitted key field.
pub fn key_default(definition: &str, field: &str) -> Option<&'static str> {
    let name = format!("{}.{field}", short_name(definition)?);
    KEY_DEFAULTS.iter().find(|(at, _)| *at == name).map(|(_, value)| *value)
}

/// `io.k8s.api.core.v1.PodSpec` → `core.PodSpec`.
pub fn short_name(definition: &str) -> Option<String> {
    let mut parts = definition.rsplit('.');
    let (name, _version, group) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("{group}.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn short_names_omit_the_version() {
        assert_eq!(short_name("io.k8s.api.core.v1.PodSpec").as_deref(), Some("core.PodSpec"));
        assert_eq!(
            short_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").as_deref(),
            Some("meta.ObjectMeta")
        );
    }

    #[test]
    fn containers_are_merged_by_name_and_ports_by_number_and_protocol() {
        let containers = of_field("io.k8s.api.core.v1.PodSpec", "containers").unwrap();
        assert_eq!(containers.list, ListType::Map(vec!["name".to_owned()]));
        assert_eq!(containers.strategy, Strategy::Merge);
        let ports = of_field("io.k8s.api.core.v1.Container", "ports").unwrap();
        assert_eq!(ports.patch_key.as_deref(), Some("containerPort"));
        assert_eq!(key_default("io.k8s.api.core.v1.ContainerPort", "protocol"), Some("TCP"));
        assert!(of_field("io.k8s.api.core.v1.PodSpec", "tolerations").is_none());
        assert!(is_atomic_type("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"));
    }

    #[test]
    fn every_entry_names_an_existing_field() {
        let mut unknown = Vec::new();
        for entry in entries() {
            let mut parts = entry.at.splitn(3, '.');
            let (group, name, field) = (parts.next().unwrap(), parts.next().unwrap(), parts.next());
            let short = format!("{group}.{name}");
            let mut found = builtin::definitions()
                .filter(|definition| short_name(definition.name()) == Some(short.clone()));
            let known = found.any(|definition| {
                field.is_none_or(|field| definition.raw()["properties"].get(field).is_some())
            });
            if !known {
                unknown.push(entry.at);
            }
        }
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn entries_are_unique() {
        let mut seen: Vec<_> = entries().into_iter().map(|entry| entry.at).collect();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
