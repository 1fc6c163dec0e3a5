//! Keeps `status.resourcesStatus` of pod groups: what their pods request, and what of it they hold.
//!
//! [`view`] holds what is known of pods, groups and the rest, [`counting`] says what a group amounts to, [`claim`] and
//! [`gpu_memory`] read what that needs of other objects. The rest
//! here is plumbing: who is looked at when, and when a difference is written. A pod that gets its node soon costs one
//! write, since a group that still waits for pods is not written at once (see [`patience`]).
//! Not here: conditions of pod groups, which the scheduler writes.

pub mod claim;
pub mod counting;
pub mod gpu_memory;
pub mod view;

use crate::kind::POD_GROUP;
use kai_api::Pod;
use kai_api::well_known::name;
use kai_runtime::api::{self, Api};
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, NODE, POD, PRIORITY_CLASS, RESOURCE_CLAIM, ResourceKind};
use kai_runtime::process::Process;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_runtime::watch_value::WatchValue;
use kai_runtime::work_queue::WorkQueue as Work;
use kai_runtime::writer::{Retry, Write, WritePriority, Writer};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use view::{Entry, GroupObject, View};

/// How long a group that waits for pods may differ from its status.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long changes of a group are collected before it is looked at; a gang's pods change all at once.
const PAUSE: Duration = Duration::from_millis(50);

/// How the component behaves: KAI's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only pods of this scheduler count (`scheduler-name`).
    pub scheduler_name: String,
    /// Whether the validating webhook is served (`enable-podgroup-webhook`).
    pub enable_webhook: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { scheduler_name: name::SCHEDULER.to_owned(), enable_webhook: true }
    }
}

/// Keeps the status of all pod groups. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let claims = claim_kind(&process.api).await;
    let keeper = Arc::new(Keeper {
        view: Mutex::default(),
        work: Work::default(),
        writer: process.writer.clone(),
        unread: WatchValue::new(4 + usize::from(claims.is_some())),
    });
    let (api, health) = (process.api.clone(), process.health.clone());
    let follow = Follow { api: &api, health: &health, keeper: &keeper };
    let ours = format!("fieldSelector=spec.schedulerName%3D{}", options.scheduler_name);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = follow.all::<Pod>(Source::all(POD).query(ours)) => {}
        () = follow.all::<GroupObject>(Source::all(POD_GROUP)) => {}
        () = follow.all::<view::NodeObject>(Source::all(NODE)) => {}
        () = follow.all::<view::ClassObject>(Source::all(PRIORITY_CLASS)) => {}
        () = follow.claims(claims) => {}
        () = keeper.work() => {}
    }
}

/// Feeds the view from the server.
struct Follow<'a> {
    api: &'a Api,
    health: &'a Health,
    keeper: &'a Keeper,
}

impl Follow<'_> {
    async fn all<T: Entry>(&self, source: Source) {
        let freshness = self.health.watch(&source.kind.plural);
        watch::list_and_watch(self.api, &source, &freshness, |news| self.keeper.take::<T>(news)).await;
    }

    async fn claims(&self, kind: Option<ResourceKind>) {
        match kind {
            Some(kind) => self.all::<view::ClaimObject>(Source::all(kind)).await,
            None => std::future::pending().await,
        }
    }
}

struct Keeper {
    view: Mutex<View>,
    work: Work,
    writer: Writer,
    /// How many resources have not been listed yet; half of the pods must not be counted.
    unread: WatchValue<usize>,
}

impl Keeper {
    fn take<T: Entry>(&self, news: WatchEvent<T>) {
        let mut view = self.view();
        let concerned = match news {
            WatchEvent::Listed(objects, _) => {
                let concerned = view.replace(objects);
                if view.read_first::<T>() {
                    self.unread.modify(|unread| *unread -= 1);
                }
                concerned
            }
            WatchEvent::Applied(object) => {
                let key = object.key();
                T::set(&mut view, &key, Some(object))
            }
            WatchEvent::Deleted(object) => T::set(&mut view, &object.key(), None),
            WatchEvent::Invalid(object) => T::set(&mut view, &object.key, None),
        };
        for group in concerned {
            self.work.add_after(group, PAUSE);
        }
    }

    async fn work(self: &Arc<Self>) {
        self.unread.wait_for(|unread| unread == 0).await;
        loop {
            let key = self.work.next().await;
            self.look(&key);
            self.work.done(&key);
        }
    }

    /// Compares a group with its status, and writes the difference when it is time.
    fn look(self: &Arc<Self>, key: &Key) {
        let mut view = self.view();
        let Some((wanted, waits)) = view.totals(key) else { return };
        let Some(group) = view.groups.get_mut(key).filter(|group| !group.is_written) else { return };
        let patch = wanted.patch_from(&group.stored);
        if patch.is_empty() {
            group.differs_since = None;
            return;
        }
        let now = Instant::now();
        let since = *group.differs_since.get_or_insert(now);
        if let Some(wait) = patience(now - since, waits) {
            self.work.add_after(key.clone(), wait);
            return;
        }
        group.is_written = true;
        let uid = group.uid.clone();
        drop(view);
        self.write(key, &uid, &patch);
    }

    fn write(self: &Arc<Self>, key: &Key, uid: &str, patch: &Map<String, Value>) {
        let (keeper, written) = (Arc::clone(self), key.clone());
        self.writer.submit(Write {
            priority: WritePriority::Status,
            object: (POD_GROUP, key.clone()),
            slot: Some("resources"),
            method: "PATCH",
            path: POD_GROUP.path_of(key) + "/status",
            content_type: "application/merge-patch+json",
            body: json!({"metadata": {"uid": uid}, "status": {"resourcesStatus": patch}}),
            retry: Retry::UntilAnswered,
            done: Some(Box::new(move |answer| keeper.wrote(written, answer))),
        });
    }

    fn wrote(&self, key: Key, answer: api::Result<Value>) {
        if let Some(group) = self.view().groups.get_mut(&key) {
            group.is_written = false;
        }
        match answer {
            Ok(object) => {
                self.work.forget(&key);
                if let Ok(object) = GroupObject::deserialize(&object) {
                    self.take(WatchEvent::Applied(object));
                }
                // What changed while the write was under way.
                self.work.add(key);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::debug!(%key, error = &error as &dyn std::error::Error, "will try again");
                self.work.add_rate_limited(key);
            }
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a difference that came up a while ago may still wait; none where it is to be written now.
///
/// A group all of whose pods have a node is written at once. One that waits for pods changes with the next of them,
/// and nobody acts on what it requests: its status follows a little later.
pub fn patience(differs_for: Duration, waits: bool) -> Option<Duration> {
    let left = PATIENCE.saturating_sub(differs_for);
    (waits && !left.is_zero()).then_some(left)
}

/// The version of claims on devices that the server has. Asks until it gets an answer; whether we may read claims is
/// another question, and one that following them answers.
async fn claim_kind(api: &Api) -> Option<ResourceKind> {
    loop {
        let mut answered = true;
        for version in ["v1", "v1beta2", "v1beta1"] {
            match api.send("GET", &format!("/apis/{}/{version}", RESOURCE_CLAIM.group), None).await {
                Ok(_) => return Some(ResourceKind { version: version.into(), ..RESOURCE_CLAIM }),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot ask for claims");
                    answered = false;
                }
            }
        }
        if answered {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
