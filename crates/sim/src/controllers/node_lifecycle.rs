//! Marks nodes without heartbeats as unknown, taints nodes that are not ready, and evicts pods without tolerations.

use super::daemon_set::tolerates;
use super::{condition, has_condition, pod, set_condition, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};

/// Namespace of the node leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// `--node-monitor-grace-period` of nodes without a lease.
const MONITOR_GRACE_SECONDS: i64 = 40;
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

#[derive(Debug)]
pub struct NodeLifecycleController;

impl DynamicController for NodeLifecycleController {
    const NAME: &'static str = "node-lifecycle";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::NODE, kind::LEASE, kind::POD]
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        let relevant =
            *kind == kind::NODE || (*kind == kind::LEASE && object::namespace(changed) == LEASE_NAMESPACE);
        if relevant { vec![Key::new("", object::name(changed))] } else { Vec::new() }
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(node) = context.informers.dynamic(&kind::NODE).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let now = context.clock.now();
        let due = unknown_from(context, &node);
        if due <= now {
            let mut new = (*node).clone();
            mark_unknown(context, &mut new["status"]);
            context.patch_difference_dynamic(&kind::NODE, Part::Status, &node, &new).await?;
        }
        let Some(node) = context.informers.dynamic(&kind::NODE).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let mut new = (*node).clone();
        update_taints(context, &mut new);
        context.patch_difference_dynamic(&kind::NODE, Part::Main, &node, &new).await?;
        if !has_condition(&node, "Ready") {
            mark_pods_not_ready(context, &key.name).await?;
        }
        Ok(if due > now { Action::RequeueAfter(time::until(now, due)) } else { Action::AwaitChange })
    }
}

/// When the node becomes unknown without a further heartbeat.
fn unknown_from(context: &Context, node: &Value) -> Timestamp {
    let lease = context.informers.dynamic(&kind::LEASE).get(&Key::new(LEASE_NAMESPACE, object::name(node)));
    let renewed = lease.as_ref().and_then(|lease| {
        let seconds = super::int_at(lease, "/spec/leaseDurationSeconds", MONITOR_GRACE_SECONDS);
        Some(time::plus(time::at(lease, "/spec/renewTime")?, seconds))
    });
    let posted = condition(node, "Ready")
        .and_then(|ready| time::at(ready, "/lastHeartbeatTime"))
        .or_else(|| time::at(node, "/metadata/creationTimestamp"))
        .map(|at| time::plus(at, MONITOR_GRACE_SECONDS));
    renewed.max(posted).unwrap_or(Timestamp::MAX)
}

fn mark_unknown(context: &Context, status: &mut Value) {
    let now = context.clock.time();
    for name in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let known = status["conditions"].as_array().into_iter().flatten().find(|known| known["type"] == name);
        let heartbeat = known.map_or(Value::Null, |known| known["lastHeartbeatTime"].clone());
        if known.is_some_and(|known| known["status"] == "Unknown") {
            continue;
        }
        let (reason, message) = if known.is_some() {
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        } else {
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        };
        let unknown = json!({
            "type": name, "status": "Unknown", "reason": reason, "message": message,
            "lastHeartbeatTime": heartbeat, "lastTransitionTime": now,
        });
        set_condition(status, unknown);
    }
}

/// Adds the taints of the node's conditions, and removes those that no longer apply.
fn update_taints(context: &Context, node: &mut Value) {
    let ready = condition(node, "Ready").map_or("Unknown", |ready| object::str_at(ready, "/status"));
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    match ready {
        "True" => {}
        "False" => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        _ => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
    }
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is = |taint: &Value, key: &str, effect: &str| taint["key"] == key && taint["effect"] == effect;
    let known = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut taints: Vec<Value> = known
        .into_iter()
        .filter(|taint| {
            let managed = [NOT_READY, UNREACHABLE, UNSCHEDULABLE].iter().any(|key| taint["key"] == *key);
            !managed || wanted.iter().any(|(key, effect)| is(taint, key, effect))
        })
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| is(taint, key, effect)) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": context.clock.time()}));
        }
    }
    let spec = object::map_mut(node, "spec");
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".to_owned(), Value::from(taints));
    }
}

async fn mark_pods_not_ready(context: &Context, node: &str) -> Result<()> {
    for found in context.informers.dynamic(&kind::POD).on_node(node) {
        if !pod::is_ready(&found) || pod::is_terminal(&found) {
            continue;
        }
        let mut new = (*found).clone();
        let time = context.clock.time();
        let condition = json!({
            "type": "Ready", "status": "False", "reason": "NodeNotReady", "message": "Node is not ready",
            "lastProbeTime": null, "lastTransitionTime": time,
        });
        set_condition(&mut new["status"], condition);
        context.patch_difference_dynamic(&kind::POD, Part::Status, &found, &new).await?;
    }
    Ok(())
}

/// Evicts pods from nodes with `NoExecute` taints.
#[derive(Debug)]
pub struct TaintEvictionController;

impl DynamicController for TaintEvictionController {
    const NAME: &'static str = "taint-eviction";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::POD, kind::NODE]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::POD {
            return vec![kai_runtime::key_of(changed)];
        }
        if no_execute_taints(changed).next().is_none() {
            return Vec::new();
        }
        informers
            .dynamic(&kind::POD)
            .on_node(object::name(changed))
            .iter()
            .map(|pod| kai_runtime::key_of(pod))
            .collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(found) = context.informers.dynamic(&kind::POD).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let node = object::str_at(&found, "/spec/nodeName");
        let Some(node) = context.informers.dynamic(&kind::NODE).get(&Key::new("", node)) else {
            return Ok(Action::AwaitChange);
        };
        if !pod::is_active(&found) {
            return Ok(Action::AwaitChange);
        }
        let now = context.clock.now();
        let Some(due) = eviction_time(&node, &found, now) else { return Ok(Action::AwaitChange) };
        if due > now {
            return Ok(Action::RequeueAfter(time::until(now, due)));
        }
        let mut new = (*found).clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastProbeTime": null,
            "lastTransitionTime": context.clock.time(),
        });
        set_condition(&mut new["status"], condition);
        context.patch_difference_dynamic(&kind::POD, Part::Status, &found, &new).await?;
        context.delete_dynamic(&kind::POD, &found, DeleteOptions::of(&found)).await?;
        Ok(Action::AwaitChange)
    }
}

fn no_execute_taints(node: &Value) -> impl Iterator<Item = &Value> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().filter(|taint| taint["effect"] == "NoExecute")
}

/// When a pod is evicted; `None` where it tolerates all taints.
fn eviction_time(node: &Value, pod: &Value, now: Timestamp) -> Option<Timestamp> {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    let tolerations: Vec<&Value> = tolerations.into_iter().flatten().collect();
    let mut due: Option<Timestamp> = None;
    for taint in no_execute_taints(node) {
        let added = time::at(taint, "/timeAdded").unwrap_or(now);
        let mut tolerated = false;
        for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
            tolerated = true;
            if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
                let end = time::plus(added, seconds.max(0));
                due = Some(due.map_or(end, |due| due.min(end)));
            }
        }
        if !tolerated {
            return Some(now);
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_evicted_after_its_shortest_toleration() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let node = json!({"spec": {"taints": [
            {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
            {"key": UNREACHABLE, "effect": "NoSchedule"},
        ]}});
        let pod = |tolerations: Value| json!({"spec": {"tolerations": tolerations}});
        let toleration = json!([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
        assert_eq!(eviction_time(&node, &pod(toleration), now), Some(time::plus(now, 300)));
        assert_eq!(eviction_time(&node, &pod(json!([{"operator": "Exists"}])), now), None);
        assert_eq!(eviction_time(&node, &pod(json!([])), now), Some(now));
    }
}
