//! Keeps what the server has of each watched resource, and wakes controllers when it changes.
//!
//! Who writes through [`Context`](crate::controller::Context) puts the server's answer in here at once, so that a
//! controller never acts on a state older than its own last write. Older news that arrive later are ignored.

use crate::api::Api;
use crate::api::lean::Lean;
use crate::health::Health;
use crate::kind::{Key, Kind};
use crate::signal::Signal;
use crate::watch::{News, Source};
use kai_object as object;
use rustc_hash::FxHashSet;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::JoinSet;

/// What is told whenever an object changes; it is called with the state before and with the state after, until it
/// says that it wants no more.
pub type Listener = Box<dyn Fn(&Kind, &Value) -> Interest + Send + Sync>;

/// Whether a listener is to be told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// It is.
    Stays,
    /// Nobody is there any more who would do something.
    Ended,
}

/// The values under which an index keeps an object.
pub type IndexFn = fn(&Value) -> Vec<String>;

/// A resource to keep, and what to keep of its objects.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What is followed.
    pub source: Source,
    /// Takes out of an object what nobody reads.
    pub keep: fn(&mut Value),
    /// By what objects can be found, besides their names.
    pub indices: Vec<(&'static str, IndexFn)>,
}

impl Watched {
    /// All objects of a resource, whole but for who wrote which field.
    pub fn all(kind: Kind) -> Self {
        Self { source: Source::all(kind), keep: strip, indices: Vec::new() }
    }

    /// Those that a selector picks (`labelSelector=…` or `fieldSelector=…`, encoded).
    #[must_use]
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.source = self.source.query(query);
        self
    }

    /// Without news of the server's own: a client in the same process lists again when it has to.
    #[must_use]
    pub fn without_bookmarks(mut self) -> Self {
        self.source.bookmarks = false;
        self
    }

    /// Only what `keep` leaves.
    #[must_use]
    pub fn keeping(mut self, keep: fn(&mut Value)) -> Self {
        self.keep = keep;
        self
    }

    /// Lets objects be found by the values that `index` names.
    #[must_use]
    pub fn indexed(mut self, name: &'static str, index: IndexFn) -> Self {
        self.indices.push((name, index));
        self
    }
}

/// All objects of the watched resources.
#[derive(Debug)]
pub struct Caches {
    tables: BTreeMap<Kind, Table>,
}

/// All objects of one resource.
struct Table {
    source: Source,
    objects: RwLock<Objects>,
    listeners: Mutex<Vec<Listener>>,
    synced: Signal<bool>,
    keep: fn(&mut Value),
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("kind", &self.source.kind.plural).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Objects {
    by_key: BTreeMap<Key, Arc<Value>>,
    indices: Vec<Index>,
    /// Uids of objects that we deleted: news from before that are not believed.
    gone: FxHashSet<String>,
}

#[derive(Debug)]
struct Index {
    name: &'static str,
    values: IndexFn,
    keys: BTreeMap<String, BTreeSet<Key>>,
}

/// What became of news.
enum Put {
    /// They are older than what is known.
    Stale,
    /// They are in, after this.
    After(Option<Arc<Value>>),
}

/// Every resource has two indices: by the uid of the owner that controls an object, and by the node it is assigned to.
const OWNER: &str = "owner";
const NODE: &str = "node";

impl Caches {
    /// Caches of these resources, still empty.
    pub fn new(watched: impl IntoIterator<Item = Watched>) -> Self {
        let table = |watched: Watched| (watched.source.kind.clone(), Table::new(watched));
        Self { tables: watched.into_iter().map(table).collect() }
    }

    /// Keeps the caches current for as long as the tasks run.
    pub fn follow(self: &Arc<Self>, api: &Api, health: &Health, tasks: &mut JoinSet<()>) {
        for (kind, table) in &self.tables {
            let freshness = health.watch(&kind.plural);
            let (caches, api, kind, source) =
                (Arc::clone(self), api.clone(), kind.clone(), table.source.clone());
            tasks.spawn(async move {
                let table = caches.table(&kind);
                crate::watch::follow(&api, &source, &freshness, |news| table.take(news)).await;
            });
        }
    }

    /// Whether the resource is watched.
    pub fn has(&self, kind: &Kind) -> bool {
        self.tables.contains_key(kind)
    }

    /// Calls `listener` whenever an object of the resource changes.
    pub fn listen(&self, kind: &Kind, listener: Listener) {
        self.table(kind).listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Waits until everything that was there at the start is known.
    pub async fn synced(&self, kinds: &[Kind]) {
        for kind in kinds {
            self.table(kind).synced.until(|synced| synced).await;
        }
    }

    /// The object.
    pub fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Value>> {
        self.table(kind).read().by_key.get(key).map(Arc::clone)
    }

    /// All objects, by key.
    pub fn all(&self, kind: &Kind) -> Vec<Arc<Value>> {
        self.table(kind).read().by_key.values().map(Arc::clone).collect()
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace(&self, kind: &Kind, namespace: &str) -> Vec<Arc<Value>> {
        let first = Key::new(namespace, "");
        let objects = self.table(kind).read();
        let range = objects.by_key.range(first..);
        range
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The objects that the owner with this uid controls, by key; with an empty uid those that nobody controls.
    pub fn owned(&self, kind: &Kind, uid: &str) -> Vec<Arc<Value>> {
        self.by(kind, OWNER, uid)
    }

    /// The pods on a node, by key.
    pub fn on_node(&self, kind: &Kind, node: &str) -> Vec<Arc<Value>> {
        self.by(kind, NODE, node)
    }

    /// The objects that an index keeps under a value, by key.
    pub fn by(&self, kind: &Kind, index: &str, value: &str) -> Vec<Arc<Value>> {
        let objects = self.table(kind).read();
        let found = objects.indices.iter().find(|known| known.name == index);
        let found = found.unwrap_or_else(|| panic!("{} have no index `{index}`", kind.plural));
        let keys = found.keys.get(value).into_iter().flatten();
        keys.filter_map(|key| objects.by_key.get(key)).map(Arc::clone).collect()
    }

    /// Notes an object as the server has it, unless something newer is known.
    pub fn note(&self, kind: &Kind, object: &Value) {
        if let Some(table) = self.tables.get(kind) {
            table.put(object.clone());
        }
    }

    /// Notes that an object is gone.
    pub fn note_gone(&self, kind: &Kind, object: &Value) {
        if let Some(table) = self.tables.get(kind) {
            table.write().gone.insert(object::uid(object).to_owned());
            table.remove(&Key::of(object), object::uid(object));
        }
    }

    fn table(&self, kind: &Kind) -> &Table {
        self.tables.get(kind).unwrap_or_else(|| panic!("nobody watches {}", kind.plural))
    }
}

/// Leaves out who wrote which field.
fn strip(object: &mut Value) {
    object::set_meta(object, "managedFields", None);
}

/// The version of an object as a number; versions of this server are ordered.
fn version(object: &Value) -> u64 {
    object::meta_str(object, "resourceVersion").parse().unwrap_or(0)
}

/// The uid of the controlling owner.
fn controller_uid(object: &Value) -> Option<&str> {
    let owners = object::meta(object, "ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?.get("uid")?.as_str()
}

fn by_owner(object: &Value) -> Vec<String> {
    vec![controller_uid(object).unwrap_or_default().to_owned()]
}

fn by_node(object: &Value) -> Vec<String> {
    let node = object::str_at(object, "/spec/nodeName");
    if node.is_empty() { Vec::new() } else { vec![node.to_owned()] }
}

impl Index {
    fn new(name: &'static str, values: IndexFn) -> Self {
        Self { name, values, keys: BTreeMap::new() }
    }

    /// Puts an object where its values say, unless it was there before.
    fn change(&mut self, key: &Key, before: Option<&Value>, object: &Value) {
        let values = (self.values)(object);
        let known = before.map(self.values);
        if known.as_ref() == Some(&values) {
            return;
        }
        self.take_out(key, known.unwrap_or_default());
        for value in values {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &Value) {
        self.take_out(key, (self.values)(object));
    }

    fn take_out(&mut self, key: &Key, values: Vec<String>) {
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

impl Objects {
    fn unindex(&mut self, key: &Key, object: &Value) {
        for index in &mut self.indices {
            index.remove(key, object);
        }
    }

    /// Puts an object in, and says what was there, unless the news are old.
    fn put(&mut self, key: &Key, object: Arc<Value>) -> Put {
        let known = self.by_key.get(key).map(Arc::clone);
        let stale = known.as_ref().is_some_and(|known| version(known) >= version(&object));
        if stale || self.gone.contains(object::uid(&object)) {
            return Put::Stale;
        }
        for index in &mut self.indices {
            index.change(key, known.as_deref(), &object);
        }
        match self.by_key.get_mut(key) {
            Some(place) => *place = object,
            None => {
                self.by_key.insert(key.clone(), object);
            }
        }
        Put::After(known)
    }
}

impl Table {
    fn new(watched: Watched) -> Self {
        let Watched { source, keep, indices } = watched;
        let indices = [(OWNER, by_owner as IndexFn), (NODE, by_node)].into_iter().chain(indices);
        let indices = indices.map(|(name, values)| Index::new(name, values)).collect();
        Self {
            source,
            objects: RwLock::new(Objects { indices, ..Objects::default() }),
            listeners: Mutex::default(),
            synced: Signal::new(false),
            keep,
        }
    }

    fn take(&self, news: News<Lean>) {
        match news {
            News::All(items, version) => {
                self.replace(items.into_iter().map(Lean::into_value).collect(), version);
            }
            News::Applied(object) => self.put(object.into_value()),
            News::Gone(last) => self.deleted(&last.into_value()),
            // Any JSON can be read as a value.
            News::Unreadable(key, why) => {
                tracing::warn!(kind = %self.source.kind.kind, %key, why, "unreadable");
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mut object: Value) {
        (self.keep)(&mut object);
        let key = Key::of(&object);
        let object = Arc::new(object);
        let put = self.write().put(&key, Arc::clone(&object));
        let Put::After(before) = put else { return };
        self.tell(before.as_deref());
        self.tell(Some(&object));
    }

    /// Takes an object out, if it is the one with this uid.
    fn remove(&self, key: &Key, uid: &str) {
        let removed = {
            let mut objects = self.write();
            let same = objects.by_key.get(key).is_some_and(|known| object::uid(known) == uid);
            let removed = if same { objects.by_key.remove(key) } else { None };
            if let Some(removed) = &removed {
                objects.unindex(key, removed);
            }
            removed
        };
        self.tell(removed.as_deref());
    }

    fn deleted(&self, last: &Value) {
        self.write().gone.remove(object::uid(last));
        self.remove(&Key::of(last), object::uid(last));
    }

    /// Takes over a list: what is not on it and not newer than it is gone.
    fn replace(&self, items: Vec<Value>, list_version: u64) {
        let listed: BTreeSet<Key> = items.iter().map(Key::of).collect();
        let missing: Vec<Arc<Value>> = {
            let mut objects = self.write();
            objects.gone.clear();
            let known = objects.by_key.iter();
            known
                .filter(|(key, object)| !listed.contains(*key) && version(object) <= list_version)
                .map(|(_, object)| Arc::clone(object))
                .collect()
        };
        for object in missing {
            self.remove(&Key::of(&object), object::uid(&object));
        }
        for mut item in items {
            // Lists leave out what every item is.
            item["kind"] = Value::from(&*self.source.kind.kind);
            item["apiVersion"] = Value::from(self.source.kind.api_version());
            self.put(item);
        }
        self.synced.set(true);
    }

    fn tell(&self, object: Option<&Value>) {
        let Some(object) = object else { return };
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener(&self.source.kind, object) == Interest::Stays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::POD;
    use serde_json::json;

    fn pod(version: u64, node: &str) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u1", "resourceVersion": version.to_string()},
            "spec": {"nodeName": node},
        })
    }

    fn caches() -> Caches {
        Caches::new([Watched::all(POD)])
    }

    #[test]
    fn old_news_are_ignored() {
        let caches = caches();
        caches.note(&POD, &pod(5, "n2"));
        caches.note(&POD, &pod(3, "n1"));
        assert_eq!(caches.on_node(&POD, "n2").len(), 1);
        assert!(caches.on_node(&POD, "n1").is_empty());
        caches.note_gone(&POD, &pod(5, ""));
        caches.note(&POD, &pod(6, "n2"));
        assert!(caches.all(&POD).is_empty());
        caches.table(&POD).deleted(&pod(7, "n2"));
        assert!(caches.in_namespace(&POD, "x").is_empty());
    }

    #[test]
    fn a_list_takes_away_what_is_not_on_it() {
        let caches = caches();
        caches.note(&POD, &pod(5, "n2"));
        caches.table(&POD).replace(Vec::new(), 4);
        assert_eq!(caches.all(&POD).len(), 1, "written after the list");
        caches.table(&POD).replace(Vec::new(), 9);
        assert!(caches.all(&POD).is_empty());
    }
}
