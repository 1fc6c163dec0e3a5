//! Deletes objects whose owners are gone, and implements the propagation policies of deletions.
//!
//! Watches every resource, custom ones too, and keeps only the owner references; resources that controllers watch
//! already come from their informers. Before an object is deleted, an unknown owner is read from the API server, since
//! the informer may lag.

use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions, Part, Result};
use kai_runtime::controller::Action;
use kai_runtime::health::Health;
use kai_runtime::informer::{Informer, Informers, Subscription};
use kai_runtime::kind::{CUSTOM_RESOURCE_DEFINITION, Key, ResourceKind};
use kai_runtime::work_queue::WorkQueue;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Resource without owner references, and with many objects.
const IGNORED: &str = "events";
/// Finalizer: the owner is deleted after its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer: the owner is deleted after its dependents have lost their references.
const ORPHAN: &str = "orphan";
/// Wait after a failed discovery, and after a new definition until it is served.
const DISCOVERY_DELAY: Duration = Duration::from_secs(2);
/// After this time a dependent is examined again whose owner exists, but is not known here: if the owner is deleted before
/// its informer has it, no event says so.
const UNKNOWN_OWNER_DELAY: Duration = Duration::from_secs(30);

/// Every resource that can be listed, watched and deleted, in the preferred version of its group where the group serves
/// the resource in that version.
pub async fn discover(api: &Api) -> Result<Vec<ResourceKind>> {
    let mut versions = vec![(String::new(), "v1".to_owned())];
    let groups = api.send("GET", "/apis", None).await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        let name = object::str_at(group, "/name");
        let all = group["versions"].as_array().into_iter().flatten();
        let all = all.map(|version| object::str_at(version, "/version"));
        let preferred = object::str_at(group, "/preferredVersion/version");
        let others = all.filter(|version| *version != preferred);
        versions.extend(
            std::iter::once(preferred).chain(others).map(|version| (name.to_owned(), version.to_owned())),
        );
    }
    let mut kinds: Vec<ResourceKind> = Vec::new();
    for (group, version) in versions {
        let path = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
        let list = api.send("GET", &path, None).await?;
        for resource in list["resources"].as_array().into_iter().flatten() {
            let verbs: Vec<&str> =
                resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let name = object::str_at(resource, "/name");
            let supported = ["list", "watch", "delete"].iter().all(|verb| verbs.contains(verb));
            let known = kinds.iter().any(|kind| *kind.group == *group && *kind.plural == *name);
            if supported && !name.contains('/') && !known {
                kinds.push(ResourceKind {
                    group: group.clone().into(),
                    version: version.clone().into(),
                    kind: object::str_at(resource, "/kind").to_owned().into(),
                    plural: name.to_owned().into(),
                    namespaced: resource["namespaced"] == true,
                });
            }
        }
    }
    Ok(kinds)
}

/// Reduces an object to its identity and owner references.
fn keep_ownership(object: &mut Value) {
    let mut metadata = json!({});
    for field in
        ["name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp", "finalizers"]
    {
        if let Some(value) = object::meta(object, field) {
            metadata[field] = value.clone();
        }
    }
    *object = json!({"apiVersion": object::api_version(object), "kind": object::kind(object), "metadata": metadata});
}

/// Owners and dependents, over all resources.
#[derive(Debug, Default)]
struct Graph {
    /// Objects by uid.
    nodes: FxHashMap<String, Node>,
    dependents: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug)]
struct Node {
    kind: ResourceKind,
    object: Arc<Value>,
}

#[derive(Debug)]
struct GarbageCollector {
    api: Api,
    /// Informers of the controllers.
    shared: Arc<Informers>,
    graph: Mutex<Graph>,
    queue: WorkQueue,
    kinds: Mutex<BTreeSet<ResourceKind>>,
    /// Signals that definitions have changed.
    defined: Notify,
}

/// Runs the garbage collector. Never returns.
pub async fn run(api: Api, shared: Arc<Informers>) {
    let collector = Arc::new(GarbageCollector {
        api: api.clone(),
        shared,
        graph: Mutex::default(),
        queue: WorkQueue::default(),
        kinds: Mutex::default(),
        defined: Notify::new(),
    });
    let mut watched: BTreeMap<ResourceKind, JoinSet<()>> = BTreeMap::new();
    let worker = Arc::clone(&collector);
    let mut work = JoinSet::new();
    work.spawn(async move { worker.work().await });
    loop {
        match discover(&api).await {
            Ok(kinds) => {
                let kinds: BTreeSet<ResourceKind> =
                    kinds.into_iter().filter(|kind| kind.plural != IGNORED).collect();
                kinds.clone_into(&mut collector.kinds.lock());
                // Dropping a set aborts its tasks.
                watched.retain(|kind, _| kinds.contains(kind));
                for kind in kinds {
                    watched.entry(kind.clone()).or_insert_with(|| watch(&collector, &kind));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "discovery failed");
                tokio::time::sleep(DISCOVERY_DELAY).await;
                continue;
            }
        }
        collector.defined.notified().await;
        // The API server serves a definition some time after it is created.
        tokio::time::sleep(DISCOVERY_DELAY).await;
    }
}

/// Watches a resource: by the shared informers, or else by an own one that the returned tasks run.
fn watch(collector: &Arc<GarbageCollector>, kind: &ResourceKind) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if collector.shared.has(kind) {
        subscribe(collector, &collector.shared, kind);
        for object in collector.shared.dynamic(kind).list() {
            collector.observe(&collector.shared, kind, &object);
        }
        return tasks;
    }
    let informers = Arc::new(Informers::dynamic_of([Informer::dynamic(kind.clone())
        .without_bookmarks()
        .trim(keep_ownership)]));
    subscribe(collector, &informers, kind);
    informers.start(&collector.api, &Health::default(), &mut tasks);
    tasks
}

fn subscribe(collector: &Arc<GarbageCollector>, informers: &Arc<Informers>, kind: &ResourceKind) {
    let (weak, collector) = (Arc::downgrade(informers), Arc::downgrade(collector));
    let kind_of_handler = kind.clone();
    let handler = move |object: &Value| {
        let kind = &kind_of_handler;
        let (Some(informers), Some(collector)) = (weak.upgrade(), collector.upgrade()) else {
            return Subscription::End;
        };
        if *kind == CUSTOM_RESOURCE_DEFINITION {
            collector.defined.notify_one();
        }
        collector.observe(&informers, kind, object);
        Subscription::Continue
    };
    informers.dynamic(kind).subscribe(Box::new(handler));
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object::meta(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

impl GarbageCollector {
    /// Updates the graph by a changed object, and enqueues the affected objects.
    fn observe(&self, informers: &Informers, kind: &ResourceKind, object: &Value) {
        let uid = object::uid(object).to_owned();
        let mut affected = Vec::new();
        {
            let mut graph = self.graph.lock();
            // Read under the lock, so that no older state overwrites a newer one.
            let now = informers.dynamic(kind).get(&kai_runtime::key_of(object));
            let now = now.filter(|now| object::uid(now) == uid);
            if let (Some(known), Some(now)) = (graph.nodes.get_mut(&uid), &now)
                && is_unchanged(&known.object, now)
            {
                known.object = Arc::clone(now);
                return;
            }
            if let Some(known) = graph.nodes.remove(&uid) {
                for owner in owners(&known.object) {
                    let owner = object::str_at(owner, "/uid");
                    if let Some(dependents) = graph.dependents.get_mut(owner) {
                        dependents.remove(&uid);
                        if dependents.is_empty() {
                            graph.dependents.remove(owner);
                        }
                    }
                    affected.push(owner.to_owned());
                }
            }
            match now {
                Some(now) => {
                    for owner in owners(&now) {
                        let owner = object::str_at(owner, "/uid").to_owned();
                        graph.dependents.entry(owner).or_default().insert(uid.clone());
                    }
                    let relevant = owners(&now).next().is_some() || waits_for_dependents(&now);
                    graph.nodes.insert(uid.clone(), Node { kind: kind.clone(), object: now });
                    if relevant {
                        affected.push(uid);
                    }
                }
                None => affected.extend(graph.dependents.get(&uid).into_iter().flatten().cloned()),
            }
        }
        for uid in affected {
            self.queue.add(Key::new("", &uid));
        }
    }

    async fn work(&self) {
        loop {
            let key = self.queue.next().await;
            let result = self.sync(&key.name).await;
            self.queue.done(&key);
            match result {
                Ok(next) => {
                    self.queue.forget(&key);
                    if let Action::RequeueAfter(wait) = next {
                        self.queue.add_after(key, wait);
                    }
                }
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "garbage collection is retried"
                    );
                    self.queue.add_rate_limited(key);
                }
            }
        }
    }

    fn node(&self, uid: &str) -> Option<Node> {
        self.graph.lock().nodes.get(uid).cloned()
    }

    fn dependents(&self, uid: &str) -> Vec<Node> {
        let graph = self.graph.lock();
        let uids = graph.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| graph.nodes.get(uid).cloned()).collect()
    }

    async fn sync(&self, uid: &str) -> Result<Action> {
        let Some(node) = self.node(uid) else { return Ok(Action::AwaitChange) };
        if object::is_deleting(&node.object) {
            let finalizers = object::finalizers(&node.object);
            if finalizers.contains(&ORPHAN) {
                self.orphan(uid, &node).await?;
            } else if finalizers.contains(&FOREGROUND) {
                self.delete_dependents(uid, &node).await?;
            }
            return Ok(Action::AwaitChange);
        }
        self.collect(&node).await
    }

    /// Removes the owner reference from all dependents, then the finalizer from the owner.
    async fn orphan(&self, uid: &str, node: &Node) -> Result<()> {
        for dependent in self.dependents(uid) {
            let left: Vec<&Value> =
                owners(&dependent.object).filter(|owner| object::str_at(owner, "/uid") != uid).collect();
            let patch = json!({"metadata": {"uid": object::uid(&dependent.object), "ownerReferences": left}});
            ignore_not_found(
                self.api
                    .patch_dynamic(
                        &dependent.kind,
                        &kai_runtime::key_of(&dependent.object),
                        Part::Main,
                        &patch,
                    )
                    .await,
            )?;
        }
        self.drop_finalizer(node, ORPHAN).await
    }

    /// Deletes all dependents; the owner waits for those with `blockOwnerDeletion`.
    async fn delete_dependents(&self, uid: &str, node: &Node) -> Result<()> {
        let dependents = self.dependents(uid);
        let mut blocked = false;
        for dependent in &dependents {
            let reference = owners(&dependent.object).find(|owner| object::str_at(owner, "/uid") == uid);
            blocked |= reference.is_some_and(|owner| owner["blockOwnerDeletion"] == true);
            if !object::is_deleting(&dependent.object) {
                self.delete(dependent, Some("Foreground")).await?;
            }
        }
        if blocked { Ok(()) } else { self.drop_finalizer(node, FOREGROUND).await }
    }

    async fn drop_finalizer(&self, node: &Node, finalizer: &str) -> Result<()> {
        let left: Vec<&str> =
            object::finalizers(&node.object).into_iter().filter(|name| *name != finalizer).collect();
        let patch = json!({"metadata": {
            "uid": object::uid(&node.object), "resourceVersion": object::meta_str(&node.object, "resourceVersion"),
            "finalizers": left,
        }});
        ignore_not_found(
            self.api.patch_dynamic(&node.kind, &kai_runtime::key_of(&node.object), Part::Main, &patch).await,
        )
    }

    /// Deletes an object without an existing owner.
    async fn collect(&self, node: &Node) -> Result<Action> {
        let mut has_owner = false;
        for owner in owners(&node.object) {
            has_owner = true;
            let uid = object::str_at(owner, "/uid");
            let known = self.node(uid);
            let exists = match &known {
                Some(owner) => !waits_for_dependents(&owner.object),
                None => !self.is_gone(&node.object, owner).await?,
            };
            if exists && known.is_none() {
                return Ok(Action::RequeueAfter(UNKNOWN_OWNER_DELAY));
            }
            if exists {
                return Ok(Action::AwaitChange);
            }
        }
        if has_owner {
            self.delete(node, None).await?;
        }
        Ok(Action::AwaitChange)
    }

    /// Whether the owner does not exist in the API server.
    async fn is_gone(&self, dependent: &Value, owner: &Value) -> Result<bool> {
        let (group_version, kind) = (object::str_at(owner, "/apiVersion"), object::str_at(owner, "/kind"));
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let kinds = self.kinds.lock().clone();
        let Some(kind) = kinds.into_iter().find(|known| known.group == group && known.kind == kind) else {
            // The definition of an unknown kind may return; its dependents are not garbage.
            return Ok(false);
        };
        let kind = ResourceKind { version: version.to_owned().into(), ..kind };
        let namespace = if kind.namespaced { object::namespace(dependent) } else { "" };
        match self.api.get_dynamic(&kind, &Key::new(namespace, object::str_at(owner, "/name"))).await {
            Ok(found) => Ok(object::uid(&found) != object::str_at(owner, "/uid")),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, node: &Node, propagation: Option<&'static str>) -> Result<()> {
        // A pending propagation policy of the object is kept.
        let finalizers = object::finalizers(&node.object);
        let policy = if finalizers.contains(&ORPHAN) {
            "Orphan"
        } else if finalizers.contains(&FOREGROUND) {
            "Foreground"
        } else {
            propagation.unwrap_or("Background")
        };
        let deletion = DeleteOptions::of(&node.object).propagate(policy);
        ignore_not_found(
            self.api.delete_dynamic(&node.kind, &kai_runtime::key_of(&node.object), &deletion).await,
        )
    }
}

/// Whether no relevant field has changed. Heartbeats would cause too much work otherwise.
fn is_unchanged(one: &Value, two: &Value) -> bool {
    let same = |field: &str| object::meta(one, field) == object::meta(two, field);
    ["ownerReferences", "deletionTimestamp", "finalizers"].iter().all(|field| same(field))
}

/// Whether an owner is terminating and waits for its dependents.
fn waits_for_dependents(object: &Value) -> bool {
    let finalizers = object::finalizers(object);
    object::is_deleting(object) && (finalizers.contains(&FOREGROUND) || finalizers.contains(&ORPHAN))
}

/// A missing object, or another one with its name, is the wanted result.
fn ignore_not_found(outcome: Result<Value>) -> Result<()> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}
