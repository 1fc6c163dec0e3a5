//! What controllers of pods share: making a pod from a template, and telling how a pod is doing.

use super::{condition, holds, owner_reference, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{Deletion, Result};
use kai_runtime::controller::Context;
use kai_runtime::kind;
use rustc_hash::FxHasher;
use serde_json::{Value, json};
use std::hash::Hasher;
use std::time::Duration;

/// Letters and digits that spell no words, as generated names use them.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod from a template, controlled by `owner`, with a generated name.
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

/// Makes a pod for its controller, and tells so, or why it could not be made.
pub async fn create(context: &Context, owner: &Value, pod: &Value) -> Result<Value> {
    let made = context.create(&kind::POD, object::namespace(owner), pod).await;
    match &made {
        Ok(made) => context.tell(owner, "SuccessfulCreate", format!("Created pod: {}", object::name(made))),
        Err(error) => context.warn(owner, "FailedCreate", format!("Error creating: {}", error.reason())),
    }
    made
}

/// Deletes a pod for its controller, and tells so.
pub async fn delete(context: &Context, owner: &Value, pod: &Value) -> Result<()> {
    context.delete(&kind::POD, pod, Deletion::of(pod)).await?;
    context.tell(owner, "SuccessfulDelete", format!("Deleted pod: {}", object::name(pod)));
    Ok(())
}

/// Whether the pod's containers are over for good.
pub fn is_finished(pod: &Value) -> bool {
    matches!(object::str_at(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether the pod runs or may yet run.
pub fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !object::is_deleting(pod)
}

/// Whether the pod serves.
pub fn is_ready(pod: &Value) -> bool {
    holds(pod, "Ready")
}

/// Whether the pod has served for long enough; and how long until it will have, if that only takes time.
pub fn availability(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> (bool, Option<Duration>) {
    if !is_ready(pod) {
        return (false, None);
    }
    let since = condition(pod, "Ready").and_then(|ready| time::at(ready, "/lastTransitionTime"));
    let since = since.unwrap_or(now);
    let due = time::plus(since, min_ready_seconds);
    if min_ready_seconds == 0 || due <= now { (true, None) } else { (false, Some(time::until(now, due))) }
}

/// Orders pods by how little is lost with them: the first go first.
pub fn cheapest_first(pods: &mut [&Value]) {
    let rank = |pod: &Value| {
        let phase = match object::str_at(pod, "/status/phase") {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let unbound = object::str_at(pod, "/spec/nodeName").is_empty();
        (!unbound, phase, is_ready(pod))
    };
    // Of equals the youngest goes first; names decide the rest, so that every run does the same.
    pods.sort_by(|one, two| {
        let age = object::meta_str(two, "creationTimestamp").cmp(object::meta_str(one, "creationTimestamp"));
        rank(one).cmp(&rank(two)).then(age).then_with(|| object::name(one).cmp(object::name(two)))
    });
}

/// A short hash of a value, as names carry it.
pub fn hash(value: &Value) -> String {
    let mut hasher = FxHasher::default();
    hasher.write(value.to_string().as_bytes());
    let mut left = hasher.finish();
    let mut text = String::new();
    for _ in 0..10 {
        text.push(char::from(SAFE[(left % 27) as usize]));
        left /= 27;
    }
    text
}

/// How many of `total` a number or percentage is.
pub fn share(value: Option<&Value>, total: i64, round: Round) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent * total;
            Some(match round {
                Round::Up => (product + 99).div_euclid(100),
                Round::Down => product.div_euclid(100),
            })
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Which way a percentage is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the next whole.
    Up,
    /// To the whole before.
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        assert_eq!(share(Some(&json!("25%")), 10, Round::Up), Some(3));
        assert_eq!(share(Some(&json!("25%")), 10, Round::Down), Some(2));
        assert_eq!(share(Some(&json!(4)), 10, Round::Down), Some(4));
        assert_eq!(share(None, 10, Round::Down), None);
    }

    #[test]
    fn pending_pods_go_before_running_ones() {
        let pod = |name: &str, node: &str, phase: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        let pods = [pod("a", "n", "Running"), pod("b", "n", "Pending"), pod("c", "", "Pending")];
        let mut order: Vec<&Value> = pods.iter().collect();
        cheapest_first(&mut order);
        assert_eq!(order.iter().map(|pod| object::name(pod)).collect::<Vec<_>>(), ["c", "b", "a"]);
    }
}
