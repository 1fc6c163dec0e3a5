//! Informers: stores of the watched resources, kept current by list and watch, which notify handlers of changes.
//!
//! A controller that writes through [`Context`](crate::controller::Context) puts the response into the store at once, so
//! that it never acts on a state older than its own last write. Older events that arrive later are ignored.

pub mod store;

use crate::api::Api;
use crate::api::unmanaged::Unmanaged;
use crate::health::{Health, WatchHealth};
use crate::kind::{ApiObject, Key, ResourceKind};
use crate::watch::{Shape, Source, list_and_watch_as};
use crate::watch_value::WatchValue;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_object as object;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
pub use store::{Handler, Subscription};
use store::{Identity, IdentityFn, IndexFn, ObjectKey, Store};
use tokio::task::JoinSet;

/// How an informer feeds its store.
type Start<T> = fn(Arc<Store<T>>, Api, Source, WatchHealth) -> BoxFuture<'static, ()>;

/// A resource to watch, and what to store of its objects.
#[derive(Debug)]
pub struct Informer<T> {
    source: Source,
    identity: IdentityFn<T>,
    trim: fn(&mut T),
    indexers: Vec<(&'static str, IndexFn<T>)>,
    start: Start<T>,
}

impl<T: ApiObject> Informer<T> {
    /// Stores whole typed objects, but for `managedFields`.
    pub fn typed() -> Self {
        Self {
            source: Source::all(ResourceKind::of::<T>()),
            identity: |object| {
                let meta = object.meta();
                Identity {
                    key: ObjectKey::Parts {
                        namespace: meta.namespace.as_deref().unwrap_or_default(),
                        name: meta.name.as_deref().unwrap_or_default(),
                    },
                    uid: meta.uid.as_deref().unwrap_or_default(),
                    resource_version: meta.resource_version.as_deref().unwrap_or_default(),
                }
            },
            trim: |_| (),
            indexers: Vec::new(),
            start: |store, api, source, health| {
                Box::pin(async move {
                    let share = |mut object: T| {
                        object.meta_mut().managed_fields = None;
                        store.share(object)
                    };
                    list_and_watch_as(&api, &source, &health, share, |event| store.handle_shared(event))
                        .await;
                })
            },
        }
    }
}

/// An object of which only the metadata is read.
#[derive(serde::Deserialize)]
struct MetadataOnly {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl<T: ApiObject + Default> Informer<T> {
    /// Requests and stores only the metadata, but for `managedFields`; all else is as in an empty object.
    pub fn metadata() -> Self {
        let mut informer = Self::typed();
        informer.source.shape = Shape::Metadata;
        informer.start = |store, api, source, health| {
            Box::pin(async move {
                let share = |partial: MetadataOnly| {
                    let mut object = T::default();
                    *object.meta_mut() = ObjectMeta { managed_fields: None, ..partial.metadata };
                    store.share(object)
                };
                list_and_watch_as(&api, &source, &health, share, |event| store.handle_shared(event)).await;
            })
        };
        informer
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Informer<T> {
    /// Stores a type of the component that has only some fields of the kind.
    pub fn partial(kind: ResourceKind, identity: IdentityFn<T>) -> Self {
        Self {
            source: Source::all(kind),
            identity,
            trim: |_| (),
            indexers: Vec::new(),
            start: |store, api, source, health| {
                Box::pin(async move {
                    let share = |object| store.share(object);
                    list_and_watch_as(&api, &source, &health, share, |event| store.handle_shared(event))
                        .await;
                })
            },
        }
    }
}

impl Informer<Value> {
    /// Stores JSON objects, with indices by controller uid and by node.
    pub fn dynamic(kind: ResourceKind) -> Self {
        Self {
            source: Source::all(kind),
            identity: |object| Identity {
                key: ObjectKey::Parts { namespace: object::namespace(object), name: object::name(object) },
                uid: object::uid(object),
                resource_version: object::meta_str(object, "resourceVersion"),
            },
            trim: |_| (),
            indexers: vec![(CONTROLLER_INDEX, by_controller), (NODE_INDEX, by_node)],
            start: |store, api, source, health| {
                Box::pin(async move {
                    let (kind, api_version) = (source.kind.kind.to_string(), source.kind.api_version());
                    let share = |object: Unmanaged| {
                        let mut object = object.into_value();
                        // Items of a list do not name their kind.
                        if let Some(fields) = object.as_object_mut()
                            && !fields.contains_key("kind")
                        {
                            fields.insert("kind".to_owned(), Value::from(kind.as_str()));
                            fields.insert("apiVersion".to_owned(), Value::from(api_version.as_str()));
                        }
                        store.share(object)
                    };
                    list_and_watch_as(&api, &source, &health, share, |event| store.handle_shared(event))
                        .await;
                })
            },
        }
    }
}

impl<T> Informer<T> {
    /// Restricts the watch by a selector (`labelSelector=…` or `fieldSelector=…`, percent-encoded).
    #[must_use]
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.source = self.source.query(query);
        self
    }

    /// Requests no bookmarks: a client in the server's process lists again when it has to.
    #[must_use]
    pub fn without_bookmarks(mut self) -> Self {
        self.source.bookmarks = false;
        self
    }

    /// Removes from every object what is not read, before it is stored.
    #[must_use]
    pub fn trim(mut self, trim: fn(&mut T)) -> Self {
        self.trim = trim;
        self
    }

    /// Adds an index by the values that `values` returns.
    #[must_use]
    pub fn index(mut self, name: &'static str, values: IndexFn<T>) -> Self {
        self.indexers.push((name, values));
        self
    }
}

const CONTROLLER_INDEX: &str = "controller";
const NODE_INDEX: &str = "node";

/// The uid of the owner that is the controller; empty where there is none.
fn by_controller(object: &Value) -> Vec<String> {
    let owners = object::meta(object, "ownerReferences").and_then(Value::as_array);
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    let uid = controller.and_then(|owner| owner.get("uid")?.as_str());
    vec![uid.unwrap_or_default().to_owned()]
}

fn by_node(object: &Value) -> Vec<String> {
    let node = object::str_at(object, "/spec/nodeName");
    if node.is_empty() { Vec::new() } else { vec![node.to_owned()] }
}

impl Store<Value> {
    /// The objects that the owner with this uid controls, by key; with an empty uid those without a controller.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<Value>> {
        self.by_index(CONTROLLER_INDEX, uid)
    }

    /// The pods of a node, by key.
    pub fn on_node(&self, node: &str) -> Vec<Arc<Value>> {
        self.by_index(NODE_INDEX, node)
    }
}

/// A store with what feeds it, regardless of the type of its objects.
trait AnyInformer: Send + Sync {
    fn store(&self) -> &(dyn Any + Send + Sync);
    fn synced(&self) -> &WatchValue<bool>;
    fn start(&self, api: Api, health: WatchHealth) -> BoxFuture<'static, ()>;
}

struct Running<T> {
    store: Arc<Store<T>>,
    source: Source,
    start: Start<T>,
}

impl<T: Send + Sync + 'static> AnyInformer for Running<T> {
    fn store(&self) -> &(dyn Any + Send + Sync) {
        &*self.store
    }

    fn synced(&self) -> &WatchValue<bool> {
        self.store.synced()
    }

    fn start(&self, api: Api, health: WatchHealth) -> BoxFuture<'static, ()> {
        (self.start)(Arc::clone(&self.store), api, self.source.clone(), health)
    }
}

/// The informers of a component, one for each kind.
#[derive(Default)]
pub struct Informers {
    by_kind: BTreeMap<ResourceKind, Box<dyn AnyInformer>>,
}

impl std::fmt::Debug for Informers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_kind.keys().map(|kind| &kind.plural)).finish()
    }
}

impl Informers {
    /// Dynamic informers of these kinds.
    pub fn dynamic_of(informers: impl IntoIterator<Item = Informer<Value>>) -> Self {
        informers.into_iter().fold(Self::default(), Self::with)
    }

    /// Adds an informer; its store is empty until [`start`](Self::start).
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, informer: Informer<T>) -> Self {
        let Informer { source, identity, trim, indexers, start } = informer;
        let kind = source.kind.clone();
        let store = Arc::new(Store::new(&source.kind.plural, identity, trim, indexers));
        self.by_kind.insert(kind, Box::new(Running { store, source, start }));
        self
    }

    /// Keeps the stores current for as long as the tasks run.
    pub fn start(self: &Arc<Self>, api: &Api, health: &Health, tasks: &mut JoinSet<()>) {
        for (kind, informer) in &self.by_kind {
            let (informers, running) =
                (Arc::clone(self), informer.start(api.clone(), health.watch(&kind.plural)));
            tasks.spawn(async move {
                running.await;
                drop(informers);
            });
        }
    }

    pub fn has(&self, kind: &ResourceKind) -> bool {
        self.by_kind.contains_key(kind)
    }

    /// Waits until the first lists of these kinds are stored.
    #[expect(clippy::panic, reason = "a defect of the component that asks, whatever the objects are")]
    pub async fn synced(&self, kinds: &[ResourceKind]) {
        for kind in kinds {
            let informer = self.by_kind.get(kind);
            let informer = informer.unwrap_or_else(|| panic!("there is no informer of {}", kind.plural));
            informer.synced().wait_for(|synced| synced).await;
        }
    }

    /// The store of a type, which must have been added.
    #[expect(clippy::panic, reason = "a defect of the component that asks, whatever the objects are")]
    pub fn store<T: 'static>(&self) -> &Store<T> {
        let store = self.by_kind.values().find_map(|informer| informer.store().downcast_ref());
        store.unwrap_or_else(|| panic!("there is no informer of {}", std::any::type_name::<T>()))
    }

    /// The store of a kind that was added with [`Informer::dynamic`].
    #[expect(clippy::panic, reason = "a defect of the component that asks, whatever the objects are")]
    pub fn dynamic(&self, kind: &ResourceKind) -> &Store<Value> {
        let store = self.find_dynamic(kind);
        store.unwrap_or_else(|| panic!("there is no dynamic informer of {}", kind.plural))
    }

    fn find_dynamic(&self, kind: &ResourceKind) -> Option<&Store<Value>> {
        self.by_kind.get(kind)?.store().downcast_ref()
    }

    pub fn get<T: 'static>(&self, key: &Key) -> Option<Arc<T>> {
        self.store().get(key)
    }

    /// Stores an object as the server returned it, unless a newer state is known or its kind is not watched.
    pub fn update_dynamic(&self, kind: &ResourceKind, object: &Value) {
        if let Some(store) = self.find_dynamic(kind) {
            store.update(object.clone());
        }
    }

    /// Removes an object whose deletion the server confirmed.
    pub fn remove_dynamic(&self, kind: &ResourceKind, object: &Value) {
        if let Some(store) = self.find_dynamic(kind) {
            store.remove(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::POD;
    use crate::watch::WatchEvent;
    use serde_json::json;

    fn pod(version: u64, node: &str) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u1", "resourceVersion": version.to_string()},
            "spec": {"nodeName": node},
        })
    }

    fn informers() -> Informers {
        Informers::dynamic_of([Informer::dynamic(POD)])
    }

    #[test]
    fn older_events_are_ignored() {
        let informers = informers();
        let pods = informers.dynamic(&POD);
        informers.update_dynamic(&POD, &pod(5, "n2"));
        informers.update_dynamic(&POD, &pod(3, "n1"));
        assert_eq!(pods.on_node("n2").len(), 1);
        assert!(pods.on_node("n1").is_empty());
        informers.remove_dynamic(&POD, &pod(5, ""));
        informers.update_dynamic(&POD, &pod(6, "n2"));
        assert!(pods.list().is_empty());
        pods.handle(WatchEvent::Deleted(pod(7, "n2")));
        assert!(pods.in_namespace("x").is_empty());
    }

    #[test]
    fn response_that_arrives_after_the_deletion_does_not_restore_the_object() {
        let informers = informers();
        let pods = informers.dynamic(&POD);
        pods.handle(WatchEvent::Applied(pod(5, "n1")));
        pods.handle(WatchEvent::Deleted(pod(7, "n1")));
        informers.update_dynamic(&POD, &pod(6, "n2"));
        assert!(pods.list().is_empty(), "written at 6, deleted at 7");
        let mut again = pod(8, "n3");
        again["metadata"]["uid"] = json!("u2");
        informers.update_dynamic(&POD, &again);
        assert_eq!(pods.on_node("n3").len(), 1, "created after all that was delivered");
        pods.handle(WatchEvent::Listed(Vec::new(), 9));
        informers.update_dynamic(&POD, &again);
        assert!(pods.list().is_empty(), "the list is newer");
        pods.handle(WatchEvent::Listed(vec![pod(3, "n1")], 4));
        assert_eq!(pods.list().len(), 1, "a list always holds");
        pods.handle(WatchEvent::Denied);
        assert!(pods.list().is_empty(), "without the right to list, nothing is known");
    }

    /// An aggregated API server may return anything.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn items_that_are_no_objects_do_not_end_the_process() {
        let respond = async |uri: axum::http::Uri| {
            if uri.query().is_some_and(|query| query.contains("watch=")) {
                std::future::pending::<()>().await;
            }
            let items = json!(["text", 7, null, [], [{}], {"kind": 7}, pod(5, "n1")]);
            json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string()
        };
        let api = Api::new(kube::Client::new(axum::Router::new().fallback(respond), "default"), "test");
        let (informers, mut tasks) = (Arc::new(informers()), JoinSet::new());
        informers.start(&api, &Health::default(), &mut tasks);
        let minute = std::time::Duration::from_mins(1);
        let synced = tokio::time::timeout(minute, informers.synced(&[POD])).await;
        assert!(synced.is_ok(), "{:?}", tasks.try_join_next());
        assert_eq!(informers.dynamic(&POD).on_node("n1").len(), 1, "the others are not affected");
    }

    #[test]
    fn list_after_a_restore_replaces_newer_objects() {
        for (list_version, what) in [(4, "the revision went back"), (1_000, "the revision was bumped")] {
            let informers = informers();
            let pods = informers.dynamic(&POD);
            pods.handle(WatchEvent::Listed(vec![pod(3, "")], 3));
            pods.handle(WatchEvent::Applied(pod(7, "n1")));
            let mut lost = pod(8, "n2");
            (lost["metadata"]["name"], lost["metadata"]["uid"]) = (json!("lost"), json!("u2"));
            pods.handle(WatchEvent::Applied(lost));
            pods.handle(WatchEvent::Listed(vec![pod(3, "")], list_version));
            assert!(pods.on_node("n1").is_empty() && pods.list().len() == 1, "{what}");
            pods.handle(WatchEvent::Applied(pod(list_version + 1, "n3")));
            assert_eq!(pods.on_node("n3").len(), 1, "{what}");
        }
    }

    #[test]
    fn uid_of_a_deleted_object_is_kept_only_until_the_watch_delivers_the_deletion() {
        for first in ["the response", "the watch"] {
            let informers = informers();
            let pods = informers.dynamic(&POD);
            informers.update_dynamic(&POD, &pod(5, "n2"));
            if first == "the response" {
                informers.remove_dynamic(&POD, &pod(5, "n2"));
                assert_eq!(pods.confirmed_deletions(), 1);
                pods.handle(WatchEvent::Deleted(pod(7, "n2")));
            } else {
                pods.handle(WatchEvent::Deleted(pod(7, "n2")));
                informers.remove_dynamic(&POD, &pod(5, "n2"));
            }
            assert_eq!(pods.confirmed_deletions(), 0, "after {first}");
        }
    }

    #[test]
    fn list_after_a_restore_of_etcd_replaces_newer_states() {
        let informers = informers();
        let pods = informers.dynamic(&POD);
        pods.handle(WatchEvent::Listed(vec![pod(5, "n1")], 7));
        pods.handle(WatchEvent::Applied(pod(9, "n2")));
        let mut created = pod(12, "n3");
        created["metadata"]["name"] = json!("b");
        created["metadata"]["uid"] = json!("u2");
        pods.handle(WatchEvent::Applied(created));
        // The backup was made at 6; by now the restored server is at 8.
        pods.handle(WatchEvent::Listed(vec![pod(5, "n1")], 8));
        assert_eq!((pods.list().len(), pods.on_node("n1").len()), (1, 1), "{:?}", pods.list());
        pods.handle(WatchEvent::Applied(pod(9, "n4")));
        assert_eq!(pods.on_node("n4").len(), 1, "the versions of the restored server count");
    }

    #[test]
    fn unchanged_object_of_a_list_is_the_stored_one() {
        let informers = informers();
        let pods = informers.dynamic(&POD);
        pods.handle(WatchEvent::Applied(pod(5, "n1")));
        let stored = pods.list().remove(0);
        assert!(Arc::ptr_eq(&stored, &pods.share(pod(5, "n1"))));
        assert!(!Arc::ptr_eq(&stored, &pods.share(pod(6, "n1"))), "a newer state");
        let mut again = pod(5, "n1");
        again["metadata"]["uid"] = json!("u2");
        assert!(!Arc::ptr_eq(&stored, &pods.share(again)), "another object of the same name");
        pods.handle(WatchEvent::Listed(vec![pod(5, "n1")], 9));
        assert!(Arc::ptr_eq(&stored, &pods.list()[0]));
    }

    #[test]
    fn store_and_indices_use_the_key_that_the_object_holds() {
        struct Held(Arc<Key>);
        let identity: IdentityFn<Held> =
            |object| Identity { key: ObjectKey::Shared(&object.0), uid: "u1", resource_version: "5" };
        let store = Store::new("pods", identity, |_| (), vec![("all", |_| vec!["all".to_owned()])]);
        let key = Arc::new(Key::new("x", "a"));
        store.handle(WatchEvent::Listed(vec![Held(Arc::clone(&key))], 7));
        assert_eq!(Arc::strong_count(&key), 4, "here, in the object, in the store and in its index");
        assert_eq!((store.list().len(), store.in_namespace("x").len()), (1, 1));
        store.handle(WatchEvent::Listed(Vec::new(), 9));
        assert_eq!((Arc::strong_count(&key), store.by_index("all", "all").len()), (1, 0));
    }

    #[test]
    fn relist_removes_missing_objects_that_are_not_newer() {
        let informers = informers();
        let pods = informers.dynamic(&POD);
        informers.update_dynamic(&POD, &pod(5, "n2"));
        pods.handle(WatchEvent::Listed(Vec::new(), 4));
        assert_eq!(pods.list().len(), 1, "written after the list");
        pods.handle(WatchEvent::Listed(Vec::new(), 9));
        assert!(pods.list().is_empty());
    }
}
