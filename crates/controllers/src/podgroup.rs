//! Pod group controller: maintains `status.resourcesStatus` of pod groups, the requested and allocated resources.
//!
//! [`view`] stores pods, groups and the objects they refer to, [`counting`] computes the totals of a group, [`claim`] and
//! [`gpu_memory`] read other objects for that. This module decides when a group is reconciled and when a difference is
//! written. A pod that is bound soon costs one write, since the status of a group with pending pods is written after a
//! delay (see [`remaining_delay`]).
//! Not here: conditions of pod groups, which the scheduler writes.

pub mod claim;
pub mod counting;
pub mod gpu_memory;
pub mod view;

use kai_api::well_known::name;
use kai_api::{Pod, PodGroup};
use kai_runtime::api::{self, Api};
use kai_runtime::discovery;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, NODE, POD, PRIORITY_CLASS, ResourceKind};
use kai_runtime::metrics::controller::{ControllerMetrics, Outcome};
use kai_runtime::process::Process;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_runtime::watch_value::WatchValue;
use kai_runtime::work_queue::WorkQueue;
use kai_runtime::writer::{Retry, Write, WritePriority, Writer};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use view::{Entry, GroupObject, View};

/// As KAI's controller is called in metrics.
const CONTROLLER: &str = "podgroup";
/// How long the status of a group with pending pods may lag behind.
const STATUS_DELAY_MAX: Duration = Duration::from_secs(2);
/// Changes of a group are collected for this time; the pods of a gang change together.
const COALESCE: Duration = Duration::from_millis(50);

/// KAI's flags of the pod group controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `scheduler-name`: only pods of this scheduler are counted.
    pub scheduler_name: String,
    /// `enable-podgroup-webhook`
    pub enable_webhook: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { scheduler_name: name::SCHEDULER.to_owned(), enable_webhook: true }
    }
}

/// Runs the pod group controller. Never returns.
pub async fn run(mut process: Process, options: Options) {
    process.health.discovering();
    let claims = claim_kind(&process.api).await;
    let controller = Arc::new(StatusController {
        view: Mutex::default(),
        queue: WorkQueue::measured(CONTROLLER, &process.metrics),
        metrics: ControllerMetrics::register(CONTROLLER, 1, &process.metrics),
        writer: process.writer.clone(),
        unlisted: WatchValue::new(4 + usize::from(claims.is_some())),
    });
    let (api, health) = (process.api.clone(), process.health.clone());
    let watches = Watches { api: &api, health: &health, controller: &controller };
    let ours = format!("fieldSelector=spec.schedulerName%3D{}", options.scheduler_name);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = watches.watch::<Pod>(Source::all(POD).query(ours)) => {}
        () = watches.watch::<GroupObject>(Source::all(ResourceKind::of::<PodGroup>())) => {}
        () = watches.watch::<view::NodeObject>(Source::all(NODE)) => {}
        () = watches.watch::<view::ClassObject>(Source::all(PRIORITY_CLASS)) => {}
        () = watches.watch_claims(claims) => {}
        () = controller.process() => {}
    }
}

struct Watches<'a> {
    api: &'a Api,
    health: &'a Health,
    controller: &'a StatusController,
}

impl Watches<'_> {
    async fn watch<T: Entry>(&self, source: Source) {
        let watch_health = self.health.watch(&source.kind.plural);
        let handle = |event| self.controller.handle::<T>(event);
        watch::list_and_watch(self.api, &source, &watch_health, handle).await;
    }

    async fn watch_claims(&self, kind: Option<ResourceKind>) {
        match kind {
            Some(kind) => self.watch::<view::ClaimObject>(Source::all(kind)).await,
            None => std::future::pending().await,
        }
    }
}

struct StatusController {
    view: Mutex<View>,
    queue: WorkQueue,
    metrics: ControllerMetrics,
    writer: Writer,
    /// How many resources have not been listed yet; totals of a part of the pods must not be written.
    unlisted: WatchValue<usize>,
}

impl StatusController {
    fn handle<T: Entry>(&self, event: WatchEvent<T>) {
        let mut view = self.view();
        let affected = match event {
            WatchEvent::Listed(objects, _) => {
                let affected = view.replace(objects);
                if view.is_first_list::<T>() {
                    self.unlisted.modify(|unlisted| *unlisted -= 1);
                }
                affected
            }
            WatchEvent::Applied(object) => {
                let key = object.key();
                T::set(&mut view, &key, Some(object))
            }
            WatchEvent::Deleted(object) => T::set(&mut view, &object.key(), None),
            WatchEvent::Invalid(object) => T::set(&mut view, &object.key, None),
            WatchEvent::Denied => view.replace(Vec::<T>::new()),
        };
        for group in affected {
            self.queue.add_after(group, COALESCE);
        }
    }

    async fn process(self: &Arc<Self>) {
        self.unlisted.wait_for(|unlisted| unlisted == 0).await;
        loop {
            let key = self.queue.next().await;
            let measured = self.metrics.begin();
            self.reconcile(&key);
            // The write ends later; a failure is counted then.
            measured.end(Outcome::Success);
            self.queue.done(&key);
        }
    }

    /// Writes the difference between the totals of a group and its status once the delay is over.
    fn reconcile(self: &Arc<Self>, key: &Arc<Key>) {
        let mut view = self.view();
        let Some((desired, has_pending)) = view.totals(key) else { return };
        let Some(group) = view.groups.get_mut(key).filter(|group| !group.is_write_in_flight) else { return };
        let patch = desired.patch_from(&group.stored);
        if patch.is_empty() {
            group.differs_since = None;
            return;
        }
        let now = Instant::now();
        let since = *group.differs_since.get_or_insert(now);
        if let Some(delay) = remaining_delay(now - since, has_pending) {
            self.queue.add_after(Arc::clone(key), delay);
            return;
        }
        group.is_write_in_flight = true;
        let uid = group.uid.clone();
        drop(view);
        self.write(key, &uid, &patch);
    }

    fn write(self: &Arc<Self>, key: &Key, uid: &str, patch: &Map<String, Value>) {
        let (controller, written, kind) = (Arc::clone(self), key.clone(), ResourceKind::of::<PodGroup>());
        let path = kind.path_of(key) + "/status";
        self.writer.submit(Write {
            priority: WritePriority::Status,
            object: (kind, key.clone()),
            slot: Some("resources"),
            method: "PATCH",
            path,
            content_type: "application/merge-patch+json",
            body: json!({"metadata": {"uid": uid}, "status": {"resourcesStatus": patch}}),
            retry: Retry::UntilAnswered,
            done: Some(Box::new(move |response| controller.status_written(written, response))),
        });
    }

    fn status_written(&self, key: Key, response: api::Result<Value>) {
        match self.view().groups.get_mut(&key) {
            Some(group) => group.is_write_in_flight = false,
            // The watch has delivered the deletion before this response.
            None => return,
        }
        match response {
            Ok(object) => {
                match GroupObject::deserialize(&object) {
                    // The server was restored from a backup, and the watch has not delivered that yet: the difference stays
                    // until it does.
                    Ok(object) if view::is_older(&self.view(), &key, &object) => {
                        self.queue.add_rate_limited(key);
                        return;
                    }
                    Ok(object) => self.handle(WatchEvent::Applied(object)),
                    // The watch delivers the same state and reports it.
                    Err(error) => tracing::warn!(%key, %error, "the response is not a valid pod group"),
                }
                self.queue.forget(&key);
                // Changes during the write.
                self.queue.add(key);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::debug!(%key, error = &error as &dyn std::error::Error, "the status was not written; requeued");
                self.metrics.begin().end(Outcome::Error);
                self.queue.add_rate_limited(key);
            }
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock()
    }
}

/// How much longer the write of a difference is delayed; none where it is due.
///
/// A group all of whose pods have a node is written at once. The status of one with pending pods changes with the next
/// binding, and no component acts on its requested amounts, so it follows later.
pub fn remaining_delay(differs_for: Duration, has_pending: bool) -> Option<Duration> {
    let left = STATUS_DELAY_MAX.saturating_sub(differs_for);
    (has_pending && !left.is_zero()).then_some(left)
}

/// The served version of `resource.k8s.io`; none where the API is not served. Repeats discovery until the server responds.
pub(crate) async fn claim_kind(api: &Api) -> Option<ResourceKind> {
    loop {
        match discovery::resource_claims(api).await {
            Ok(kind) => return kind,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "discovery of resource.k8s.io failed"
                );
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
