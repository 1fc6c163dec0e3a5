//! How large each replica set of a deployment should be, step by step.

use super::{DESIRED, MAX, Sets};
use crate::controllers::pod::{Round, share};
use crate::controllers::{int_at, set_entry};
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::controller::Context;
use kai_runtime::kind;
use serde_json::Value;

fn is_rolling(deployment: &Value) -> bool {
    object::str_at(deployment, "/spec/strategy/type") != "Recreate"
}

/// How many pods more, and how many fewer, than wanted there may be meanwhile.
fn slack(deployment: &Value) -> (i64, i64) {
    if !is_rolling(deployment) {
        return (0, 0);
    }
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let quarter = Value::from("25%");
    let part = |field: &str, round| {
        let value = deployment.pointer("/spec/strategy/rollingUpdate").and_then(|update| update.get(field));
        share(Some(value.unwrap_or(&quarter)), wanted, round).unwrap_or(0)
    };
    let (surge, unavailable) = (part("maxSurge", Round::Up), part("maxUnavailable", Round::Down));
    // Nothing would ever move.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(wanted)) }
}

/// How many pods fewer than wanted there may be.
pub(super) fn unavailable_max(deployment: &Value) -> i64 {
    slack(deployment).1
}

/// How large a new replica set begins.
pub(super) fn first_size(deployment: &Value, sets: &Sets) -> i64 {
    if !is_rolling(deployment) && sets.all().any(|set| int_at(set, "/status/replicas", 0) > 0) {
        return 0;
    }
    grown(deployment, sets.sum("/spec/replicas"), 0)
}

fn grown(deployment: &Value, total: i64, current: i64) -> i64 {
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let room = (wanted + slack(deployment).0 - total).max(0);
    wanted.min(current + room).max(current.min(wanted))
}

/// Notes the sizes of the deployment on a replica set.
pub(super) fn note_sizes(deployment: &Value, set: &mut Value) {
    let wanted = int_at(deployment, "/spec/replicas", 1);
    set_entry(set, "annotations", DESIRED, &wanted.to_string());
    set_entry(set, "annotations", MAX, &(wanted + slack(deployment).0).to_string());
}

/// Takes the next step: the new replica set grows as far as it may, then the old ones shrink as far as they may.
pub(super) async fn step(context: &Context, deployment: &Value, sets: &Sets, paused: bool) -> Result<()> {
    let Some(new) = &sets.new else { return Ok(()) };
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let size = int_at(new, "/spec/replicas", 0);
    if paused {
        // A paused deployment is still scaled, where there is only one template.
        if sets.old.iter().all(|set| int_at(set, "/spec/replicas", 0) == 0) {
            resize(context, deployment, new, wanted).await?;
        }
        return Ok(());
    }
    if !is_rolling(deployment) {
        for old in &sets.old {
            resize(context, deployment, old, 0).await?;
        }
        let gone = sets.old.iter().all(|set| {
            int_at(set, "/status/replicas", 0) == 0 && int_at(set, "/status/terminatingReplicas", 0) == 0
        });
        if gone {
            resize(context, deployment, new, wanted).await?;
        }
        return Ok(());
    }
    let target = if size > wanted { wanted } else { grown(deployment, sets.sum("/spec/replicas"), size) };
    resize(context, deployment, new, target).await?;
    shrink(context, deployment, sets, target).await
}

async fn shrink(context: &Context, deployment: &Value, sets: &Sets, new_size: i64) -> Result<()> {
    let Some(new) = &sets.new else { return Ok(()) };
    let wanted = int_at(deployment, "/spec/replicas", 1);
    let least = wanted - slack(deployment).1;
    let old_total: i64 = sets.old.iter().map(|set| int_at(set, "/spec/replicas", 0)).sum();
    let new_available = int_at(new, "/status/availableReplicas", 0);
    let mut may_go = old_total + new_size - least - (new_size - new_available).max(0);
    let available: i64 = sets.all().map(|set| int_at(set, "/status/availableReplicas", 0)).sum();
    let mut healthy_may_go = available - least;
    for old in &sets.old {
        let size = int_at(old, "/spec/replicas", 0);
        if size == 0 {
            continue;
        }
        // Those that do not serve go first: nobody misses them.
        let healthy = int_at(old, "/status/availableReplicas", 0).min(size);
        let broken = (size - healthy).min(may_go).max(0);
        may_go -= broken;
        let serving = healthy.min(healthy_may_go).min(may_go).max(0);
        may_go -= serving;
        healthy_may_go -= serving;
        resize(context, deployment, old, size - broken - serving).await?;
    }
    Ok(())
}

async fn resize(context: &Context, deployment: &Value, set: &Value, size: i64) -> Result<()> {
    let mut new = set.clone();
    new["spec"]["replicas"] = Value::from(size);
    note_sizes(deployment, &mut new);
    context.update(&kind::REPLICA_SET, Part::Main, set, &new).await?;
    tell_scaled(context, deployment, object::name(set), int_at(set, "/spec/replicas", 0), size);
    Ok(())
}

/// Tells that a replica set was given another size.
pub(super) fn tell_scaled(context: &Context, deployment: &Value, set: &str, from: i64, to: i64) {
    if from != to {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
        context.tell(deployment, "ScalingReplicaSet", message);
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
    fn a_new_set_grows_into_the_surge() {
        let deployment = deployment(10, &json!("25%"), &json!("25%"));
        assert_eq!(slack(&deployment), (3, 2));
        assert_eq!(grown(&deployment, 10, 0), 3);
        assert_eq!(grown(&deployment, 13, 3), 3);
        assert_eq!(grown(&deployment, 8, 7), 10);
    }

    #[test]
    fn something_always_may_move() {
        assert_eq!(slack(&deployment(4, &json!(0), &json!(0))), (0, 1));
        assert_eq!(slack(&json!({"spec": {"replicas": 1}})), (1, 0));
        assert_eq!(slack(&json!({"spec": {"replicas": 4, "strategy": {"type": "Recreate"}}})), (0, 0));
    }
}
