//! Queue controller: maintains the status and the metrics of queues over all levels of the queue tree.
//!
//! [`ledger`] sums the resources of pod groups, `metrics` publishes them. Two watches feed the ledger; a queue whose totals
//! may have changed is reconciled after a delay, so that many changes in a second cost one write per queue.

pub mod ledger;
mod metrics;

use kai_api::PodGroup;
use kai_api::meta::Meta;
use kai_api::value::null_is_empty;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::kind::{Key, ResourceKind};
use kai_runtime::metrics::controller::{ControllerMetrics, Outcome};
use kai_runtime::process::Process;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_runtime::watch_value::WatchValue;
use kai_runtime::work_queue::WorkQueue;
use ledger::{Group, Ledger, Queue};
use metrics::Metrics;
use parking_lot::{Mutex, MutexGuard};
use prometheus::Registry;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// As KAI's controller is called in metrics.
const CONTROLLER: &str = "queue";
/// Changes of a queue are collected for this time before they are written.
const COALESCE: Duration = Duration::from_secs(1);

/// KAI's flags of the queue controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `enable-webhook`
    pub enable_webhook: bool,
    /// `enable-quota-validation`: whether the webhook compares quotas of parents and children.
    pub enable_quota_validation: bool,
    /// `metrics-namespace`
    pub metrics_namespace: String,
    /// `queue-label-to-metric-label`: labels of queues that become labels of metrics.
    pub metric_labels: Vec<(String, String)>,
    /// `queue-label-to-default-metric-value`: values for queues without such a label.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{item}` is no pair; hint: write `key=value,key=value`")]
pub struct PairsError {
    pub item: String,
}

/// Parses `key=value,key=value`; an empty text has no pairs.
pub fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, PairsError> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pair = |item: &str| {
        let (key, value) = item.split_once('=').ok_or_else(|| PairsError { item: item.to_owned() })?;
        Ok((key.to_owned(), value.to_owned()))
    };
    items.map(pair).collect()
}

/// Validates metric and label names before the process starts.
pub fn check(options: &Options) -> Result<(), prometheus::Error> {
    Metrics::new(options, &Registry::new()).map(|_| ())
}

/// Runs the queue controller. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let metrics = Metrics::new(&options, &process.metrics);
    let metrics = metrics.inspect_err(|error| tracing::error!(%error, "metrics of queues are disabled")).ok();
    let controller = StatusController {
        api: process.api.clone(),
        ledger: Mutex::default(),
        metrics: Mutex::new(metrics),
        queue: WorkQueue::measured(CONTROLLER, &process.metrics),
        controller_metrics: ControllerMetrics::register(CONTROLLER, 1, &process.metrics),
        listed: WatchValue::new(Listed::default()),
    };
    let groups = Source::all(ResourceKind::of::<PodGroup>());
    let queues = Source::all(ResourceKind::of::<kai_api::Queue>());
    let group_health = process.health.watch(&groups.kind.plural);
    let queue_health = process.health.watch(&queues.kind.plural);
    let groups_changed = |event| controller.groups_changed(event);
    let queues_changed = |event| controller.queues_changed(event);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = watch::list_and_watch(&controller.api, &groups, &group_health, groups_changed) => {}
        () = watch::list_and_watch(&controller.api, &queues, &queue_health, queues_changed) => {}
        () = controller.process() => {}
    }
}

/// Which resources have been listed; totals of a part of the groups must not be written.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    groups: bool,
    queues: bool,
}

struct StatusController {
    api: Api,
    ledger: Mutex<Ledger>,
    metrics: Mutex<Option<Metrics>>,
    queue: WorkQueue,
    controller_metrics: ControllerMetrics,
    listed: WatchValue<Listed>,
}

/// The fields of a pod group that are counted.
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

impl StatusController {
    fn groups_changed(&self, event: WatchEvent<GroupObject>) {
        let mut ledger = self.ledger();
        let read = |object: GroupObject| {
            let key = Key::new(&*object.metadata.namespace, &*object.metadata.name);
            (key, Group::new(object.spec.queue, &object.status.resources_status))
        };
        let affected = match event {
            WatchEvent::Listed(objects, _) => {
                let affected = ledger.replace_groups(objects.into_iter().map(read));
                self.listed.modify(|listed| listed.groups = true);
                affected
            }
            WatchEvent::Applied(object) => {
                let (key, group) = read(object);
                ledger.set_group(key, Some(group))
            }
            WatchEvent::Deleted(object) => ledger.set_group(read(object).0, None),
            WatchEvent::Invalid(object) => ledger.set_group(object.key, None),
            WatchEvent::Denied => ledger.replace_groups(std::iter::empty()),
        };
        self.enqueue(affected);
    }

    fn queues_changed(&self, event: WatchEvent<kai_api::Queue>) {
        let mut ledger = self.ledger();
        let affected = match event {
            WatchEvent::Listed(objects, _) => {
                let affected = ledger.replace_queues(objects.into_iter().map(Queue::read));
                self.listed.modify(|listed| listed.queues = true);
                affected
            }
            WatchEvent::Applied(object) => {
                let (name, queue) = Queue::read(object);
                ledger.set_queue(&name, Some(queue))
            }
            WatchEvent::Deleted(object) => ledger.set_queue(&Queue::read(object).0, None),
            WatchEvent::Invalid(object) => ledger.set_queue(&object.key.name, None),
            WatchEvent::Denied => ledger.replace_queues(std::iter::empty()),
        };
        self.enqueue(affected);
    }

    fn enqueue(&self, queues: impl IntoIterator<Item = String>) {
        for queue in queues {
            self.queue.add_after(Key::new("", &queue), COALESCE);
        }
    }

    async fn process(&self) {
        self.listed.wait_for(|listed| listed.groups && listed.queues).await;
        loop {
            let key = self.queue.next().await;
            let measured = self.controller_metrics.begin();
            let outcome = self.reconcile(&key.name).await;
            measured.end(if outcome.is_ok() { Outcome::Success } else { Outcome::Error });
            self.queue.done(&key);
            match outcome {
                Ok(()) => self.queue.forget(&key),
                Err(error) => {
                    tracing::debug!(
                        queue = key.name,
                        error = &error as &dyn std::error::Error,
                        "the status was not written; requeued"
                    );
                    self.queue.add_rate_limited(key);
                }
            }
        }
    }

    async fn reconcile(&self, name: &str) -> api::Result<()> {
        let Some((uid, patch)) = self.refresh(name) else { return Ok(()) };
        if patch.is_empty() {
            return Ok(());
        }
        let body = json!({"metadata": {"uid": uid}, "status": patch});
        match self.api.patch::<kai_api::Queue>(&Key::new("", name), Part::Status, &body).await {
            Ok(written) => {
                let (name, queue) = Queue::read(written);
                let mut ledger = self.ledger();
                // The watch may have delivered the deletion before this response.
                if ledger.queue(&name).is_some_and(|known| known.uid == queue.uid) {
                    let affected = ledger.set_queue(&name, Some(queue));
                    self.enqueue(affected);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Publishes the metrics of a queue and returns the patch of its status; none where the queue does not exist.
    fn refresh(&self, name: &str) -> Option<(String, Map<String, Value>)> {
        let mut ledger = self.ledger();
        let mut metrics = self.metrics.lock();
        let Some(desired) = ledger.desired(name) else {
            metrics.iter_mut().for_each(|metrics| metrics.remove(name));
            return None;
        };
        let queue = ledger.queue(name)?;
        metrics.iter_mut().for_each(|metrics| metrics.publish(name, queue, &desired.totals));
        Some((queue.uid.clone(), desired.patch_from(queue)))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_parsed_and_the_first_invalid_item_is_named() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse_pairs("a=b,c=d=e"), Ok(vec![pair("a", "b"), pair("c", "d=e")]));
        assert_eq!(parse_pairs(""), Ok(Vec::new()));
        assert_eq!(parse_pairs("a=b,c"), Err(PairsError { item: "c".to_owned() }));
    }
}
