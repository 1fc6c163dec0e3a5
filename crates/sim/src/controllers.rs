//! The controllers of kube-controller-manager, one module each. They share one set of informers.

pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod disruption;
pub mod garbage_collector;
pub mod job;
pub mod namespace;
pub mod node_lifecycle;
pub mod persistent_volume;
pub mod pod;
pub mod pod_gc;
pub mod replica_set;
pub mod resource_claim;
pub mod revision;
pub mod service_account;
pub mod stateful_set;
pub mod time;

use crate::connection::Connection;
use crate::event::{self, Source};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::controller::{self, Context, DynamicController};
use kai_runtime::health::Health;
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::kind;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Client name of the controllers.
pub const CLIENT: &str = "kube-controller-manager";

/// Runs all controllers. Never returns; dropping it stops them.
///
/// They read through one client, and each writes through its own child of it. `authority` is the CA certificate of the
/// API server, for `kube-root-ca.crt`.
pub async fn run(connection: Connection, clock: Clock, authority: Option<Arc<str>>) {
    let api = Api::new(connection.client(), CLIENT);
    let kinds = [
        kind::POD,
        kind::NODE,
        kind::NAMESPACE,
        kind::SERVICE_ACCOUNT,
        kind::CONFIG_MAP,
        kind::PERSISTENT_VOLUME_CLAIM,
        kind::PERSISTENT_VOLUME,
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
    let informers =
        Arc::new(Informers::dynamic_of(kinds.map(|kind| Informer::dynamic(kind).without_bookmarks())));
    let mut controllers =
        Controllers { connection, informers: Arc::clone(&informers), clock, tasks: JoinSet::new() };
    controllers.add(|| job::JobController);
    controllers.add(|| cron_job::CronJobController);
    controllers.add(|| replica_set::ReplicaSetController);
    controllers.add(|| deployment::DeploymentController);
    controllers.add(|| stateful_set::StatefulSetController);
    controllers.add(|| daemon_set::DaemonSetController);
    controllers.add(|| namespace::NamespaceController);
    controllers.add(move || service_account::ServiceAccountController::new(authority.clone()));
    controllers.add(|| node_lifecycle::NodeLifecycleController);
    controllers.add(|| node_lifecycle::TaintEvictionController);
    controllers.add(pod_gc::PodGarbageCollector::default);
    controllers.add(|| persistent_volume::PersistentVolumeController);
    controllers.add(|| resource_claim::ResourceClaimController);
    controllers.add(|| disruption::DisruptionController);
    let mut tasks = controllers.tasks;
    let collector = controllers.connection.child("garbagecollector");
    let shared = Arc::clone(&informers);
    tasks.spawn(collector.supervise(move |connection| {
        garbage_collector::run(Api::new(connection.client(), CLIENT), Arc::clone(&shared))
    }));
    informers.start(&api, &Health::default(), &mut tasks);
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Running controllers; each is restarted after an injected crash.
struct Controllers {
    connection: Connection,
    informers: Arc<Informers>,
    clock: Clock,
    tasks: JoinSet<()>,
}

impl Controllers {
    fn add<C: DynamicController>(&mut self, make: impl Fn() -> C + Send + Sync + 'static) {
        let (informers, clock) = (Arc::clone(&self.informers), self.clock);
        self.tasks.spawn(self.connection.child(C::NAME).supervise(move |connection| {
            let api = Api::new(connection.client(), CLIENT);
            let source = Source { component: format!("{}-controller", C::NAME), host: None };
            let (events, writer) = event::recorder(api.clone(), clock, source);
            let running = controller::run_dynamic(
                make(),
                Context {
                    events: Some(Arc::new(events)),
                    ..Context::new(api, Arc::clone(&informers), clock)
                },
            );
            async move {
                tokio::join!(running, writer.run());
            }
        }));
    }
}

/// A controller owner reference to `owner`.
pub(crate) fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": object::api_version(owner), "kind": object::kind(owner), "name": object::name(owner),
        "uid": object::uid(owner), "controller": true, "blockOwnerDeletion": true,
    })
}

pub(crate) fn int_at(object: &Value, pointer: &str, default: i64) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
}

/// The value of an annotation; empty where it is missing.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object::meta(object, "annotations")
        .and_then(|annotations| annotations.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The value of a label; empty where it is missing.
pub(crate) fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    let labels = object::meta(object, "labels");
    labels.and_then(|labels| labels.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// Sets an entry of a map in the metadata, such as `labels`.
pub(crate) fn set_entry(object: &mut Value, map: &str, name: &str, value: &str) {
    let entries = object::meta_mut(object).entry(map).or_insert_with(|| json!({}));
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(name.to_owned(), Value::from(value));
    }
}

pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// Whether the status of a condition is `True`.
pub(crate) fn has_condition(object: &Value, name: &str) -> bool {
    condition(object, name).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition in a status; `lastTransitionTime` is kept where the status does not change.
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
