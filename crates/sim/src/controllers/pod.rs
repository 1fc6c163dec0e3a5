//! Shared by the workload controllers: pods from templates, and the state of pods.

use super::{condition, has_condition, owner_reference, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Result};
use kai_runtime::controller::Context;
use kai_runtime::kind;
use rustc_hash::FxHasher;
use serde_json::{Value, json};
use std::hash::Hasher;
use std::time::Duration;

/// Alphabet of generated names, as in `k8s.io/apimachinery/pkg/util/rand`.
const SAFE_CHARS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod from a template with a generated name and a controller reference to `owner`.
pub fn from_template(owner: &Value, template: &Value) -> Value {
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let annotations = template.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    let finalizers = template.pointer("/metadata/finalizers").cloned().unwrap_or_else(|| json!([]));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", object::name(owner)), "namespace": object::namespace(owner),
            "labels": labels, "annotations": annotations, "finalizers": finalizers,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": template["spec"].clone(),
    })
}

/// Creates a pod, and records an event on its owner.
pub async fn create(context: &Context, owner: &Value, pod: &Value) -> Result<Value> {
    let created = context.create_dynamic(&kind::POD, object::namespace(owner), pod).await;
    match &created {
        Ok(pod) => context.record(owner, "SuccessfulCreate", format!("Created pod: {}", object::name(pod))),
        Err(error) => context.warn(owner, "FailedCreate", format!("Error creating: {}", error.message())),
    }
    created
}

/// Deletes a pod, and records an event on its owner.
pub async fn delete(context: &Context, owner: &Value, pod: &Value) -> Result<()> {
    context.delete_dynamic(&kind::POD, pod, DeleteOptions::of(pod)).await?;
    context.record(owner, "SuccessfulDelete", format!("Deleted pod: {}", object::name(pod)));
    Ok(())
}

/// Whether the phase is `Succeeded` or `Failed`.
pub fn is_terminal(pod: &Value) -> bool {
    object::is_terminal(pod)
}

/// Neither terminal nor terminating.
pub fn is_active(pod: &Value) -> bool {
    !is_terminal(pod) && !object::is_deleting(pod)
}

pub fn is_ready(pod: &Value) -> bool {
    has_condition(pod, "Ready")
}

/// Whether the pod has been ready for `minReadySeconds`, or else the remaining time where it is ready.
pub fn availability(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> (bool, Option<Duration>) {
    if !is_ready(pod) {
        return (false, None);
    }
    let since = condition(pod, "Ready").and_then(|ready| time::at(ready, "/lastTransitionTime"));
    let since = since.unwrap_or(now);
    let due = time::plus(since, min_ready_seconds);
    if min_ready_seconds == 0 || due <= now { (true, None) } else { (false, Some(time::until(now, due))) }
}

/// Sorts pods for scale-down: unbound, pending and not ready pods first, as `ActivePods` upstream.
pub fn sort_by_deletion_cost(pods: &mut [&Value]) {
    let rank = |pod: &Value| {
        let phase = match object::str_at(pod, "/status/phase") {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let unbound = object::str_at(pod, "/spec/nodeName").is_empty();
        (!unbound, phase, is_ready(pod))
    };
    // Then the youngest first; names make the order deterministic.
    pods.sort_by(|one, two| {
        let age = object::meta_str(two, "creationTimestamp").cmp(object::meta_str(one, "creationTimestamp"));
        rank(one).cmp(&rank(two)).then(age).then_with(|| object::name(one).cmp(object::name(two)))
    });
}

/// A short hash of a value, for names and labels.
pub fn hash(value: &Value) -> String {
    let mut hasher = FxHasher::default();
    hasher.write(value.to_string().as_bytes());
    let mut left = hasher.finish();
    let mut text = String::new();
    for _ in 0..10 {
        text.push(char::from(SAFE_CHARS[(left % 27) as usize]));
        left /= 27;
    }
    text
}

/// Resolves an int-or-percent value against `total`.
pub fn int_or_percent(value: Option<&Value>, total: i64, round: Rounding) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent * total;
            Some(match round {
                Rounding::Up => (product + 99).div_euclid(100),
                Rounding::Down => product.div_euclid(100),
            })
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Up,
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up_or_down() {
        assert_eq!(int_or_percent(Some(&json!("25%")), 10, Rounding::Up), Some(3));
        assert_eq!(int_or_percent(Some(&json!("25%")), 10, Rounding::Down), Some(2));
        assert_eq!(int_or_percent(Some(&json!(4)), 10, Rounding::Down), Some(4));
        assert_eq!(int_or_percent(None, 10, Rounding::Down), None);
    }

    #[test]
    fn pending_pods_are_deleted_before_running_ones() {
        let pod = |name: &str, node: &str, phase: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        let pods = [pod("a", "n", "Running"), pod("b", "n", "Pending"), pod("c", "", "Pending")];
        let mut order: Vec<&Value> = pods.iter().collect();
        sort_by_deletion_cost(&mut order);
        assert_eq!(order.iter().map(|pod| object::name(pod)).collect::<Vec<_>>(), ["c", "b", "a"]);
    }
}
