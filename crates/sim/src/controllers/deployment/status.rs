//! Computes the status of a deployment, as `kubectl rollout status` expects it.

use super::Sets;
use crate::controllers::{condition, int_at, set_condition, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::controller::{Action, Context};
use serde_json::{Value, json};

/// Whether every pod has the current template and is available.
pub(super) fn is_complete(deployment: &Value) -> bool {
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let count = |field: &str| int_at(deployment, &format!("/status/{field}"), 0);
    count("updatedReplicas") == wanted
        && count("replicas") == wanted
        && count("availableReplicas") == wanted
        && count("observedGeneration") >= object::generation(deployment)
}

/// The status, and the requeue time where the progress deadline can change it.
pub(super) fn status(context: &Context, deployment: &Value, sets: &Sets) -> (Value, Action) {
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let total = sets.sum("/status/replicas");
    let available = sets.sum("/status/availableReplicas");
    let updated = sets.new.as_ref().map_or(0, |set| int_at(set, "/status/replicas", 0));
    let mut status = json!({"observedGeneration": object::generation(deployment)});
    for field in ["conditions", "collisionCount"] {
        if let Some(known) = deployment["status"].get(field) {
            status[field] = known.clone();
        }
    }
    for (field, count) in [
        ("replicas", total),
        ("updatedReplicas", updated),
        ("readyReplicas", sets.sum("/status/readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (sets.sum("/spec/replicas") - available).max(0)),
        ("terminatingReplicas", sets.sum("/status/terminatingReplicas")),
    ] {
        if count > 0 {
            status[field] = Value::from(count);
        }
    }
    let now = context.clock.time();
    let unavailable_max = super::rolling::unavailable_max(deployment);
    let (holds, reason, message) = if available >= wanted - unavailable_max {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(
        &mut status,
        json!({
            "type": "Available", "status": holds, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now,
        }),
    );
    let next = progress(context, deployment, sets, &mut status);
    keep_update_time(deployment, &mut status);
    (status, next)
}

/// Sets the `Progressing` condition.
fn progress(context: &Context, deployment: &Value, sets: &Sets, status: &mut Value) -> Action {
    let (now, time_text) = (context.clock.now(), context.clock.time());
    let name = sets.new.as_ref().map_or("", |set| object::name(set));
    let mut done = deployment.clone();
    done["status"] = status.clone();
    let known = condition(deployment, "Progressing");
    let counts = |object: &Value| {
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            .map(|field| int_at(object, &format!("/status/{field}"), 0))
    };
    let progressed = counts(deployment) != counts(&done)
        || int_at(deployment, "/status/observedGeneration", 0) < object::generation(deployment);
    let deadline = int_at(deployment, "/spec/progressDeadlineSeconds", 600);
    let since = known.and_then(|known| time::at(known, "/lastUpdateTime"));
    let due = since.map(|since| time::plus(since, deadline));
    let complete = is_complete(&done);
    let mut next = Action::AwaitChange;
    let (holds, reason, message) = if complete {
        ("True", "NewReplicaSetAvailable", format!("ReplicaSet \"{name}\" has successfully progressed."))
    } else if !progressed && deadline_exceeded(known, due, now) {
        ("False", "ProgressDeadlineExceeded", format!("ReplicaSet \"{name}\" has timed out progressing."))
    } else {
        let due = if progressed { None } else { due };
        next = Action::RequeueAfter(time::until(now, due.unwrap_or_else(|| time::plus(now, deadline))));
        ("True", "ReplicaSetUpdated", format!("ReplicaSet \"{name}\" is progressing."))
    };
    let update = match known {
        Some(known) if !progressed && known["reason"] == reason => known["lastUpdateTime"].clone(),
        Some(known) if complete && known["reason"] == reason => known["lastUpdateTime"].clone(),
        Some(_) | None => Value::from(time_text.as_str()),
    };
    set_condition(
        status,
        json!({
            "type": "Progressing", "status": holds, "reason": reason, "message": message,
            "lastUpdateTime": update, "lastTransitionTime": time_text,
        }),
    );
    next
}

/// Whether a rollout without progress has exceeded its deadline; it stays so until there is progress.
fn deadline_exceeded(known: Option<&Value>, due: Option<Timestamp>, now: Timestamp) -> bool {
    let reason = known.map_or("", |known| object::str_at(known, "/reason"));
    match reason {
        "ProgressDeadlineExceeded" => true,
        "NewReplicaSetAvailable" => false,
        _ => due.is_some_and(|due| due <= now),
    }
}

/// Keeps `lastUpdateTime` of `Available` where its status does not change.
fn keep_update_time(deployment: &Value, status: &mut Value) {
    let Some(known) = condition(deployment, "Available") else { return };
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Available" && condition["status"] == known["status"] {
            condition["lastUpdateTime"] = known["lastUpdateTime"].clone();
        }
    }
}
