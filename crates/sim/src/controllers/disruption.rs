//! Says of each `PodDisruptionBudget` how many of its pods may be evicted.

use super::pod::{self, Round, share};
use super::{int_at, set_condition, time};
use kai_apiserver::selector::LabelSelector;
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long an eviction that was allowed may take to show.
const EVICTION_SECONDS: i64 = 120;

/// The controller of disruption budgets.
#[derive(Debug)]
pub struct Budgets;

impl Controller for Budgets {
    const NAME: &'static str = "disruption";

    fn kinds(&self) -> Vec<Kind> {
        vec![
            kind::POD_DISRUPTION_BUDGET,
            kind::POD,
            kind::REPLICA_SET,
            kind::DEPLOYMENT,
            kind::STATEFUL_SET,
            kind::JOB,
        ]
    }

    fn wakes(&self, caches: &Caches, kind: &Kind, changed: &Value) -> Vec<Key> {
        if *kind == kind::POD_DISRUPTION_BUDGET {
            return vec![Key::of(changed)];
        }
        let budgets = caches.in_namespace(&kind::POD_DISRUPTION_BUDGET, object::namespace(changed));
        let concerned = budgets.iter().filter(|budget| *kind != kind::POD || covers(budget, changed));
        concerned.map(|budget| Key::of(budget)).collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(budget) = context.caches.get(&kind::POD_DISRUPTION_BUDGET, key) else {
            return Ok(Next::Wait);
        };
        let pods: Vec<Arc<Value>> = context.caches.in_namespace(&kind::POD, &key.namespace);
        let pods: Vec<Arc<Value>> = pods.into_iter().filter(|pod| covers(&budget, pod)).collect();
        let (status, next) = status(context, &budget, &pods);
        let mut new = (*budget).clone();
        new["status"] = status;
        context.update(&kind::POD_DISRUPTION_BUDGET, Part::Status, &budget, &new).await?;
        Ok(next)
    }
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").unwrap_or(&Value::Null);
    LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches_object(pod))
}

/// How many pods the owners of these want, and how many of them must stay healthy.
fn wanted(context: &Context, budget: &Value, pods: &[Arc<Value>]) -> (i64, i64) {
    let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let least = budget.pointer("/spec/minAvailable");
    if let Some(least) = least.and_then(Value::as_i64) {
        return (count, least);
    }
    let mut scales: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller(pod) else { continue };
        scales.insert(object::str_at(owner, "/uid"), scale(context, pod, owner));
    }
    let expected: i64 = scales.values().sum();
    let most = budget.pointer("/spec/maxUnavailable");
    match (share(least, expected, Round::Up), share(most, expected, Round::Up)) {
        (Some(least), _) => (expected, least),
        (None, Some(most)) => (expected, (expected - most).max(0)),
        (None, None) => (expected, expected),
    }
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object::meta(object, "ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// How many pods an owner wants.
fn scale(context: &Context, pod: &Value, owner: &Value) -> i64 {
    let caches = &context.caches;
    let key = Key::new(object::namespace(pod), object::str_at(owner, "/name"));
    match object::str_at(owner, "/kind") {
        "ReplicaSet" => {
            let Some(set) = caches.get(&kind::REPLICA_SET, &key) else { return 0 };
            let deployment = controller(&set).filter(|owner| owner["kind"] == "Deployment");
            let deployment = deployment.and_then(|owner| {
                caches.get(&kind::DEPLOYMENT, &Key::new(&key.namespace, object::str_at(owner, "/name")))
            });
            int_at(&deployment.unwrap_or(set), "/spec/replicas", 1)
        }
        "StatefulSet" => {
            caches.get(&kind::STATEFUL_SET, &key).map_or(0, |set| int_at(&set, "/spec/replicas", 1))
        }
        // Kinds without a scale count with the pods they have.
        _ => i64::try_from(caches.owned(&kind::POD, object::str_at(owner, "/uid")).len()).unwrap_or(0),
    }
}

fn status(context: &Context, budget: &Value, pods: &[Arc<Value>]) -> (Value, Next) {
    let now = context.clock.now();
    let (expected, desired) = wanted(context, budget, pods);
    let mut disrupted = Map::new();
    let mut next = Next::Wait;
    let noted = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    for (name, at) in noted.into_iter().flatten() {
        let there = pods.iter().any(|pod| object::name(pod) == name && !object::is_deleting(pod));
        let since = at.as_str().and_then(|at| at.parse().ok()).unwrap_or(now);
        let due = time::plus(since, EVICTION_SECONDS);
        if there && due > now {
            disrupted.insert(name.clone(), at.clone());
            next = next.or(Next::After(time::until(now, due)));
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
