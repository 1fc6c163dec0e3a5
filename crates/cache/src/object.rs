//! Kubernetes objects, reduced to the fields that a rule or the snapshot format reads.
//!
//! Every kind keeps Kubernetes' JSON form: unknown fields are ignored when reading, and known ones are written back in the
//! same form. [`Objects`] holds all of them.

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
use std::sync::Arc;

/// A kind of object that the cache stores.
pub trait Stored: Sized {
    const KIND: Kind;
    /// Namespace and name; the namespace is empty for cluster-scoped kinds.
    fn key(&self) -> Key;
    /// Drops fields that no rule reads and converts older API versions.
    fn compact(&mut self) {}
}

/// A kind with a list in [`Objects`].
pub trait Listed: Stored {
    fn list_in(objects: &mut Objects) -> &mut BTreeMap<Key, Arc<Self>>;
}

pub fn key_of(meta: &Meta) -> Key {
    Key::new(&*meta.namespace, &*meta.name)
}

/// The effect of storing an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An equal object was stored before.
    None,
    Added,
    /// The previous object.
    Replaced(Object),
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $list:ident, $json:literal;)*) => {
        /// The kinds that the scheduler reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];
            /// The kind as Kubernetes spells it, for messages.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
            /// Whether only the metadata of its objects is kept.
            pub fn is_metadata_only(self) -> bool {
                matches!(self, Kind::ConfigMap | Kind::Namespace)
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
            pub fn kind(&self) -> Kind {
                match self { $(Object::$kind(_) => Kind::$kind,)* }
            }
            pub fn key(&self) -> Key {
                match self { $(Object::$kind(object) => object.key(),)* }
            }
        }

        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Object::$kind(Box::new(object))
            }
        })*

        $(impl Listed for $kind {
            fn list_in(objects: &mut Objects) -> &mut BTreeMap<Key, Arc<Self>> {
                &mut objects.$list
            }
        })*

        /// All objects, by kind and key. A copy shares them.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Objects { $($(#[$doc])* pub $list: BTreeMap<Key, Arc<$kind>>,)* }

        impl Objects {
            pub fn insert(&mut self, object: Object) -> Change {
                let key = object.key();
                match object {
                    $(Object::$kind(mut object) => {
                        object.compact();
                        match self.$list.entry(key) {
                            Entry::Vacant(slot) => {
                                slot.insert(Arc::from(object));
                                Change::Added
                            }
                            Entry::Occupied(slot) if **slot.get() == *object => Change::None,
                            Entry::Occupied(mut slot) => {
                                let old = slot.insert(Arc::from(object));
                                Change::Replaced(Object::$kind(Box::new(Arc::unwrap_or_clone(old))))
                            }
                        }
                    })*
                }
            }
            pub fn remove(&mut self, kind: Kind, key: &Key) -> Option<Object> {
                match kind {
                    $(Kind::$kind => {
                        let removed = self.$list.remove(key)?;
                        Some(Object::$kind(Box::new(Arc::unwrap_or_clone(removed))))
                    })*
                }
            }
            /// Sorted.
            pub fn keys(&self, kind: Kind) -> Vec<Key> {
                match kind { $(Kind::$kind => self.$list.keys().cloned().collect(),)* }
            }
            pub fn contains(&self, kind: Kind, key: &Key) -> bool {
                match kind { $(Kind::$kind => self.$list.contains_key(key),)* }
            }
            pub fn count(&self, kind: Kind) -> usize {
                match kind { $(Kind::$kind => self.$list.len(),)* }
            }
        }
    };
}

kinds! {
    Pod, "Pod", pods, "pods";
    Node, "Node", nodes, "nodes";
    Queue, "Queue", queues, "queues";
    PodGroup, "PodGroup", pod_groups, "podGroups";
    BindRequest, "BindRequest", bind_requests, "bindRequests";
    PriorityClass, "PriorityClass", priority_classes, "priorityClasses";
    ConfigMap, "ConfigMap", config_maps, "configMaps";
    PersistentVolume, "PersistentVolume", persistent_volumes, "persistentVolumes";
    PersistentVolumeClaim, "PersistentVolumeClaim", persistent_volume_claims, "persistentVolumeClaims";
    CsiStorageCapacity, "CSIStorageCapacity", csi_storage_capacities, "csiStorageCapacities";
    StorageClass, "StorageClass", storage_classes, "storageClasses";
    CsiDriver, "CSIDriver", csi_drivers, "csiDrivers";
    ResourceClaim, "ResourceClaim", resource_claims, "resourceClaims";
    ResourceSlice, "ResourceSlice", resource_slices, "resourceSlices";
    DeviceClass, "DeviceClass", device_classes, "deviceClasses";
    Topology, "Topology", topologies, "topologies";
    NodeResourceTopology, "NodeResourceTopology", node_resource_topologies, "nodeResourceTopologies";
    PodDisruptionBudget, "PodDisruptionBudget", pod_disruption_budgets, "podDisruptionBudgets";
    CsiNode, "CSINode", csi_nodes, "csiNodes";
    Namespace, "Namespace", namespaces, "namespaces";
}

impl Objects {
    /// Inserts the objects of a list. Of those with the same key the first one counts; returns the keys of the others, in the
    /// order of the list.
    pub fn insert_listed<T: Listed>(&mut self, listed: Vec<(Key, T)>) -> Vec<Key> {
        let stored = T::list_in(self);
        let arced = listed.into_iter().enumerate().map(|(at, (key, mut object))| {
            object.compact();
            (key, at, Arc::new(object))
        });
        let mut sorted: Vec<(Key, usize, Arc<T>)> = arced.collect();
        // A map is built from a sorted list in a fraction of the time that single insertions take.
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        let mut repeated: Vec<(usize, Key)> = Vec::new();
        sorted.dedup_by(|later, first| {
            let is_repeated = later.0 == first.0;
            if is_repeated {
                repeated.push((later.1, later.0.clone()));
            }
            is_repeated
        });
        if stored.is_empty() {
            *stored = sorted.into_iter().map(|(key, _, object)| (key, object)).collect();
        } else {
            for (key, at, object) in sorted {
                match stored.entry(key) {
                    Entry::Vacant(slot) => {
                        slot.insert(object);
                    }
                    Entry::Occupied(slot) => repeated.push((at, slot.key().clone())),
                }
            }
        }
        repeated.sort_unstable_by_key(|(at, _)| *at);
        repeated.into_iter().map(|(_, key)| key).collect()
    }
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
