//! The cache: the object store and the engine's cluster model, kept in sync.

use crate::finding::Finding;
use crate::object::{BindRequest, Kind, Object, Pod, PodGroup};
use crate::settings::Settings;
use crate::store::{Eviction, Store};
use kai_engine::input::Key;
use kai_engine::{Cluster, ClusterState};

#[derive(Default)]
pub struct Cache {
    store: Store,
    cluster: ClusterState,
}

impl Cache {
    pub fn new(settings: Settings) -> Self {
        Self::of(Store::new(settings))
    }

    /// A cache of a store from which no deltas have been drained.
    pub fn of(store: Store) -> Self {
        Self { store, cluster: ClusterState::new() }
    }

    pub fn apply(&mut self, object: impl Into<Object>) {
        self.store.apply(object);
    }

    pub fn delete(&mut self, kind: Kind, key: &Key) {
        self.store.delete(kind, key);
    }

    /// Replaces all objects of a kind, as after a relist.
    pub fn reset(&mut self, kind: Kind, all: Vec<Object>) {
        self.store.reset(kind, all);
    }

    /// Assumes a binding before the watch delivers its bind request.
    pub fn assume_bind(&mut self, request: BindRequest) {
        self.store.apply(request);
    }

    /// Assumes an eviction before the watch delivers the pod's deletion timestamp.
    pub fn assume_eviction(&mut self, pod: Key, eviction: Eviction) {
        self.store.assume_eviction(pod, eviction);
    }

    /// Whether the change of a pod from an earlier object to the stored one can change no decision of the built-in rules.
    pub fn decides_alike(&mut self, key: &Key, before: &Pod) -> bool {
        let inputs = self.store.pod_inputs(key, before);
        inputs.is_some_and(|(before, after)| self.cluster.decides_alike(before, &after))
    }

    /// Whether the change of a group from an earlier object to the stored one changes nothing that a rule reads, such as its
    /// conditions.
    pub fn group_decides_alike(&self, key: &Key, before: &PodGroup) -> bool {
        self.store.has_equal_group_input(key, before)
    }

    /// The cluster model with all pending deltas applied.
    pub fn cluster_mut(&mut self) -> &mut ClusterState {
        let Self { store, cluster } = self;
        store.drain_into(cluster);
        cluster
    }

    /// The cluster model without pending deltas.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    pub fn findings(&self) -> Vec<Finding> {
        self.store.findings()
    }

    /// Bind requests that should be deleted.
    pub fn obsolete_bind_requests(&self) -> Vec<Key> {
        self.store.obsolete_bind_requests()
    }
}
