//! The cache: the store and the engine's cluster, kept in step.

use crate::finding::Finding;
use crate::object::{BindRequest, Kind, Object};
use crate::settings::Settings;
use crate::store::{Eviction, Store};
use kai_engine::input::Key;
use kai_engine::{Cluster, ClusterState};

/// Objects in, an engine cluster out.
#[derive(Default)]
pub struct Cache {
    store: Store,
    cluster: ClusterState,
}

impl Cache {
    /// An empty cache.
    pub fn new(settings: Settings) -> Self {
        Self::of(Store::new(settings))
    }

    /// A cache of everything in a store; nothing may have been drained from it.
    pub fn of(store: Store) -> Self {
        Self { store, cluster: ClusterState::new() }
    }

    /// Puts an object in, or replaces it.
    pub fn apply(&mut self, object: impl Into<Object>) {
        self.store.apply(object);
    }

    /// Takes an object out.
    pub fn delete(&mut self, kind: Kind, key: &Key) {
        self.store.delete(kind, key);
    }

    /// Makes these all the objects of a kind.
    pub fn reset(&mut self, kind: Kind, all: Vec<Object>) {
        self.store.reset(kind, all);
    }

    /// Counts a binding as under way before the API shows its request.
    pub fn assume_bind(&mut self, request: BindRequest) {
        self.store.apply(request);
    }

    /// Counts a pod as leaving before its object says so.
    pub fn assume_eviction(&mut self, pod: Key, eviction: Eviction) {
        self.store.assume_eviction(pod, eviction);
    }

    /// The engine's cluster, brought up to date.
    pub fn cluster_mut(&mut self) -> &mut ClusterState {
        let Self { store, cluster } = self;
        store.drain_into(cluster);
        cluster
    }

    /// The engine's cluster as it was when it was last brought up to date.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The objects behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The objects behind it, for what has no method here.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Everything odd about the objects.
    pub fn findings(&self) -> Vec<Finding> {
        self.store.findings()
    }

    /// Bind requests that are of no more use and should be deleted.
    pub fn obsolete_bind_requests(&self) -> Vec<Key> {
        self.store.obsolete_bind_requests()
    }
}
