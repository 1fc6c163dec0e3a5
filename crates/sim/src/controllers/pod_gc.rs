//! Deletes pods of missing nodes, unbound terminating pods, and terminated pods above a threshold.

use super::{pod, set_condition, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a node must be missing, so that a recreated node keeps its pods.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Period of the sweep over all pods.
const PERIOD: Duration = Duration::from_secs(20);
/// `--terminated-pod-gc-threshold`.
const TERMINATED_MAX: usize = 12_500;
/// Taint: an administrator declares that the node is shut down (KEP-2268).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Debug, Default)]
pub struct PodGarbageCollector {
    /// When a node with pods was first found missing.
    missing: Mutex<BTreeMap<String, Timestamp>>,
    /// Time of the last sweep.
    swept: Mutex<Option<Timestamp>>,
}

impl DynamicController for PodGarbageCollector {
    const NAME: &'static str = "podgc";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::POD, kind::NODE]
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        // The empty key stands for all pods without a node; it is processed once per period.
        let node = if *kind == kind::NODE {
            object::name(changed)
        } else {
            object::str_at(changed, "/spec/nodeName")
        };
        vec![Key::new("", node)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        if key.name.is_empty() {
            let now = context.clock.now();
            return match self.next_sweep(now) {
                Some(due) => Ok(Action::RequeueAfter(time::until(now, due))),
                None => sweep(context).await,
            };
        }
        let pods = context.informers.dynamic(&kind::POD).on_node(&key.name);
        if pods.is_empty() {
            return Ok(Action::AwaitChange);
        }
        if let Some(node) = context.informers.dynamic(&kind::NODE).get(key) {
            self.missing().remove(&key.name);
            let taints = node.pointer("/spec/taints").and_then(Value::as_array);
            let out_of_service = taints.into_iter().flatten().any(|taint| taint["key"] == OUT_OF_SERVICE);
            if out_of_service && !super::has_condition(&node, "Ready") {
                for pod in pods.iter().filter(|pod| object::is_deleting(pod)) {
                    remove(context, pod).await?;
                }
            }
            return Ok(Action::AwaitChange);
        }
        let now = context.clock.now();
        let since = *self.missing().entry(key.name.clone()).or_insert(now);
        let due = time::later(since, QUARANTINE);
        if due > now {
            return Ok(Action::RequeueAfter(time::until(now, due)));
        }
        self.missing().remove(&key.name);
        // The informer may lag; the API server decides.
        if exists(context, key).await? {
            return Ok(Action::RequeueAfter(PERIOD));
        }
        for pod in context.informers.dynamic(&kind::POD).on_node(&key.name) {
            remove(context, &pod).await?;
        }
        Ok(Action::AwaitChange)
    }
}

impl PodGarbageCollector {
    /// The time of the next sweep; `None` where it is due. Every unbound pod enqueues the empty key.
    fn next_sweep(&self, now: Timestamp) -> Option<Timestamp> {
        let mut swept = self.swept.lock();
        let due = swept.map(|swept| time::later(swept, PERIOD)).filter(|due| *due > now);
        if due.is_none() {
            *swept = Some(now);
        }
        due
    }

    fn missing(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.missing.lock()
    }
}

async fn exists(context: &Context, node: &Key) -> Result<bool> {
    match context.api.get_dynamic(&kind::NODE, node).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the phase of a non-terminal pod to `Failed`, and deletes it without a grace period.
async fn remove(context: &Context, found: &Arc<Value>) -> Result<()> {
    if !pod::is_terminal(found) {
        let mut new = (**found).clone();
        new["status"]["phase"] = Value::from("Failed");
        let time = context.clock.time();
        set_condition(
            &mut new["status"],
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": time, "lastProbeTime": null,
            }),
        );
        match context.patch_difference_dynamic(&kind::POD, Part::Status, found, &new).await {
            Err(error) if error.is_not_found() => {}
            written => {
                written?;
            }
        }
    }
    context.delete_dynamic(&kind::POD, found, DeleteOptions::of(found).immediately()).await
}

/// Deletes unbound terminating pods, and the oldest terminated pods above the threshold.
async fn sweep(context: &Context) -> Result<Action> {
    let pods = context.informers.dynamic(&kind::POD).list();
    for pod in &pods {
        let unbound = object::str_at(pod, "/spec/nodeName").is_empty();
        if unbound && object::is_deleting(pod) && object::finalizers(pod).is_empty() {
            context.delete_dynamic(&kind::POD, pod, DeleteOptions::of(pod).immediately()).await?;
        }
    }
    let mut terminated: Vec<&Arc<Value>> =
        pods.iter().filter(|pod| pod::is_terminal(pod) && !object::is_deleting(pod)).collect();
    if terminated.len() > TERMINATED_MAX {
        terminated.sort_by_key(|pod| {
            (object::meta_str(pod, "creationTimestamp").to_owned(), kai_runtime::key_of(pod))
        });
        for pod in terminated.iter().take(terminated.len() - TERMINATED_MAX) {
            context.delete_dynamic(&kind::POD, pod, DeleteOptions::of(pod).immediately()).await?;
        }
    }
    Ok(Action::RequeueAfter(PERIOD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_swept_once_per_period() {
        let collector = PodGarbageCollector::default();
        let start = Timestamp::UNIX_EPOCH;
        assert_eq!(collector.next_sweep(start), None);
        let due = time::later(start, PERIOD);
        assert_eq!(collector.next_sweep(start), Some(due), "further keys within the period do not sweep");
        assert_eq!(collector.next_sweep(due), None);
    }
}
