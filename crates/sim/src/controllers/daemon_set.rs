//! Keeps one pod of a `DaemonSet` on every eligible node.
//!
//! A pod selects its node by node affinity on `metadata.name`; the scheduler binds it.

use super::pod::{self, availability, is_ready};
use super::replica_set::owners;
use super::revision;
use super::{int_at, label, set_entry};
use kai_apiserver::selector::LabelSelector;
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tolerations that the controller adds to daemon pods: key, effect.
const DEFAULT_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

#[derive(Debug)]
pub struct DaemonSetController;

impl DynamicController for DaemonSetController {
    const NAME: &'static str = "daemonset";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::DAEMON_SET, kind::POD, kind::NODE, kind::CONTROLLER_REVISION]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::NODE {
            return informers
                .dynamic(&kind::DAEMON_SET)
                .list()
                .iter()
                .map(|set| kai_runtime::key_of(set))
                .collect();
        }
        owners(informers, &kind::DAEMON_SET, kind, changed)
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(set) = context.informers.dynamic(&kind::DAEMON_SET).get(key) else {
            return Ok(Action::AwaitChange);
        };
        if object::is_deleting(&set) {
            return Ok(Action::AwaitChange);
        }
        let revisions = revision::find(context, &set).await?;
        let version = label(&revisions.wanted, revision::HASH).to_owned();
        let nodes = context.informers.dynamic(&kind::NODE).list();
        let wanted: Vec<&str> =
            nodes.iter().filter(|node| is_eligible(&set, node)).map(|node| object::name(node)).collect();
        sync_nodes(context, &set, &wanted, &version).await?;
        rolling_update(context, &set, &wanted, &version).await?;
        let (status, next) = status(context, &set, &wanted, &version);
        let mut new = (*set).clone();
        new["status"] = status;
        context.patch_difference_dynamic(&kind::DAEMON_SET, Part::Status, &set, &new).await?;
        revision::enforce_history_limit(context, &set, &revisions, &[]).await?;
        Ok(next)
    }
}

/// The node that a daemon pod is bound to or selects.
fn target(pod: &Value) -> Option<&str> {
    let bound = object::str_at(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return Some(bound);
    }
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    pod.pointer(terms)?.pointer("/0/matchFields/0/values/0")?.as_str()
}

/// Whether a node should run a pod of the set.
fn is_eligible(set: &Value, node: &Value) -> bool {
    let spec = &set["spec"]["template"]["spec"];
    let fixed = object::str_at(spec, "/nodeName");
    if !fixed.is_empty() && fixed != object::name(node) {
        return false;
    }
    let selected = match spec.get("nodeSelector").and_then(Value::as_object) {
        Some(labels) => LabelSelector::from_map(labels).is_ok_and(|selector| selector.matches_object(node)),
        None => true,
    };
    let terms = spec
        .pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    let affine = terms.and_then(Value::as_array).is_none_or(|terms| {
        terms.iter().any(|term| {
            let selector = json!({"matchExpressions": term["matchExpressions"]});
            LabelSelector::from_object(&selector).is_ok_and(|selector| selector.matches_object(node))
        })
    });
    let tolerations = tolerations(spec);
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let tolerated = taints.into_iter().flatten().all(|taint| {
        taint["effect"] == "PreferNoSchedule"
            || tolerations.iter().any(|toleration| tolerates(toleration, taint))
    });
    selected && affine && tolerated
}

fn tolerations(spec: &Value) -> Vec<Value> {
    let mut all: Vec<Value> = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in DEFAULT_TOLERATIONS {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let effect = object::str_at(toleration, "/effect");
    let key = object::str_at(toleration, "/key");
    let exists = object::str_at(toleration, "/operator") == "Exists";
    let same_effect = effect.is_empty() || taint["effect"] == effect;
    let same_key = (key.is_empty() && exists) || taint["key"] == key;
    let same_value = exists || object::str_at(toleration, "/value") == object::str_at(taint, "/value");
    same_effect && same_key && same_value
}

fn by_node(context: &Context, set: &Value) -> BTreeMap<String, Vec<Arc<Value>>> {
    let mut by_node: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
    for pod in context.informers.dynamic(&kind::POD).controlled_by(object::uid(set)) {
        let node = target(&pod).unwrap_or_default().to_owned();
        by_node.entry(node).or_default().push(pod);
    }
    by_node
}

/// Makes pods where they are missing, and deletes those that are on wrong nodes, too many or finished.
async fn sync_nodes(context: &Context, set: &Value, wanted: &[&str], version: &str) -> Result<()> {
    let by_node = by_node(context, set);
    let surges = surge(set, wanted.len()) > 0;
    for (node, pods) in &by_node {
        let alive = || pods.iter().filter(|pod| !object::is_deleting(pod) && !pod::is_terminal(pod));
        let new = alive().find(|pod| label(pod, revision::HASH) == version);
        let old = alive().find(|pod| label(pod, revision::HASH) != version);
        let kept = match (wanted.contains(&node.as_str()), surges, new, old) {
            (false, _, _, _) => [None, None],
            // The old pod stays until the new one is available.
            (true, true, Some(new), _) if is_available(context, set, new) => [Some(new), None],
            (true, true, new, old) => [new, old],
            (true, false, _, _) => [alive().next(), None],
        };
        for pod in pods.iter().filter(|pod| !object::is_deleting(pod)) {
            let keep = kept.into_iter().flatten().any(|kept| Arc::ptr_eq(kept, pod));
            if !keep {
                pod::delete(context, set, pod).await?;
            }
        }
    }
    for node in wanted {
        let present = by_node.get(*node).is_some_and(|pods| pods.iter().any(|pod| !pod::is_terminal(pod)));
        if !present {
            pod::create(context, set, &pod_for(set, node, version)).await?;
        }
    }
    Ok(())
}

/// How many nodes may run an old and a new pod at the same time (`maxSurge`).
fn surge(set: &Value, nodes: usize) -> i64 {
    let value = set.pointer("/spec/updateStrategy/rollingUpdate/maxSurge");
    pod::int_or_percent(value, i64::try_from(nodes).unwrap_or(i64::MAX), pod::Rounding::Up).unwrap_or(0)
}

fn is_available(context: &Context, set: &Value, pod: &Value) -> bool {
    let seconds = int_at(set, "/spec/minReadySeconds", 0);
    !object::is_deleting(pod) && availability(pod, seconds, context.clock.now()).0
}

fn pod_for(set: &Value, node: &str, version: &str) -> Value {
    let mut pod = pod::from_template(set, &set["spec"]["template"]);
    set_entry(&mut pod, "labels", revision::HASH, version);
    set_entry(&mut pod, "labels", "pod-template-generation", &object::generation(set).to_string());
    pod["spec"]["tolerations"] = Value::from(tolerations(&pod["spec"]));
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
    });
    pod
}

/// Replaces pods of old revisions within `maxUnavailable` or `maxSurge`.
async fn rolling_update(context: &Context, set: &Value, wanted: &[&str], version: &str) -> Result<()> {
    if object::str_at(set, "/spec/updateStrategy/type") == "OnDelete" {
        return Ok(());
    }
    let surge = surge(set, wanted.len());
    if surge > 0 {
        return surge_update(context, set, surge, version).await;
    }
    let total = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let value = set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
    let max_unavailable = pod::int_or_percent(value, total, pod::Rounding::Up).unwrap_or(1).max(1);
    let pods = context.informers.dynamic(&kind::POD).controlled_by(object::uid(set));
    let available = pods.iter().filter(|pod| is_available(context, set, pod)).count();
    let mut deletable = max_unavailable - (total - i64::try_from(available).unwrap_or(i64::MAX));
    for pod in pods.iter().filter(|pod| !object::is_deleting(pod) && label(pod, revision::HASH) != version) {
        if is_available(context, set, pod) {
            if deletable <= 0 {
                continue;
            }
            deletable -= 1;
        }
        pod::delete(context, set, pod).await?;
    }
    Ok(())
}

/// Creates new pods beside old ones; old pods that are not available are deleted first.
async fn surge_update(context: &Context, set: &Value, surge: i64, version: &str) -> Result<()> {
    let by_node = by_node(context, set);
    let is_new = |pod: &Arc<Value>| label(pod, revision::HASH) == version;
    let old_alone = |pods: &&Vec<Arc<Value>>| !pods.iter().any(is_new);
    let doubled = by_node.values().filter(|pods| pods.len() > 1 && !old_alone(pods)).count();
    let mut creatable = surge - i64::try_from(doubled).unwrap_or(i64::MAX);
    for (node, pods) in by_node.iter().filter(|(_, pods)| old_alone(pods)) {
        let Some(old) = pods.iter().find(|pod| !object::is_deleting(pod)) else { continue };
        if !is_available(context, set, old) {
            pod::delete(context, set, old).await?;
        } else if creatable > 0 {
            creatable -= 1;
            pod::create(context, set, &pod_for(set, node, version)).await?;
        }
    }
    Ok(())
}

fn status(context: &Context, set: &Value, wanted: &[&str], version: &str) -> (Value, Action) {
    let seconds = int_at(set, "/spec/minReadySeconds", 0);
    let now = context.clock.now();
    let (mut current, mut misscheduled, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0);
    let mut next = Action::AwaitChange;
    for (node, pods) in by_node(context, set) {
        let active: Vec<&Arc<Value>> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
        if active.is_empty() {
            continue;
        }
        if !wanted.contains(&node.as_str()) {
            misscheduled += 1;
            continue;
        }
        current += 1;
        ready += i64::from(active.iter().any(|pod| is_ready(pod)));
        updated += i64::from(active.iter().any(|pod| label(pod, revision::HASH) == version));
        let availabilities: Vec<_> = active.iter().map(|pod| availability(pod, seconds, now)).collect();
        available += i64::from(availabilities.iter().any(|(available, _)| *available));
        let wait = availabilities.iter().filter_map(|(_, wait)| *wait).min();
        next = wait.map_or(next, |wait| next.or(Action::RequeueAfter(wait)));
    }
    let desired = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let mut status = json!({
        "currentNumberScheduled": current, "numberMisscheduled": misscheduled, "desiredNumberScheduled": desired,
        "numberReady": ready, "observedGeneration": object::generation(set),
    });
    for (field, count) in [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", desired - available),
    ] {
        if count > 0 {
            status[field] = Value::from(count);
        }
    }
    (status, next)
}
