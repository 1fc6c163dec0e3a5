//! The `eviction` subresource (policy/v1).

use super::bind::set_condition;
use super::delete::{self, DeleteOptions};
use super::update::{ATTEMPTS, commit};
use super::{Call, Reply, find, served};
use crate::object;
use crate::selector::LabelSelector;
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusCause, StatusError};
use crate::store::{ListRange, Record, WriteConflict};
use serde_json::{Value, json};
use std::sync::Arc;

/// `MaxDisruptedPodSize`: limit of `status.disruptedPods`.
const DISRUPTED_PODS_MAX: usize = 2_000;

/// Evicts the pod of the call.
pub async fn evict(core: &Core, call: &Call, eviction: &Value) -> Result<Reply, StatusError> {
    let name = object::name(eviction);
    if !name.is_empty() && name != call.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = DeleteOptions::read(call, eviction.get("deleteOptions").cloned())?;
    for _ in 0..ATTEMPTS {
        let live = find(core, call)?;
        let pod = served(&call.resource, &live);
        delete::check_delete_preconditions(&call.resource, &live, &pod, &options)?;
        if !ignores_budgets(&pod) {
            match take_disruption(core, call, &pod, options.is_dry_run())? {
                Disruption::Yes => {}
                Disruption::WriteConflict => continue,
            }
        }
        if !options.is_dry_run() && mark(core, call, &live, pod.clone()).is_err() {
            continue;
        }
        let options = options.clone().only(object::uid(&pod));
        delete::delete(core, call, &options).await?;
        return Ok(Reply::success(201, None));
    }
    Err(StatusError::modified(call.resource.qualified_resource(), &call.name))
}

/// Whether the pod can be deleted without a budget: it is finished, pending or already terminating.
fn ignores_budgets(pod: &Value) -> bool {
    let idle = matches!(object::str_at(pod, "/status/phase"), "Succeeded" | "Failed" | "Pending");
    idle || object::is_deleting(pod)
}

fn mark(core: &Core, call: &Call, live: &Arc<Record>, mut pod: Value) -> Result<(), WriteConflict> {
    let time = core.clock.time();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": time,
    });
    set_condition(&mut pod, &condition);
    commit(core, &call.resource, live, pod).map(drop)
}

/// Whether a disruption was taken from a budget.
enum Disruption {
    Yes,
    WriteConflict,
}

/// Takes one disruption from the pod's budget, if it has one.
fn take_disruption(core: &Core, call: &Call, pod: &Value, dry_run: bool) -> Result<Disruption, StatusError> {
    let budgets = core.builtin("policy", "poddisruptionbudgets");
    let prefix = budgets.prefix(&call.namespace);
    let wanted = ListRange { prefix: &prefix, ..ListRange::default() };
    let page = core.store.list(budgets.table, &wanted, |_| true).map_err(StatusError::internal)?;
    let mut matching: Vec<(Arc<Record>, Value)> = page
        .records
        .into_iter()
        .map(|record| (Arc::clone(&record), record.value()))
        .filter(|(_, budget)| covers(budget, pod))
        .collect();
    if matching.len() > 1 {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(StatusError::new(500, "", message));
    }
    let Some((record, mut budget)) = matching.pop() else { return Ok(Disruption::Yes) };
    if may_evict_unhealthy(&budget, pod) {
        return Ok(Disruption::Yes);
    }
    check_budget(&budget)?;
    if dry_run {
        return Ok(Disruption::Yes);
    }
    let left = number(&budget, "/status/disruptionsAllowed") - 1;
    let time = core.clock.time();
    budget["status"]["disruptionsAllowed"] = Value::from(left);
    budget["status"]["disruptedPods"][&call.name] = Value::from(time.as_str());
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "lastTransitionTime": time, "observedGeneration": budget["status"]["observedGeneration"],
        });
        set_condition(&mut budget, &condition);
    }
    match commit(core, &budgets, &record, budget) {
        Ok(_) => Ok(Disruption::Yes),
        Err(WriteConflict { .. }) => Ok(Disruption::WriteConflict),
    }
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").unwrap_or(&Value::Null);
    LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches_object(pod))
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether the pod is not ready and `unhealthyPodEvictionPolicy` permits its eviction.
fn may_evict_unhealthy(budget: &Value, pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if ready {
        return false;
    }
    let wanted = number(budget, "/status/desiredHealthy");
    let healthy = number(budget, "/status/currentHealthy") >= wanted && wanted > 0;
    object::str_at(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow" || healthy
}

fn check_budget(budget: &Value) -> Result<(), StatusError> {
    let name = object::name(budget);
    let too_many = |cause: String, seconds: Option<u32>| {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let cause =
            StatusCause { reason: "DisruptionBudget".to_owned(), message: cause, field: String::new() };
        let failure = StatusError::new(429, "TooManyRequests", message).causes([cause]);
        match seconds {
            Some(seconds) => failure.retry_after(seconds),
            None => failure,
        }
    };
    if number(budget, "/status/observedGeneration") < object::generation(budget) {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(cause, Some(10)));
    }
    let allowed = number(budget, "/status/disruptionsAllowed");
    let about = QualifiedName { group: "policy", name: "poddisruptionbudgets" };
    if allowed < 0 {
        return Err(StatusError::forbidden(about, name, "pdb disruptions allowed is negative"));
    }
    let disrupted =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if disrupted > DISRUPTED_PODS_MAX {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(StatusError::forbidden(about, name, why));
    }
    if allowed == 0 {
        let cause = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number(budget, "/status/desiredHealthy"),
            number(budget, "/status/currentHealthy")
        );
        return Err(too_many(cause, None));
    }
    Ok(())
}
