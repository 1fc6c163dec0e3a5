//! The store of one informer: objects by key and by index, and the objects that do not deserialise.

use crate::invalid::InvalidObject;
use crate::kind::Key;
use crate::watch::WatchEvent;
use crate::watch_value::WatchValue;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Called with the state of a changed object before and after the change, until it ends its subscription.
pub type Handler<T> = Box<dyn Fn(&T) -> Subscription + Send + Sync>;

/// Whether a handler is called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    Continue,
    End,
}

/// The values under which an index lists an object.
pub type IndexFn<T> = fn(&T) -> Vec<String>;

/// What identifies a state of an object.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    pub key: ObjectKey<'a>,
    pub uid: &'a str,
    pub resource_version: &'a str,
}

/// The key of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectKey<'a> {
    Parts {
        namespace: &'a str,
        name: &'a str,
    },
    /// The object holds its key, and the store uses the same one; so should every state of the object.
    Shared(&'a Arc<Key>),
}

pub type IdentityFn<T> = for<'a> fn(&'a T) -> Identity<'a>;

impl<'a> ObjectKey<'a> {
    fn parts(self) -> (&'a str, &'a str) {
        match self {
            Self::Parts { namespace, name } => (namespace, name),
            Self::Shared(key) => parts(key),
        }
    }

    fn to_key(self) -> Arc<Key> {
        match self {
            Self::Parts { namespace, name } => Arc::new(Key::new(namespace, name)),
            Self::Shared(key) => Arc::clone(key),
        }
    }
}

fn parts(key: &Key) -> (&str, &str) {
    (&key.namespace, &key.name)
}

impl Identity<'_> {
    /// Resource versions are compared as numbers (KEP-5504).
    fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

/// The stored objects of one resource.
pub struct Store<T> {
    plural: String,
    identity: IdentityFn<T>,
    trim: fn(&mut T),
    objects: RwLock<Objects<T>>,
    handlers: Mutex<Vec<Handler<T>>>,
    synced: WatchValue<bool>,
}

impl<T> std::fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("resource", &self.plural).finish_non_exhaustive()
    }
}

struct Objects<T> {
    /// The indices share the keys.
    by_key: BTreeMap<Arc<Key>, Arc<T>>,
    indices: Vec<Index<T>>,
    /// Uids of objects whose deletion was confirmed to this client, until the watch delivers it: earlier events of them are
    /// ignored.
    deleted: FxHashSet<String>,
    invalid: BTreeMap<Key, InvalidObject>,
    /// The resource version up to which list and watch have delivered everything.
    delivered: u64,
}

struct Index<T> {
    name: &'static str,
    values: IndexFn<T>,
    keys: BTreeMap<String, BTreeSet<Arc<Key>>>,
}

/// Where a state comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A list at this resource version.
    List {
        version: u64,
        /// The list is older than what was delivered before: the server was restored from a backup.
        rewound: bool,
    },
    /// An event of the watch, or the response to a request.
    EventOrResponse,
}

enum Inserted<T> {
    /// A newer state is known.
    Stale,
    /// The state before.
    After(Option<Arc<T>>),
}

impl<T> Index<T> {
    fn replace(&mut self, key: &Arc<Key>, before: Option<&T>, object: &T) {
        let values = (self.values)(object);
        let known = before.map(self.values);
        if known.as_ref() == Some(&values) {
            return;
        }
        self.unlist(key, known.unwrap_or_default());
        for value in values {
            self.keys.entry(value).or_default().insert(Arc::clone(key));
        }
    }

    fn remove(&mut self, key: &Key, object: &T) {
        self.unlist(key, (self.values)(object));
    }

    fn unlist(&mut self, key: &Key, values: Vec<String>) {
        for value in values {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

impl<T> Objects<T> {
    fn insert(&mut self, identity: IdentityFn<T>, object: Arc<T>, origin: Origin) -> Inserted<T> {
        let new = identity(&object);
        let key = new.key.to_key();
        let (key, known) = match self.by_key.get_key_value(&*key) {
            Some((key, known)) => (Arc::clone(key), Some(Arc::clone(known))),
            None => (key, None),
        };
        let stale = known.as_ref().is_some_and(|known| match origin {
            Origin::EventOrResponse => identity(known).version() >= new.version(),
            // A list is right about everything up to its version. An object may be older there than the known one: it was
            // restored from a backup.
            Origin::List { version, rewound } => {
                let known = identity(known);
                !rewound && (known.version() == new.version() || known.version() > version)
            }
        });
        // A response that arrives after later events: the object was deleted since.
        let is_unknown = known.as_ref().is_none_or(|known| identity(known).uid != new.uid);
        let outdated =
            origin == Origin::EventOrResponse && is_unknown && (1..=self.delivered).contains(&new.version());
        if stale || outdated || self.deleted.contains(new.uid) {
            return Inserted::Stale;
        }
        self.invalid.remove(&*key);
        for index in &mut self.indices {
            index.replace(&key, known.as_deref(), &object);
        }
        self.by_key.insert(key, object);
        Inserted::After(known)
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<T>> {
        let removed = self.by_key.remove(key)?;
        for index in &mut self.indices {
            index.remove(key, &removed);
        }
        Some(removed)
    }
}

impl<T> Store<T> {
    pub(super) fn new(
        plural: &str,
        identity: IdentityFn<T>,
        trim: fn(&mut T),
        indexers: Vec<(&'static str, IndexFn<T>)>,
    ) -> Self {
        let index = |(name, values)| Index { name, values, keys: BTreeMap::new() };
        Self {
            plural: plural.to_owned(),
            identity,
            trim,
            objects: RwLock::new(Objects {
                by_key: BTreeMap::new(),
                indices: indexers.into_iter().map(index).collect(),
                deleted: FxHashSet::default(),
                invalid: BTreeMap::new(),
                delivered: 0,
            }),
            handlers: Mutex::default(),
            synced: WatchValue::new(false),
        }
    }

    pub(super) fn synced(&self) -> &WatchValue<bool> {
        &self.synced
    }

    /// Calls `handler` with the state before and after every change.
    pub fn subscribe(&self, handler: Handler<T>) {
        self.handlers.lock().push(handler);
    }

    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.objects.read().by_key.get(key).map(Arc::clone)
    }

    /// All objects, by key.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.objects.read().by_key.values().map(Arc::clone).collect()
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let first = Key::new(namespace, "");
        let objects = self.objects.read();
        let range = objects.by_key.range::<Key, _>(&first..);
        range
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The objects that an index lists under a value, by key.
    #[expect(clippy::panic, reason = "a defect of the component that asks, whatever the objects are")]
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<T>> {
        let objects = self.objects.read();
        let found = objects.indices.iter().find(|known| known.name == index);
        let found = found.unwrap_or_else(|| panic!("{} have no index `{index}`", self.plural));
        let keys = found.keys.get(value).into_iter().flatten();
        keys.filter_map(|key| objects.by_key.get(&**key)).map(Arc::clone).collect()
    }

    /// Why the object of this key does not deserialise; none for a valid or missing object.
    pub fn invalid(&self, key: &Key) -> Option<InvalidObject> {
        self.objects.read().invalid.get(key).cloned()
    }

    /// Stores an object as the server returned it, unless a newer state is known.
    pub fn update(&self, object: T) {
        self.store(&self.share(object), Origin::EventOrResponse);
    }

    /// Trims an object; where the same state is stored, returns that. A list of unchanged objects therefore needs no
    /// memory beside the store.
    pub(super) fn share(&self, mut object: T) -> Arc<T> {
        (self.trim)(&mut object);
        let new = (self.identity)(&object);
        if !new.resource_version.is_empty()
            && let Some(known) = self.get(&new.key.to_key())
        {
            let stored = (self.identity)(&known);
            if (stored.uid, stored.resource_version) == (new.uid, new.resource_version) {
                return known;
            }
        }
        Arc::new(object)
    }

    fn store(&self, object: &Arc<T>, origin: Origin) {
        let inserted = self.objects.write().insert(self.identity, Arc::clone(object), origin);
        let Inserted::After(before) = inserted else { return };
        self.notify(before.as_deref());
        self.notify(Some(object));
    }

    /// Removes an object whose deletion the server confirmed; later events of it are ignored.
    pub fn remove(&self, object: &T) {
        let identity = (self.identity)(object);
        let key = identity.key.to_key();
        {
            let mut objects = self.objects.write();
            let known = objects.by_key.get(&*key);
            // Where the watch was faster than the response, no event follows that would remove the uid again.
            if known.is_some_and(|known| (self.identity)(known).uid == identity.uid) {
                objects.deleted.insert(identity.uid.to_owned());
            }
        }
        self.remove_incarnation(&key, identity.uid);
    }

    /// Confirmed deletions that the watch has not delivered yet.
    #[cfg(test)]
    pub(super) fn confirmed_deletions(&self) -> usize {
        self.objects.read().deleted.len()
    }

    /// Handles an event of the watch.
    #[cfg(test)]
    pub(crate) fn handle(&self, event: WatchEvent<T>) {
        self.handle_shared(event.map(|object| self.share(object)));
    }

    /// Handles an event of the watch, with objects from [`share`](Self::share).
    pub(super) fn handle_shared(&self, event: WatchEvent<Arc<T>>) {
        match event {
            WatchEvent::Listed(objects, version) => self.replace(objects, version),
            WatchEvent::Applied(object) => {
                let version = (self.identity)(&object).version();
                self.store(&object, Origin::EventOrResponse);
                self.advance(version);
            }
            WatchEvent::Deleted(last) => {
                let identity = (self.identity)(&last);
                let key = identity.key.to_key();
                {
                    let mut objects = self.objects.write();
                    objects.deleted.remove(identity.uid);
                    objects.invalid.remove(&*key);
                    objects.delivered = objects.delivered.max(identity.version());
                }
                self.remove_incarnation(&key, identity.uid);
            }
            WatchEvent::Invalid(object) => self.invalidate(object),
            WatchEvent::Denied => self.clear(),
        }
    }

    /// No object may be read.
    fn clear(&self) {
        let removed = {
            let mut objects = self.objects.write();
            objects.deleted.clear();
            objects.invalid.clear();
            let keys: Vec<Arc<Key>> = objects.by_key.keys().map(Arc::clone).collect();
            keys.iter().filter_map(|key| objects.remove(key)).collect::<Vec<_>>()
        };
        for object in removed {
            self.notify(Some(&object));
        }
        self.synced.set(true);
    }

    fn advance(&self, version: u64) {
        let mut objects = self.objects.write();
        objects.delivered = objects.delivered.max(version);
    }

    /// Removes an object, if it is the one with this uid.
    fn remove_incarnation(&self, key: &Key, uid: &str) {
        let removed = {
            let mut objects = self.objects.write();
            let same = objects.by_key.get(key).is_some_and(|known| (self.identity)(known).uid == uid);
            if same { objects.remove(key) } else { None }
        };
        self.notify(removed.as_deref());
    }

    /// The last valid state of an invalid object no longer holds.
    fn invalidate(&self, object: InvalidObject) {
        let key = object.key.clone();
        let removed = {
            let mut objects = self.objects.write();
            if object.deleted {
                objects.invalid.remove(&key);
            } else {
                objects.invalid.insert(key.clone(), object);
            }
            objects.remove(&key)
        };
        self.notify(removed.as_deref());
    }

    /// Takes over a list: objects that are not on it and not newer than it are gone. Lists are consistent reads, so one that
    /// is older than an earlier list or event comes from a restored server, and everything else is forgotten.
    fn replace(&self, listed: Vec<Arc<T>>, list_version: u64) {
        let (missing, rewound) = {
            let mut keys: Vec<(&str, &str)> =
                listed.iter().map(|object| (self.identity)(object).key.parts()).collect();
            keys.sort_unstable();
            let mut objects = self.objects.write();
            let rewound = list_version < objects.delivered;
            objects.deleted.clear();
            objects.invalid.clear();
            objects.delivered = list_version;
            let is_missing = |(key, object): &(&Arc<Key>, &Arc<T>)| {
                keys.binary_search(&parts(key)).is_err()
                    && (rewound || (self.identity)(object).version() <= list_version)
            };
            let missing: Vec<Arc<T>> =
                objects.by_key.iter().filter(is_missing).map(|(_, object)| Arc::clone(object)).collect();
            (missing, rewound)
        };
        for object in missing {
            let identity = (self.identity)(&object);
            self.remove_incarnation(&identity.key.to_key(), identity.uid);
        }
        for object in listed {
            self.store(&object, Origin::List { version: list_version, rewound });
        }
        self.synced.set(true);
    }

    fn notify(&self, object: Option<&T>) {
        let Some(object) = object else { return };
        self.handlers.lock().retain(|handler| handler(object) == Subscription::Continue);
    }
}
