//! Deletes objects whose owners are gone, and carries out what deletions say of dependents.
//!
//! It follows every resource there is, custom ones too, but keeps only who owns whom; what controllers watch already
//! it hears from their caches. An owner that is not known is
//! asked for at the server before anything is deleted: news may be late.

use kai_object as object;
use kai_runtime::api::{Api, Deletion, Part, Result};
use kai_runtime::cache::{Caches, Interest, Watched};
use kai_runtime::controller::Next;
use kai_runtime::health::Health;
use kai_runtime::kind::{DEFINITION, Key, Kind};
use kai_runtime::queue::Queue;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Events are many, and nobody owns them.
const IGNORED: &str = "events";
/// The owner waits until its dependents are gone.
const FOREGROUND: &str = "foregroundDeletion";
/// The owner waits until its dependents have been let go.
const ORPHAN: &str = "orphan";
/// How long to wait after discovery failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Every resource whose objects can be listed, watched and deleted, in its preferred version: that of its group, where
/// the group has the resource in it.
pub async fn discover(api: &Api) -> Result<Vec<Kind>> {
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
    let mut kinds: Vec<Kind> = Vec::new();
    for (group, version) in versions {
        let path = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
        let list = api.send("GET", &path, None).await?;
        for resource in list["resources"].as_array().into_iter().flatten() {
            let verbs: Vec<&str> =
                resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let name = object::str_at(resource, "/name");
            let can = ["list", "watch", "delete"].iter().all(|verb| verbs.contains(verb));
            let known = kinds.iter().any(|kind| *kind.group == *group && *kind.plural == *name);
            if can && !name.contains('/') && !known {
                kinds.push(Kind {
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

/// Keeps of an object what says who it is and who owns it.
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

/// Who owns whom, over all resources.
#[derive(Debug, Default)]
struct Graph {
    /// What is known of each uid.
    nodes: FxHashMap<String, Node>,
    dependents: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    object: Arc<Value>,
}

#[derive(Debug)]
struct Collector {
    api: Api,
    /// What controllers watch.
    shared: Arc<Caches>,
    graph: Mutex<Graph>,
    queue: Queue,
    /// The resources there are.
    kinds: Mutex<BTreeSet<Kind>>,
    /// Tells that there may be others.
    defined: Notify,
}

/// Collects garbage. Never returns.
pub async fn run(api: Api, shared: Arc<Caches>) {
    let collector = Arc::new(Collector {
        api: api.clone(),
        shared,
        graph: Mutex::default(),
        queue: Queue::default(),
        kinds: Mutex::default(),
        defined: Notify::new(),
    });
    let mut followed: BTreeMap<Kind, JoinSet<()>> = BTreeMap::new();
    let working = Arc::clone(&collector);
    let mut work = JoinSet::new();
    work.spawn(async move { working.work().await });
    loop {
        match discover(&api).await {
            Ok(kinds) => {
                let kinds: BTreeSet<Kind> = kinds.into_iter().filter(|kind| kind.plural != IGNORED).collect();
                kinds.clone_into(&mut collector.kinds.lock().unwrap_or_else(PoisonError::into_inner));
                // Dropping a set ends its tasks.
                followed.retain(|kind, _| kinds.contains(kind));
                for kind in kinds {
                    followed.entry(kind.clone()).or_insert_with(|| follow(&collector, &kind));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "discovery failed");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        collector.defined.notified().await;
        // A definition takes a moment to be served.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Hears of all objects of a resource from now on; where nobody else watches it, for as long as the tasks run.
fn follow(collector: &Arc<Collector>, kind: &Kind) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if collector.shared.has(kind) {
        listen(collector, &collector.shared, kind);
        for object in collector.shared.all(kind) {
            collector.note(kind, &object, Some(Arc::clone(&object)));
        }
        return tasks;
    }
    let caches =
        Arc::new(Caches::new([Watched::all(kind.clone()).without_bookmarks().keeping(keep_ownership)]));
    listen(collector, &caches, kind);
    caches.follow(&collector.api, &Health::default(), &mut tasks);
    tasks
}

fn listen(collector: &Arc<Collector>, caches: &Arc<Caches>, kind: &Kind) {
    let (weak, noting) = (Arc::downgrade(caches), Arc::downgrade(collector));
    let listener = move |kind: &Kind, object: &Value| {
        let (Some(caches), Some(noting)) = (weak.upgrade(), noting.upgrade()) else {
            return Interest::Ended;
        };
        if *kind == DEFINITION {
            noting.defined.notify_one();
        }
        let now = caches.get(kind, &Key::of(object)).filter(|now| object::uid(now) == object::uid(object));
        noting.note(kind, object, now);
        Interest::Stays
    };
    caches.listen(kind, Box::new(listener));
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object::meta(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

impl Collector {
    /// Notes what became of an object, and looks at whom that concerns.
    fn note(&self, kind: &Kind, object: &Value, now: Option<Arc<Value>>) {
        let uid = object::uid(object).to_owned();
        let mut wake = Vec::new();
        {
            let mut graph = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(known), Some(now)) = (graph.nodes.get_mut(&uid), &now)
                && stands_the_same(&known.object, now)
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
                    wake.push(owner.to_owned());
                }
            }
            match now {
                Some(now) => {
                    for owner in owners(&now) {
                        let owner = object::str_at(owner, "/uid").to_owned();
                        graph.dependents.entry(owner).or_default().insert(uid.clone());
                    }
                    let concerns = owners(&now).next().is_some() || waits(&now);
                    graph.nodes.insert(uid.clone(), Node { kind: kind.clone(), object: now });
                    if concerns {
                        wake.push(uid);
                    }
                }
                None => wake.extend(graph.dependents.get(&uid).into_iter().flatten().cloned()),
            }
        }
        for uid in wake {
            self.queue.add(Key::new("", &uid));
        }
    }

    async fn work(&self) {
        loop {
            let key = self.queue.next().await;
            let looked = self.look_at(&key.name).await;
            self.queue.done(&key);
            match looked {
                Ok(next) => {
                    self.queue.forgive(&key);
                    if let Next::After(wait) = next {
                        self.queue.add_after(key, wait);
                    }
                }
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "will collect again");
                    self.queue.add_failed(key);
                }
            }
        }
    }

    fn node(&self, uid: &str) -> Option<Node> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner).nodes.get(uid).cloned()
    }

    fn dependents(&self, uid: &str) -> Vec<Node> {
        let graph = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
        let uids = graph.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| graph.nodes.get(uid).cloned()).collect()
    }

    async fn look_at(&self, uid: &str) -> Result<Next> {
        let Some(node) = self.node(uid) else { return Ok(Next::Wait) };
        if object::is_deleting(&node.object) {
            let finalizers = object::finalizers(&node.object);
            if finalizers.contains(&ORPHAN) {
                self.orphan(uid, &node).await?;
            } else if finalizers.contains(&FOREGROUND) {
                self.delete_dependents(uid, &node).await?;
            }
            return Ok(Next::Wait);
        }
        self.collect(&node).await
    }

    /// Lets all dependents go on without their owner, and then the owner go.
    async fn orphan(&self, uid: &str, node: &Node) -> Result<()> {
        for dependent in self.dependents(uid) {
            let left: Vec<&Value> =
                owners(&dependent.object).filter(|owner| object::str_at(owner, "/uid") != uid).collect();
            let patch = json!({"metadata": {"uid": object::uid(&dependent.object), "ownerReferences": left}});
            gone_is_fine(
                self.api.merge(&dependent.kind, &Key::of(&dependent.object), Part::Main, &patch).await,
            )?;
        }
        self.drop_finalizer(node, ORPHAN).await
    }

    /// Deletes all dependents first; those that block the owner must be gone before it goes.
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
        gone_is_fine(self.api.merge(&node.kind, &Key::of(&node.object), Part::Main, &patch).await)
    }

    /// Deletes an object none of whose owners is there any more.
    async fn collect(&self, node: &Node) -> Result<Next> {
        let mut any = false;
        for owner in owners(&node.object) {
            any = true;
            let uid = object::str_at(owner, "/uid");
            let known = self.node(uid);
            let waiting = known.as_ref().is_some_and(|owner| waits(&owner.object));
            if waiting || (known.is_none() && self.is_gone(&node.object, owner).await?) {
                continue;
            }
            return Ok(Next::Wait);
        }
        if any {
            self.delete(node, None).await?;
        }
        Ok(Next::Wait)
    }

    /// Whether the server has no such owner.
    async fn is_gone(&self, dependent: &Value, owner: &Value) -> Result<bool> {
        let (group_version, kind) = (object::str_at(owner, "/apiVersion"), object::str_at(owner, "/kind"));
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(kind) = kinds.into_iter().find(|known| known.group == group && known.kind == kind) else {
            // A kind that nobody serves may come back; its objects are not garbage.
            return Ok(false);
        };
        let kind = Kind { version: version.to_owned().into(), ..kind };
        let namespace = if kind.namespaced { object::namespace(dependent) } else { "" };
        match self.api.get(&kind, &Key::new(namespace, object::str_at(owner, "/name"))).await {
            Ok(found) => Ok(object::uid(&found) != object::str_at(owner, "/uid")),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, node: &Node, propagation: Option<&'static str>) -> Result<()> {
        // An object that waits for its own dependents keeps doing so.
        let finalizers = object::finalizers(&node.object);
        let policy = if finalizers.contains(&ORPHAN) {
            "Orphan"
        } else if finalizers.contains(&FOREGROUND) {
            "Foreground"
        } else {
            propagation.unwrap_or("Background")
        };
        let how = Deletion::of(&node.object).propagate(policy);
        gone_is_fine(self.api.delete(&node.kind, &Key::of(&node.object), &how).await)
    }
}

/// Whether nothing has changed that matters here: heartbeats alone would keep the collector busy.
fn stands_the_same(one: &Value, two: &Value) -> bool {
    let same = |field: &str| object::meta(one, field) == object::meta(two, field);
    ["ownerReferences", "deletionTimestamp", "finalizers"].iter().all(|field| same(field))
}

/// Whether an owner is on its way out and waits for its dependents.
fn waits(object: &Value) -> bool {
    let finalizers = object::finalizers(object);
    object::is_deleting(object) && (finalizers.contains(&FOREGROUND) || finalizers.contains(&ORPHAN))
}

/// Somebody else was faster, or another object has the name: both are as good.
fn gone_is_fine(outcome: Result<Value>) -> Result<()> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}
