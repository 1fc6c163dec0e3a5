//! Computes the status of `PodDisruptionBudget`s: how many of their pods may be evicted.

use super::pod::{self, Rounding, int_or_percent};
use super::{int_at, set_condition, time};
use kai_apiserver::selector::LabelSelector;
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long an entry in `disruptedPods` is valid, as `DeletionTimeout` upstream.
const DELETION_TIMEOUT_SECONDS: i64 = 120;

#[derive(Debug)]
pub struct DisruptionController;

impl DynamicController for DisruptionController {
    const NAME: &'static str = "disruption";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![
            kind::POD_DISRUPTION_BUDGET,
            kind::POD,
            kind::REPLICA_SET,
            kind::DEPLOYMENT,
            kind::STATEFUL_SET,
            kind::JOB,
        ]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::POD_DISRUPTION_BUDGET {
            return vec![kai_runtime::key_of(changed)];
        }
        let budgets =
            informers.dynamic(&kind::POD_DISRUPTION_BUDGET).in_namespace(object::namespace(changed));
        let affected = budgets.iter().filter(|budget| *kind != kind::POD || selects(budget, changed));
        affected.map(|budget| kai_runtime::key_of(budget)).collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(budget) = context.informers.dynamic(&kind::POD_DISRUPTION_BUDGET).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let pods: Vec<Arc<Value>> = context.informers.dynamic(&kind::POD).in_namespace(&key.namespace);
        let pods: Vec<Arc<Value>> = pods.into_iter().filter(|pod| selects(&budget, pod)).collect();
        let (status, next) = status(context, &budget, &pods);
        let mut new = (*budget).clone();
        new["status"] = status;
        context.patch_difference_dynamic(&kind::POD_DISRUPTION_BUDGET, Part::Status, &budget, &new).await?;
        Ok(next)
    }
}

fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").unwrap_or(&Value::Null);
    LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches_object(pod))
}

/// Expected pods of the owners, and how many of them must stay healthy.
fn expected_and_desired(context: &Context, budget: &Value, pods: &[Arc<Value>]) -> (i64, i64) {
    let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let min_available = budget.pointer("/spec/minAvailable");
    if let Some(minimum) = min_available.and_then(Value::as_i64) {
        return (count, minimum);
    }
    let mut scales: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller(pod) else { continue };
        scales.insert(object::str_at(owner, "/uid"), scale(context, pod, owner));
    }
    let expected: i64 = scales.values().sum();
    let max_unavailable = budget.pointer("/spec/maxUnavailable");
    match (
        int_or_percent(min_available, expected, Rounding::Up),
        int_or_percent(max_unavailable, expected, Rounding::Up),
    ) {
        (Some(minimum), _) => (expected, minimum),
        (None, Some(maximum)) => (expected, (expected - maximum).max(0)),
        (None, None) => (expected, expected),
    }
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object::meta(object, "ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// The number of pods that an owner requests.
fn scale(context: &Context, pod: &Value, owner: &Value) -> i64 {
    let informers = &context.informers;
    let key = Key::new(object::namespace(pod), object::str_at(owner, "/name"));
    match object::str_at(owner, "/kind") {
        "ReplicaSet" => {
            let Some(set) = informers.dynamic(&kind::REPLICA_SET).get(&key) else { return 0 };
            let deployment = controller(&set).filter(|owner| owner["kind"] == "Deployment");
            let deployment = deployment.and_then(|owner| {
                informers
                    .dynamic(&kind::DEPLOYMENT)
                    .get(&Key::new(&key.namespace, object::str_at(owner, "/name")))
            });
            int_at(&deployment.unwrap_or(set), "/spec/replicas", 1)
        }
        "StatefulSet" => informers
            .dynamic(&kind::STATEFUL_SET)
            .get(&key)
            .map_or(0, |set| int_at(&set, "/spec/replicas", 1)),
        // Owners without a scale count with their existing pods.
        _ => i64::try_from(informers.dynamic(&kind::POD).controlled_by(object::str_at(owner, "/uid")).len())
            .unwrap_or(0),
    }
}

fn status(context: &Context, budget: &Value, pods: &[Arc<Value>]) -> (Value, Action) {
    let now = context.clock.now();
    let (expected, desired) = expected_and_desired(context, budget, pods);
    let mut disrupted = Map::new();
    let mut next = Action::AwaitChange;
    let known = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    for (name, at) in known.into_iter().flatten() {
        let exists = pods.iter().any(|pod| object::name(pod) == name && !object::is_deleting(pod));
        let since = at.as_str().and_then(|at| at.parse().ok()).unwrap_or(now);
        let due = time::plus(since, DELETION_TIMEOUT_SECONDS);
        if exists && due > now {
            disrupted.insert(name.clone(), at.clone());
            next = next.or(Action::RequeueAfter(time::until(now, due)));
        }
    }
    let healthy = pods.iter().filter(|found| {
        pod::is_active(found) && pod::is_ready(found) && !disrupted.contains_key(object::name(found))
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let allowed = if expected == 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = json!({
        "observedGeneration": object::generation(budget), "currentHealthy": healthy, "desiredHealthy": desired,
        "expectedPods": expected, "disruptionsAllowed": allowed,
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    if let Some(conditions) = budget.pointer("/status/conditions") {
        status["conditions"] = conditions.clone();
    }
    let (holds, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({
        "type": "DisruptionAllowed", "status": holds, "reason": reason, "message": "",
        "observedGeneration": object::generation(budget), "lastTransitionTime": context.clock.time(),
    });
    set_condition(&mut status, condition);
    (status, next)
}
