//! Queue controller: maintains the status and the metrics of queues over all levels of the queue tree.
//!
//! [`ledger`] sums the resources of pod groups, `metrics` publishes them. Two watches feed the ledger; a queue whose totals
//! may have changed is reconciled after a delay, so that many changes in a second cost one write per queue.

pub mod implicit;
pub mod ledger;
mod metrics;

use implicit::{ClassObject, ImplicitPods};
use kai_api::meta::Meta;
use kai_api::value::null_is_empty;
use kai_api::{Pod, PodGroup};
use kai_runtime::api::{self, Api, Part};
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, POD, PRIORITY_CLASS, ResourceKind};
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
    /// Which pods count without a pod group.
    pub implicit_groups: implicit::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enable_webhook: true,
            enable_quota_validation: false,
            metrics_namespace: "kai".to_owned(),
            metric_labels: Vec::new(),
            metric_label_defaults: Vec::new(),
            implicit_groups: implicit::Options::default(),
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
    let is_implicit = !options.implicit_groups.node_pools.is_empty();
    let controller = StatusController {
        api: process.api.clone(),
        ledger: Mutex::new(if is_implicit { Ledger::with_implicit_groups() } else { Ledger::default() }),
        implicit: Mutex::new(ImplicitPods::new(options.implicit_groups.clone())),
        metrics: Mutex::new(metrics),
        queue: WorkQueue::measured(CONTROLLER, &process.metrics),
        controller_metrics: ControllerMetrics::register(CONTROLLER, 1, &process.metrics),
        listed: WatchValue::new(Listed { pods: !is_implicit, classes: !is_implicit, ..Listed::default() }),
    };
    let groups = Source::all(ResourceKind::of::<PodGroup>());
    let queues = Source::all(ResourceKind::of::<kai_api::Queue>());
    let group_health = process.health.watch(&groups.kind.plural);
    let queue_health = process.health.watch(&queues.kind.plural);
    let health = process.health.clone();
    let groups_changed = |event| controller.groups_changed(event);
    let queues_changed = |event| controller.queues_changed(event);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = watch::list_and_watch(&controller.api, &groups, &group_health, groups_changed) => {}
        () = watch::list_and_watch(&controller.api, &queues, &queue_health, queues_changed) => {}
        () = controller.watch_pods(&health, &options.implicit_groups.scheduler_name), if is_implicit => {}
        () = controller.watch_classes(&health), if is_implicit => {}
        () = controller.process() => {}
    }
}

/// Which resources have been listed; totals of a part of the groups must not be written.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent lists")]
struct Listed {
    groups: bool,
    queues: bool,
    /// These two where pods count without a pod group.
    pods: bool,
    classes: bool,
}

impl Listed {
    fn is_complete(self) -> bool {
        self.groups && self.queues && self.pods && self.classes
    }
}

struct StatusController {
    api: Api,
    ledger: Mutex<Ledger>,
    implicit: Mutex<ImplicitPods>,
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
                ledger.set_object(key, Some(group))
            }
            WatchEvent::Deleted(object) => ledger.set_object(read(object).0, None),
            WatchEvent::Invalid(object) => ledger.set_object(object.key, None),
            WatchEvent::Denied => ledger.replace_groups(std::iter::empty()),
        };
        self.enqueue(affected);
    }

    async fn watch_pods(&self, health: &Health, scheduler_name: &str) {
        let ours = format!("fieldSelector=spec.schedulerName%3D{scheduler_name}");
        let source = Source::all(POD).query(ours);
        let changed = |event: WatchEvent<Pod>| {
            let key = |pod: &Pod| Key::new(&*pod.metadata.namespace, &*pod.metadata.name);
            let mut pods = self.implicit.lock();
            let changes = match event {
                WatchEvent::Listed(all, _) => {
                    let changes = pods.replace_pods(&all);
                    self.listed.modify(|listed| listed.pods = true);
                    changes
                }
                WatchEvent::Applied(pod) => pods.set_pod(&key(&pod), Some(&pod)),
                WatchEvent::Deleted(pod) => pods.set_pod(&key(&pod), None),
                WatchEvent::Invalid(object) => pods.set_pod(&object.key, None),
                WatchEvent::Denied => pods.replace_pods(&[]),
            };
            self.count(changes);
        };
        watch::list_and_watch(&self.api, &source, &health.watch(&source.kind.plural), changed).await;
    }

    async fn watch_classes(&self, health: &Health) {
        let source = Source::all(PRIORITY_CLASS);
        let changed = |event: WatchEvent<ClassObject>| {
            let mut pods = self.implicit.lock();
            let changes = match event {
                WatchEvent::Listed(all, _) => {
                    let changes = pods.replace_classes(&all);
                    self.listed.modify(|listed| listed.classes = true);
                    changes
                }
                WatchEvent::Applied(class) => pods.set_class(&class.metadata.name, Some(&class)),
                WatchEvent::Deleted(class) => pods.set_class(&class.metadata.name, None),
                WatchEvent::Invalid(object) => pods.set_class(&object.key.name, None),
                WatchEvent::Denied => pods.replace_classes(&[]),
            };
            self.count(changes);
        };
        watch::list_and_watch(&self.api, &source, &health.watch(&source.kind.plural), changed).await;
    }

    /// Counts groups without an object that have changed.
    fn count(&self, changes: implicit::Changes) {
        let mut ledger = self.ledger();
        for (group, counted) in changes {
            let affected = ledger.set_implicit(group, counted);
            self.enqueue(affected);
        }
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
        self.listed.wait_for(Listed::is_complete).await;
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
