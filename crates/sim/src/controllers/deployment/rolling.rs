//! Computes and applies the sizes of the replica sets during a rollout.

use super::{DESIRED, MAX, Sets};
use crate::controllers::pod::{Rounding, int_or_percent};
use crate::controllers::{int_at, set_entry};
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::controller::Context;
use kai_runtime::kind;
use serde_json::Value;

fn is_rolling(deployment: &Value) -> bool {
    object::str_at(deployment, "/spec/strategy/type") != "Recreate"
}

/// `maxSurge` and `maxUnavailable` as numbers of pods.
fn limits(deployment: &Value) -> (i64, i64) {
    if !is_rolling(deployment) {
        return (0, 0);
    }
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let quarter = Value::from("25%");
    let part = |field: &str, round| {
        let value = deployment.pointer("/spec/strategy/rollingUpdate").and_then(|update| update.get(field));
        int_or_percent(Some(value.unwrap_or(&quarter)), wanted, round).unwrap_or(0)
    };
    let (surge, unavailable) = (part("maxSurge", Rounding::Up), part("maxUnavailable", Rounding::Down));
    // As upstream: with both zero the rollout could not progress.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(wanted)) }
}

pub(super) fn unavailable_max(deployment: &Value) -> i64 {
    limits(deployment).1
}

/// The initial size of a new replica set.
pub(super) fn initial_size(deployment: &Value, sets: &Sets) -> i64 {
    if !is_rolling(deployment) && sets.all().any(|set| int_at(set, "/status/replicas", 0) > 0) {
        return 0;
    }
    scaled_up(deployment, sets.sum("/spec/replicas"), 0)
}

fn scaled_up(deployment: &Value, total: i64, current: i64) -> i64 {
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let available_surge = (wanted + limits(deployment).0 - total).max(0);
    wanted.min(current + available_surge).max(current.min(wanted))
}

/// Sets the annotations with the desired and the maximal number of replicas.
pub(super) fn annotate_sizes(deployment: &Value, set: &mut Value) {
    let wanted = int_at(deployment, "/spec/replicas", 1);
    set_entry(set, "annotations", DESIRED, &wanted.to_string());
    set_entry(set, "annotations", MAX, &(wanted + limits(deployment).0).to_string());
}

/// Scales the new replica set up and the old ones down, as far as the limits allow.
pub(super) async fn step(context: &Context, deployment: &Value, sets: &Sets, paused: bool) -> Result<()> {
    let Some(new) = &sets.new else { return Ok(()) };
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let size = int_at(new, "/spec/replicas", 0);
    if paused {
        // A paused deployment is still scaled where only one template is in use.
        if sets.old.iter().all(|set| int_at(set, "/spec/replicas", 0) == 0) {
            resize(context, deployment, new, wanted).await?;
        }
        return Ok(());
    }
    if !is_rolling(deployment) {
        for old in &sets.old {
            resize(context, deployment, old, 0).await?;
        }
        let terminated = sets.old.iter().all(|set| {
            int_at(set, "/status/replicas", 0) == 0 && int_at(set, "/status/terminatingReplicas", 0) == 0
        });
        if terminated {
            resize(context, deployment, new, wanted).await?;
        }
        return Ok(());
    }
    let target = if size > wanted { wanted } else { scaled_up(deployment, sets.sum("/spec/replicas"), size) };
    resize(context, deployment, new, target).await?;
    scale_down(context, deployment, sets, target).await
}

async fn scale_down(context: &Context, deployment: &Value, sets: &Sets, new_size: i64) -> Result<()> {
    let Some(new) = &sets.new else { return Ok(()) };
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let min_available = wanted - limits(deployment).1;
    let old_total: i64 = sets.old.iter().map(|set| int_at(set, "/spec/replicas", 0)).sum();
    let new_available = int_at(new, "/status/availableReplicas", 0);
    let mut deletable = old_total + new_size - min_available - (new_size - new_available).max(0);
    let available: i64 = sets.all().map(|set| int_at(set, "/status/availableReplicas", 0)).sum();
    let mut deletable_healthy = available - min_available;
    for old in &sets.old {
        let size = int_at(old, "/spec/replicas", 0);
        if size == 0 {
            continue;
        }
        // Unavailable pods are deleted first.
        let healthy = int_at(old, "/status/availableReplicas", 0).min(size);
        let unhealthy = (size - healthy).min(deletable).max(0);
        deletable -= unhealthy;
        let removed = healthy.min(deletable_healthy).min(deletable).max(0);
        deletable -= removed;
        deletable_healthy -= removed;
        resize(context, deployment, old, size - unhealthy - removed).await?;
    }
    Ok(())
}

async fn resize(context: &Context, deployment: &Value, set: &Value, size: i64) -> Result<()> {
    let mut new = set.clone();
    new["spec"]["replicas"] = Value::from(size);
    annotate_sizes(deployment, &mut new);
    context.patch_difference_dynamic(&kind::REPLICA_SET, Part::Main, set, &new).await?;
    report_scaled(context, deployment, object::name(set), int_at(set, "/spec/replicas", 0), size);
    Ok(())
}

pub(super) fn report_scaled(context: &Context, deployment: &Value, set: &str, from: i64, to: i64) {
    if from != to {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
        context.record(deployment, "ScalingReplicaSet", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: i64, surge: &Value, unavailable: &Value) -> Value {
        json!({"spec": {"replicas": replicas, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        }}})
    }

    #[test]
    fn new_replica_set_is_scaled_up_within_the_surge() {
        let deployment = deployment(10, &json!("25%"), &json!("25%"));
        assert_eq!(limits(&deployment), (3, 2));
        assert_eq!(scaled_up(&deployment, 10, 0), 3);
        assert_eq!(scaled_up(&deployment, 13, 3), 3);
        assert_eq!(scaled_up(&deployment, 8, 7), 10);
    }

    #[test]
    fn limits_always_allow_progress() {
        assert_eq!(limits(&deployment(4, &json!(0), &json!(0))), (0, 1));
        assert_eq!(limits(&json!({"spec": {"replicas": 1}})), (1, 0));
        assert_eq!(limits(&json!({"spec": {"replicas": 4, "strategy": {"type": "Recreate"}}})), (0, 0));
    }
}
