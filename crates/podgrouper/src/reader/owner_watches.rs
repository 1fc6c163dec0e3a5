//! Watches the metadata of the kinds that own pods, so that a change of a workload reaches its group at once.
//!
//! There is one watch for each kind with cached objects. Nothing is stored: what an event shows is compared with the cached
//! object, and a difference makes the reader read that object again. A role that does not grant `list` and `watch` leaves the
//! reader to its intervals.
//!
//! Labels, annotations and owners are in the metadata, and a change of the spec shows in the generation. A change of the status
//! shows nowhere, so that kinds whose rule reads it are read at intervals too.

use super::{INTERVAL_MAX, Id, Reader, full_name, is_status_read};
use crate::objects::{MetaExt, OwnerObject, key_of};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, POD, ResourceKind};
use kai_runtime::watch::{Need, Shape, Source, WatchEvent, list_and_watch_as};
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use tokio::sync::Notify;

/// The state of the watches.
#[derive(Debug, Default)]
pub(super) struct OwnerWatches {
    kinds: Mutex<BTreeMap<ResourceKind, State>>,
    has_new_kind: Notify,
    changed: Mutex<BTreeSet<Id>>,
    has_changed: Notify,
    /// Objects that are being read for the first time, with the fingerprint of an event that came meanwhile.
    first_reads: Mutex<BTreeMap<Id, Option<u64>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Wanted,
    Started,
    /// The kind was listed, and every change since then was delivered or will be.
    Listed,
    Denied,
}

/// An object of a watched kind in a list or an event.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    key: Key,
    fingerprint: u64,
}

#[derive(Deserialize)]
struct Metadata {
    metadata: ObjectMeta,
}

impl From<Metadata> for Observed {
    fn from(Metadata { metadata }: Metadata) -> Self {
        Self { key: key_of(&metadata), fingerprint: fingerprint(&metadata) }
    }
}

/// A hash of the metadata that rules read, and of the generation.
fn fingerprint(metadata: &ObjectMeta) -> u64 {
    let mut hasher = FxHasher::default();
    (&metadata.uid, metadata.generation, &metadata.labels, &metadata.annotations).hash(&mut hasher);
    for owner in metadata.owners() {
        (&owner.api_version, &owner.kind, &owner.name, &owner.uid, owner.controller).hash(&mut hasher);
    }
    hasher.finish()
}

/// Registers the first read of an object, from before the request until the object is cached.
pub(super) struct FirstRead<'a> {
    watches: &'a OwnerWatches,
    id: Id,
}

impl FirstRead<'_> {
    /// The object is about to be cached. A different state in an event since the request may be a later one.
    pub(super) fn end(self, object: &OwnerObject) {
        let observed = self.watches.first_reads.lock().get(&self.id).copied().flatten();
        if observed.is_some_and(|observed| observed != fingerprint(&object.metadata)) {
            self.watches.note_changed([self.id.clone()]);
        }
    }
}

impl Drop for FirstRead<'_> {
    fn drop(&mut self) {
        self.watches.first_reads.lock().remove(&self.id);
    }
}

impl OwnerWatches {
    pub(super) fn first_read(&self, id: &Id) -> FirstRead<'_> {
        self.first_reads.lock().insert(id.clone(), None);
        FirstRead { watches: self, id: id.clone() }
    }

    /// Has the kind watched. Pods are watched by the grouper itself, and cluster-scoped owners of pods are nodes, which have no
    /// settings.
    pub(super) fn want(&self, kind: &ResourceKind) {
        if !kind.namespaced || *kind == POD {
            return;
        }
        let mut kinds = self.kinds.lock();
        if !kinds.contains_key(kind) {
            kinds.insert(kind.clone(), State::Wanted);
            self.has_new_kind.notify_one();
        }
    }

    /// Whether every change of an object that rules read is delivered.
    pub(super) fn shows_changes_of(&self, kind: &ResourceKind, object: &OwnerObject) -> bool {
        object.metadata.generation.is_some()
            && !is_status_read(object)
            && self.kinds.lock().get(kind) == Some(&State::Listed)
    }

    /// Waits until an object has changed.
    pub(super) async fn changed(&self) {
        self.has_changed.notified().await;
    }

    pub(super) fn take_changed(&self) -> BTreeSet<Id> {
        std::mem::take(&mut *self.changed.lock())
    }

    fn note_changed(&self, ids: impl IntoIterator<Item = Id>) {
        let mut changed = self.changed.lock();
        let before = changed.len();
        changed.extend(ids);
        if changed.len() > before {
            self.has_changed.notify_one();
        }
    }

    fn take_wanted(&self) -> Vec<ResourceKind> {
        let mut kinds = self.kinds.lock();
        let wanted = kinds.iter_mut().filter(|(_, state)| **state == State::Wanted);
        wanted
            .map(|(kind, state)| {
                *state = State::Started;
                kind.clone()
            })
            .collect()
    }
}

impl Reader {
    /// Watches the kinds of cached objects. Never returns.
    pub async fn watch_owners(&self) {
        let mut watches = FuturesUnordered::new();
        loop {
            watches.extend(self.watches.take_wanted().into_iter().map(|kind| self.watch_kind(kind)));
            tokio::select! {
                biased;
                Some(()) = watches.next() => {}
                () = self.watches.has_new_kind.notified() => {}
            }
        }
    }

    /// Watches a kind until no object of it is cached.
    async fn watch_kind(&self, kind: ResourceKind) {
        let source = Source { need: Need::Optional, shape: Shape::Metadata, ..Source::all(kind.clone()) };
        // The process is ready without it: objects are then read at intervals.
        let health = Health::default().watch(&full_name(&kind));
        let handle = |event| self.observe(&kind, event);
        tokio::select! {
            () = list_and_watch_as(&self.api, &source, &health, |object: Metadata| Observed::from(object), handle) => {}
            () = self.until_unused(&kind) => {}
        }
        self.watches.kinds.lock().remove(&kind);
    }

    async fn until_unused(&self, kind: &ResourceKind) {
        loop {
            tokio::time::sleep(INTERVAL_MAX).await;
            if !self.cache.lock().values().any(|cached| *cached.resource == *kind) {
                return;
            }
        }
    }

    fn observe(&self, kind: &ResourceKind, event: WatchEvent<Observed>) {
        match event {
            WatchEvent::Listed(objects, _) => {
                self.watches.kinds.lock().insert(kind.clone(), State::Listed);
                self.observe_list(kind, objects);
            }
            WatchEvent::Applied(object) => self.observe_object(kind, &object),
            WatchEvent::Deleted(Observed { key, .. }) => {
                let id = id_of(kind, &key);
                if self.cache.lock().contains_key(&id) {
                    self.watches.note_changed([id]);
                }
            }
            // Metadata that does not deserialise.
            WatchEvent::Invalid(object) => self.watches.note_changed([id_of(kind, &object.key)]),
            WatchEvent::Denied => {
                self.watches.kinds.lock().insert(kind.clone(), State::Denied);
            }
        }
    }

    fn observe_list(&self, kind: &ResourceKind, objects: Vec<Observed>) {
        let listed: BTreeMap<Key, u64> =
            objects.into_iter().map(|object| (object.key, object.fingerprint)).collect();
        let cache = self.cache.lock();
        let of_kind = cache.iter().filter(|(_, cached)| *cached.resource == *kind);
        let differs = |object: &OwnerObject| {
            let metadata = &object.metadata;
            listed.get(&key_of(metadata)) != Some(&fingerprint(metadata))
        };
        let changed: Vec<Id> =
            of_kind.filter(|(id, cached)| differs(&cached.object(id))).map(|(id, _)| id.clone()).collect();
        drop(cache);
        self.watches.note_changed(changed);
    }

    fn observe_object(&self, kind: &ResourceKind, object: &Observed) {
        let id = id_of(kind, &object.key);
        if let Some(observed) = self.watches.first_reads.lock().get_mut(&id) {
            *observed = Some(object.fingerprint);
        }
        let cached = self.cache.lock().get(&id).map(|cached| fingerprint(&cached.object(&id).metadata));
        if cached.is_some_and(|cached| cached != object.fingerprint) {
            self.watches.note_changed([id]);
        }
    }
}

/// How the cache identifies an object of a kind.
fn id_of(kind: &ResourceKind, key: &Key) -> Id {
    Id::new(&key.namespace, &kind.api_version(), &kind.kind, &key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(generation: i64) -> OwnerObject {
        let metadata = json!({"namespace": "a", "name": "train", "uid": "u", "generation": generation});
        serde_json::from_value(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}))
            .unwrap()
    }

    #[test]
    fn object_that_changes_during_its_first_read_is_read_again() {
        let id = Id::new("a", "batch/v1", "Job", "train");
        for (generation, changed) in [(1, BTreeSet::new()), (2, BTreeSet::from([id.clone()]))] {
            let watches = OwnerWatches::default();
            let read = watches.first_read(&id);
            let observed = fingerprint(&object(generation).metadata);
            watches.first_reads.lock().insert(id.clone(), Some(observed));
            read.end(&object(1));
            assert_eq!(watches.take_changed(), changed);
            assert!(watches.first_reads.lock().is_empty());
        }
    }
}
