//! The controllers people expect of a cluster, each a small module; they share one client and one set of caches.

pub mod claim;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod disruption;
pub mod garbage;
pub mod job;
pub mod namespace;
pub mod node_lifecycle;
pub mod pod;
pub mod pod_garbage;
pub mod replica_set;
pub mod revision;
pub mod service_account;
pub mod stateful_set;
pub mod time;
pub mod volume;

use crate::connection::Connection;
use crate::event::{self, Source};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::cache::{Caches, Watched};
use kai_runtime::controller::{self, Context, Controller};
use kai_runtime::health::Health;
use kai_runtime::kind;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// What the controllers call themselves to the server.
pub const CLIENT: &str = "kube-controller-manager";

/// Runs all controllers. Never returns; when it is dropped they stop.
///
/// They read through one client, and each writes through its own below it.
///
/// `authority` is the certificate that pods are to trust the server by.
pub async fn run(way: Connection, clock: Clock, authority: Option<Arc<str>>) {
    let api = Api::new(way.client(), CLIENT);
    let kinds = [
        kind::POD,
        kind::NODE,
        kind::NAMESPACE,
        kind::SERVICE_ACCOUNT,
        kind::CONFIG_MAP,
        kind::VOLUME_CLAIM,
        kind::VOLUME,
        kind::STORAGE_CLASS,
        kind::JOB,
        kind::CRON_JOB,
        kind::REPLICA_SET,
        kind::DEPLOYMENT,
        kind::STATEFUL_SET,
        kind::DAEMON_SET,
        kind::CONTROLLER_REVISION,
        kind::LEASE,
        kind::POD_DISRUPTION_BUDGET,
        kind::RESOURCE_CLAIM,
        kind::RESOURCE_CLAIM_TEMPLATE,
    ];
    let caches = Arc::new(Caches::new(kinds.map(|kind| Watched::all(kind).without_bookmarks())));
    let mut started = Started { way, caches: Arc::clone(&caches), clock, tasks: JoinSet::new() };
    started.add(|| job::Jobs);
    started.add(|| cron_job::CronJobs);
    started.add(|| replica_set::ReplicaSets);
    started.add(|| deployment::Deployments);
    started.add(|| stateful_set::StatefulSets);
    started.add(|| daemon_set::DaemonSets);
    started.add(|| namespace::Namespaces);
    started.add(move || service_account::ServiceAccounts::new(authority.clone()));
    started.add(|| node_lifecycle::NodeLifecycle);
    started.add(|| node_lifecycle::TaintEviction);
    started.add(pod_garbage::PodGarbage::default);
    started.add(|| volume::Volumes);
    started.add(|| claim::Claims);
    started.add(|| disruption::Budgets);
    let mut tasks = started.tasks;
    let garbage = started.way.below("garbagecollector");
    let shared = Arc::clone(&caches);
    tasks.spawn(
        garbage.supervise(move |way| garbage::run(Api::new(way.client(), CLIENT), Arc::clone(&shared))),
    );
    caches.follow(&api, &Health::default(), &mut tasks);
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Controllers that run, each until it crashes and is started again.
struct Started {
    way: Connection,
    caches: Arc<Caches>,
    clock: Clock,
    tasks: JoinSet<()>,
}

impl Started {
    fn add<C: Controller>(&mut self, make: impl Fn() -> C + Send + Sync + 'static) {
        let (caches, clock) = (Arc::clone(&self.caches), self.clock);
        self.tasks.spawn(self.way.below(C::NAME).supervise(move |way| {
            let api = Api::new(way.client(), CLIENT);
            let source = Source { component: format!("{}-controller", C::NAME), host: None };
            let (events, recording) = event::recorder(api.clone(), clock, source);
            let running = controller::run(
                make(),
                Context { events: Some(Arc::new(events)), ..Context::new(api, Arc::clone(&caches), clock) },
            );
            async move {
                tokio::join!(running, recording.run());
            }
        }));
    }
}

/// The reference with which an object says who controls it.
pub(crate) fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": object::api_version(owner), "kind": object::kind(owner), "name": object::name(owner),
        "uid": object::uid(owner), "controller": true, "blockOwnerDeletion": true,
    })
}

/// An integer at a pointer, or what counts where there is none.
pub(crate) fn int_at(object: &Value, pointer: &str, default: i64) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
}

/// An annotation; empty where it is missing.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object::meta(object, "annotations")
        .and_then(|annotations| annotations.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A label; empty where it is missing.
pub(crate) fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    let labels = object::meta(object, "labels");
    labels.and_then(|labels| labels.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// Sets an entry of a map of the metadata, such as a label.
pub(crate) fn set_entry(object: &mut Value, map: &str, name: &str, value: &str) {
    let entries = object::meta_mut(object).entry(map).or_insert_with(|| json!({}));
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(name.to_owned(), Value::from(value));
    }
}

/// The status of a condition; nothing where there is none.
pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// Whether a condition holds.
pub(crate) fn holds(object: &Value, name: &str) -> bool {
    condition(object, name).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition in a status; the time of its transition stays when it does.
pub(crate) fn set_condition(status: &mut Value, mut wanted: Value) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == wanted["type"]) {
        Some(known) => {
            if known["status"] == wanted["status"] {
                wanted["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = wanted;
        }
        None => conditions.push(wanted),
    }
}
