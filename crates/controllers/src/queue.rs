//! Keeps the status and the metrics of queues: what their groups request and hold, over all levels of the tree.
//!
//! [`ledger`] adds up, `metrics` publishes. The rest here is
//! plumbing: two watches feed the ledger, and a queue whose totals may have changed is looked at a moment later, so that
//! a thousand pods that start in a second cost one write a queue.

pub mod ledger;
mod metrics;

use crate::kind::{POD_GROUP, QUEUE};
use kai_api::meta::Meta;
use kai_api::value::null_is_empty;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::kind::Key;
use kai_runtime::process::Process;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_runtime::watch_value::WatchValue;
use kai_runtime::work_queue::WorkQueue as Work;
use ledger::{Group, Ledger, Queue};
use metrics::Metrics;
use prometheus::Registry;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long changes of a queue are collected before they are written.
const PAUSE: Duration = Duration::from_secs(1);

/// How the component behaves: KAI's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the validating webhook is served (`enable-webhook`).
    pub enable_webhook: bool,
    /// Whether quotas of parents and children are compared, which gives warnings (`enable-quota-validation`).
    pub enable_quota_validation: bool,
    /// What the names of metrics begin with (`metrics-namespace`).
    pub metrics_namespace: String,
    /// Labels of queues that become labels of metrics (`queue-label-to-metric-label`).
    pub metric_labels: Vec<(String, String)>,
    /// What such a label says for queues that do not have it (`queue-label-to-default-metric-value`).
    pub metric_label_defaults: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enable_webhook: true,
            enable_quota_validation: false,
            metrics_namespace: "kai".to_owned(),
            metric_labels: Vec::new(),
            metric_label_defaults: Vec::new(),
        }
    }
}

/// A flag that should hold pairs and does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{item}` is no pair; hint: write `key=value,key=value`")]
pub struct PairsError {
    /// What is no pair.
    pub item: String,
}

/// Reads `key=value,key=value`; nothing is no pairs.
pub fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, PairsError> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pair = |item: &str| {
        let (key, value) = item.split_once('=').ok_or_else(|| PairsError { item: item.to_owned() })?;
        Ok((key.to_owned(), value.to_owned()))
    };
    items.map(pair).collect()
}

/// Whether the options name metrics and labels that can be; a process asks before it starts.
pub fn check(options: &Options) -> Result<(), prometheus::Error> {
    Metrics::new(options, &Registry::new()).map(|_| ())
}

/// Keeps the status and the metrics of all queues. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let metrics = Metrics::new(&options, &process.metrics);
    let metrics = metrics.inspect_err(|error| tracing::error!(%error, "queues have no metrics")).ok();
    let keeper = Keeper {
        api: process.api.clone(),
        ledger: Mutex::default(),
        metrics: Mutex::new(metrics),
        work: Work::default(),
        read: WatchValue::new(Read::default()),
    };
    let (groups, queues) = (Source::all(POD_GROUP), Source::all(QUEUE));
    let group_news = process.health.watch(&POD_GROUP.plural);
    let queue_news = process.health.watch(&QUEUE.plural);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = watch::list_and_watch(&keeper.api, &groups, &group_news, |news| keeper.groups_changed(news)) => {}
        () = watch::list_and_watch(&keeper.api, &queues, &queue_news, |news| keeper.queues_changed(news)) => {}
        () = keeper.work() => {}
    }
}

/// What has been read; totals of half of the groups must not be written.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    groups: bool,
    queues: bool,
}

struct Keeper {
    api: Api,
    ledger: Mutex<Ledger>,
    metrics: Mutex<Option<Metrics>>,
    work: Work,
    read: WatchValue<Read>,
}

/// A pod group, as far as it counts here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupObject {
    #[serde(deserialize_with = "null_is_empty")]
    metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    spec: GroupSpec,
    #[serde(deserialize_with = "null_is_empty")]
    status: GroupStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupSpec {
    #[serde(deserialize_with = "null_is_empty")]
    queue: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupStatus {
    #[serde(deserialize_with = "null_is_empty")]
    resources_status: kai_api::pod_group::PodGroupResources,
}

impl Keeper {
    fn groups_changed(&self, news: WatchEvent<GroupObject>) {
        let mut ledger = self.ledger();
        let read = |object: GroupObject| {
            let key = Key::new(&object.metadata.namespace, &object.metadata.name);
            (key, Group::new(object.spec.queue, &object.status.resources_status))
        };
        let stale = match news {
            WatchEvent::Listed(objects, _) => {
                let stale = ledger.replace_groups(objects.into_iter().map(read));
                self.read.modify(|known| known.groups = true);
                stale
            }
            WatchEvent::Applied(object) => {
                let (key, group) = read(object);
                ledger.set_group(key, Some(group))
            }
            WatchEvent::Deleted(object) => ledger.set_group(read(object).0, None),
            WatchEvent::Invalid(object) => ledger.set_group(object.key, None),
        };
        self.look_at(stale);
    }

    fn queues_changed(&self, news: WatchEvent<kai_api::Queue>) {
        let mut ledger = self.ledger();
        let stale = match news {
            WatchEvent::Listed(objects, _) => {
                let stale = ledger.replace_queues(objects.into_iter().map(Queue::read));
                self.read.modify(|known| known.queues = true);
                stale
            }
            WatchEvent::Applied(object) => {
                let (name, queue) = Queue::read(object);
                ledger.set_queue(&name, Some(queue))
            }
            WatchEvent::Deleted(object) => ledger.set_queue(&Queue::read(object).0, None),
            WatchEvent::Invalid(object) => ledger.set_queue(&object.key.name, None),
        };
        self.look_at(stale);
    }

    fn look_at(&self, queues: impl IntoIterator<Item = String>) {
        for queue in queues {
            self.work.add_after(Key::new("", &queue), PAUSE);
        }
    }

    async fn work(&self) {
        self.read.wait_for(|read| read.groups && read.queues).await;
        loop {
            let key = self.work.next().await;
            let outcome = self.keep(&key.name).await;
            self.work.done(&key);
            match outcome {
                Ok(()) => self.work.forget(&key),
                Err(error) => {
                    tracing::debug!(
                        queue = key.name,
                        error = &error as &dyn std::error::Error,
                        "will try again"
                    );
                    self.work.add_rate_limited(key);
                }
            }
        }
    }

    async fn keep(&self, name: &str) -> api::Result<()> {
        let Some((uid, patch)) = self.refresh(name) else { return Ok(()) };
        if patch.is_empty() {
            return Ok(());
        }
        let body = json!({"metadata": {"uid": uid}, "status": patch});
        match self.api.patch_dynamic(&QUEUE, &Key::new("", name), Part::Status, &body).await {
            Ok(written) => {
                if let Ok(written) = kai_api::Queue::deserialize(&written) {
                    let (name, queue) = Queue::read(written);
                    let stale = self.ledger().set_queue(&name, Some(queue));
                    self.look_at(stale);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Publishes what a queue holds, and says what its status must change; nothing where there is no such queue.
    fn refresh(&self, name: &str) -> Option<(String, Map<String, Value>)> {
        let mut ledger = self.ledger();
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(desired) = ledger.desired(name) else {
            metrics.iter_mut().for_each(|metrics| metrics.forget(name));
            return None;
        };
        let queue = ledger.queue(name)?;
        metrics.iter_mut().for_each(|metrics| metrics.publish(name, queue, &desired.totals));
        Some((queue.uid.clone(), desired.patch_from(queue)))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_what_is_none_is_named() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse_pairs("a=b,c=d=e"), Ok(vec![pair("a", "b"), pair("c", "d=e")]));
        assert_eq!(parse_pairs(""), Ok(Vec::new()));
        assert_eq!(parse_pairs("a=b,c"), Err(PairsError { item: "c".to_owned() }));
    }
}
