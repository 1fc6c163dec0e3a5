//! Clears away pods that nobody else will: those of nodes that are gone, and those that ended long ago.

use super::{pod, set_condition, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{Deletion, Part, Result};
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a node must have been missing, so that one that is made anew keeps its pods.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How often to look.
const PERIOD: Duration = Duration::from_secs(20);
/// So many pods that ended are kept.
const ENDED_MAX: usize = 12_500;
/// The node is gone for good, says its operator.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The collector of pods.
#[derive(Debug, Default)]
pub struct PodGarbage {
    /// Since when a node with pods has been missing.
    missing: Mutex<BTreeMap<String, Timestamp>>,
    /// When all pods were last looked at.
    swept: Mutex<Option<Timestamp>>,
}

impl Controller for PodGarbage {
    const NAME: &'static str = "podgc";

    fn kinds(&self) -> Vec<Kind> {
        vec![kind::POD, kind::NODE]
    }

    fn wakes(&self, _: &Caches, kind: &Kind, changed: &Value) -> Vec<Key> {
        // One key for all pods without a node; its work is done by period.
        let node = if *kind == kind::NODE {
            object::name(changed)
        } else {
            object::str_at(changed, "/spec/nodeName")
        };
        vec![Key::new("", node)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        if key.name.is_empty() {
            let now = context.clock.now();
            return match self.next_sweep(now) {
                Some(due) => Ok(Next::After(time::until(now, due))),
                None => sweep(context).await,
            };
        }
        let pods = context.caches.on_node(&kind::POD, &key.name);
        if pods.is_empty() {
            return Ok(Next::Wait);
        }
        if let Some(node) = context.caches.get(&kind::NODE, key) {
            self.missing().remove(&key.name);
            let taints = node.pointer("/spec/taints").and_then(Value::as_array);
            let out = taints.into_iter().flatten().any(|taint| taint["key"] == OUT_OF_SERVICE);
            if out && !super::holds(&node, "Ready") {
                for pod in pods.iter().filter(|pod| object::is_deleting(pod)) {
                    remove(context, pod).await?;
                }
            }
            return Ok(Next::Wait);
        }
        let now = context.clock.now();
        let since = *self.missing().entry(key.name.clone()).or_insert(now);
        let due = time::later(since, QUARANTINE);
        if due > now {
            return Ok(Next::After(time::until(now, due)));
        }
        self.missing().remove(&key.name);
        // The cache may be behind: only the server's word counts.
        if is_there(context, key).await? {
            return Ok(Next::After(PERIOD));
        }
        for pod in context.caches.on_node(&kind::POD, &key.name) {
            remove(context, &pod).await?;
        }
        Ok(Next::Wait)
    }
}

impl PodGarbage {
    /// When all pods are to be looked at, unless that is now: every pod that waits for a node wakes the collector.
    fn next_sweep(&self, now: Timestamp) -> Option<Timestamp> {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let due = swept.map(|swept| time::later(swept, PERIOD)).filter(|due| *due > now);
        if due.is_none() {
            *swept = Some(now);
        }
        due
    }

    fn missing(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn is_there(context: &Context, node: &Key) -> Result<bool> {
    match context.api.get(&kind::NODE, node).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Marks a pod as failed, if it was not over, and deletes it at once.
async fn remove(context: &Context, found: &Arc<Value>) -> Result<()> {
    if !pod::is_finished(found) {
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
        match context.update(&kind::POD, Part::Status, found, &new).await {
            Err(error) if error.is_not_found() => {}
            written => {
                written?;
            }
        }
    }
    context.delete(&kind::POD, found, Deletion::of(found).now()).await
}

/// Deletes pods that were to go before they ever had a node, and the oldest of too many that ended.
async fn sweep(context: &Context) -> Result<Next> {
    let pods = context.caches.all(&kind::POD);
    for pod in &pods {
        let unbound = object::str_at(pod, "/spec/nodeName").is_empty();
        if unbound && object::is_deleting(pod) && object::finalizers(pod).is_empty() {
            context.delete(&kind::POD, pod, Deletion::of(pod).now()).await?;
        }
    }
    let mut ended: Vec<&Arc<Value>> =
        pods.iter().filter(|pod| pod::is_finished(pod) && !object::is_deleting(pod)).collect();
    if ended.len() > ENDED_MAX {
        ended.sort_by_key(|pod| (object::meta_str(pod, "creationTimestamp").to_owned(), Key::of(pod)));
        for pod in ended.iter().take(ended.len() - ENDED_MAX) {
            context.delete(&kind::POD, pod, Deletion::of(pod).now()).await?;
        }
    }
    Ok(Next::After(PERIOD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pods_are_looked_at_once_in_a_period() {
        let garbage = PodGarbage::default();
        let start = Timestamp::UNIX_EPOCH;
        assert_eq!(garbage.next_sweep(start), None);
        let due = time::later(start, PERIOD);
        assert_eq!(
            garbage.next_sweep(start),
            Some(due),
            "a thousand pods that come in a second wake it once"
        );
        assert_eq!(garbage.next_sweep(due), None);
    }
}
