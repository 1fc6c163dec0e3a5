//! Kubernetes objects, cut down to the fields that a rule or the snapshot format reads.
//!
//! Every kind keeps Kubernetes' JSON shape: unknown fields are ignored when reading, and what is kept is written back
//! so that other readers of the same form understand it. [`Objects`] is the store of all of them.

mod custom;
pub mod device;
pub mod node;
pub mod policy;
pub mod storage;

pub use device::{DeviceClass, ResourceClaim, ResourceSlice};
pub use kai_api::{BindRequest, Meta, Pod, PodGroup, Queue, Topology};
pub use kai_api::{meta, pod, selector, value};
pub use node::{CsiNode, Node, NodeResourceTopology};
pub use policy::{ConfigMap, Namespace, PodDisruptionBudget, PriorityClass};
pub use storage::{CsiDriver, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass};

use kai_engine::input::Key;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What every object can tell and do.
pub trait Stored: Sized {
    /// Its kind.
    const KIND: Kind;
    /// Namespace and name; the namespace is empty for cluster-scoped kinds.
    fn key(&self) -> Key;
    /// Drops what nothing reads and brings older forms into the current one.
    fn compact(&mut self) {}
}

/// Namespace and name of an object with this metadata.
pub fn key_of(meta: &Meta) -> Key {
    Key::new(&*meta.namespace, &*meta.name)
}

/// What putting an object in changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing: an equal object was there.
    None,
    /// The object is new.
    Added,
    /// This object was there before.
    Replaced(Object),
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $list:ident, $json:literal;)*) => {
        /// The kinds the scheduler reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];
            /// The kind as Kubernetes spells it, for messages.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
            /// The key of its list in a snapshot file.
            pub fn list_key(self) -> &'static str {
                match self { $(Kind::$kind => $json,)* }
            }
        }

        /// An object of any kind.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object { $($(#[$doc])* $kind(Box<$kind>),)* }

        impl Object {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self { $(Object::$kind(_) => Kind::$kind,)* }
            }
            /// Namespace and name.
            pub fn key(&self) -> Key {
                match self { $(Object::$kind(object) => object.key(),)* }
            }
        }

        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Object::$kind(Box::new(object))
            }
        })*

        /// All objects, by kind and key.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Objects { $($(#[$doc])* pub $list: BTreeMap<Key, Box<$kind>>,)* }

        impl Objects {
            /// Puts an object in.
            pub fn insert(&mut self, object: Object) -> Change {
                let key = object.key();
                match object {
                    $(Object::$kind(mut object) => {
                        object.compact();
                        match self.$list.entry(key) {
                            Entry::Vacant(slot) => {
                                slot.insert(object);
                                Change::Added
                            }
                            Entry::Occupied(slot) if *slot.get() == object => Change::None,
                            Entry::Occupied(mut slot) => Change::Replaced(Object::$kind(slot.insert(object))),
                        }
                    })*
                }
            }
            /// Puts an object in unless one of its name is there; false when there is.
            pub fn insert_first(&mut self, object: Object) -> bool {
                let key = object.key();
                match object {
                    $(Object::$kind(mut object) => match self.$list.entry(key) {
                        Entry::Vacant(slot) => {
                            object.compact();
                            slot.insert(object);
                            true
                        }
                        Entry::Occupied(_) => false,
                    })*
                }
            }
            /// Takes an object out.
            pub fn remove(&mut self, kind: Kind, key: &Key) -> Option<Object> {
                match kind { $(Kind::$kind => self.$list.remove(key).map(Object::$kind),)* }
            }
            /// Keys of one kind, in order.
            pub fn keys(&self, kind: Kind) -> Vec<Key> {
                match kind { $(Kind::$kind => self.$list.keys().cloned().collect(),)* }
            }
            /// Whether an object is there.
            pub fn contains(&self, kind: Kind, key: &Key) -> bool {
                match kind { $(Kind::$kind => self.$list.contains_key(key),)* }
            }
            /// Number of objects of one kind.
            pub fn count(&self, kind: Kind) -> usize {
                match kind { $(Kind::$kind => self.$list.len(),)* }
            }
        }
    };
}

kinds! {
    /// A pod.
    Pod, "Pod", pods, "pods";
    /// A node.
    Node, "Node", nodes, "nodes";
    /// A queue.
    Queue, "Queue", queues, "queues";
    /// A pod group.
    PodGroup, "PodGroup", pod_groups, "podGroups";
    /// A bind request.
    BindRequest, "BindRequest", bind_requests, "bindRequests";
    /// A priority class.
    PriorityClass, "PriorityClass", priority_classes, "priorityClasses";
    /// A config map, its data left out.
    ConfigMap, "ConfigMap", config_maps, "configMaps";
    /// A persistent volume.
    PersistentVolume, "PersistentVolume", persistent_volumes, "persistentVolumes";
    /// A claim on a persistent volume.
    PersistentVolumeClaim, "PersistentVolumeClaim", persistent_volume_claims, "persistentVolumeClaims";
    /// Free storage capacity.
    CsiStorageCapacity, "CSIStorageCapacity", csi_storage_capacities, "csiStorageCapacities";
    /// A storage class.
    StorageClass, "StorageClass", storage_classes, "storageClasses";
    /// A storage driver.
    CsiDriver, "CSIDriver", csi_drivers, "csiDrivers";
    /// A claim on devices.
    ResourceClaim, "ResourceClaim", resource_claims, "resourceClaims";
    /// Devices of a pool.
    ResourceSlice, "ResourceSlice", resource_slices, "resourceSlices";
    /// A device class.
    DeviceClass, "DeviceClass", device_classes, "deviceClasses";
    /// A topology.
    Topology, "Topology", topologies, "topologies";
    /// NUMA zones of a node.
    NodeResourceTopology, "NodeResourceTopology", node_resource_topologies, "nodeResourceTopologies";
    /// A disruption budget.
    PodDisruptionBudget, "PodDisruptionBudget", pod_disruption_budgets, "podDisruptionBudgets";
    /// Storage drivers of a node.
    CsiNode, "CSINode", csi_nodes, "csiNodes";
    /// A namespace.
    Namespace, "Namespace", namespaces, "namespaces";
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! stored {
    ($($kind:ident $({ $compact:ident })?)*) => {
        $(impl Stored for $kind {
            const KIND: Kind = Kind::$kind;
            fn key(&self) -> Key {
                key_of(&self.metadata)
            }
            $(fn compact(&mut self) {
                $kind::$compact(self);
            })?
        })*
    };
}

stored! {
    Pod { compact } Node PriorityClass ConfigMap PersistentVolume PersistentVolumeClaim CsiStorageCapacity
    StorageClass CsiDriver ResourceClaim { normalize } ResourceSlice { normalize } DeviceClass NodeResourceTopology
    PodDisruptionBudget CsiNode Namespace
}

macro_rules! stored_custom {
    ($($kind:ident)*) => {
        $(impl Stored for $kind {
            const KIND: Kind = Kind::$kind;
            fn key(&self) -> Key {
                Key::new(
                    self.metadata.namespace.as_deref().unwrap_or_default(),
                    self.metadata.name.as_deref().unwrap_or_default(),
                )
            }
            fn compact(&mut self) {
                custom::compact_meta(&mut self.metadata);
                custom::Compact::compact(self);
            }
        })*
    };
}

stored_custom! { Queue PodGroup BindRequest Topology }
