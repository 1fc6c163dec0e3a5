//! Status conditions of pending groups and pods, and the patches that write them.

use crate::resources::POD_GROUP;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_api::pod_group::{QueueDetails, SchedulingCondition, UnschedulableDetails, UnschedulableExplanation};
use kai_engine::explain::capacity::Quantities;
use kai_engine::explain::{self, Explanation};
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use kai_runtime::kind::POD;
use kai_runtime::writer::{Done, Retry, Write, WritePriority};
use serde_json::{Value, json};

/// Write queue slots: a newer write to the same slot of an object replaces a queued one.
pub(crate) const GROUP_SLOT: &str = "conditions";
pub(crate) const POD_SLOT: &str = "scheduled";

/// Inserts or replaces the condition of a node pool; `None` when the last condition already equals it.
///
/// As in KAI, a node pool has one condition, the newest condition is last, and `transitionID` increases.
pub(crate) fn upsert(
    known: &[SchedulingCondition],
    mut new: SchedulingCondition,
) -> Option<Vec<SchedulingCondition>> {
    let content = |c: &SchedulingCondition| {
        (c.type_.clone(), c.node_pool.clone(), c.reason.clone(), c.message.clone(), c.status.clone())
    };
    if known.last().is_some_and(|last| content(last) == content(&new)) {
        return None;
    }
    let number = |c: &SchedulingCondition| c.transition_id.parse::<i64>().unwrap_or(0);
    // Anyone who may write the status may have written the largest number.
    new.transition_id = known.iter().map(number).max().unwrap_or(0).saturating_add(1).to_string();
    let others = known.iter().filter(|c| c.node_pool != new.node_pool).cloned();
    Some(others.chain([new.clone()]).collect())
}

pub(crate) fn of_group(
    verdict: &GroupVerdict,
    pool: &str,
    message: String,
    time: Option<Time>,
) -> SchedulingCondition {
    SchedulingCondition {
        type_: SchedulingCondition::UNSCHEDULABLE_ON_NODE_POOL.to_owned(),
        node_pool: pool.to_owned(),
        reason: SchedulingCondition::UNSCHEDULABLE.to_owned(),
        message,
        reasons: explain::reasons(verdict).iter().map(explanation).collect(),
        transition_id: String::new(),
        last_transition_time: time,
        status: "True".to_owned(),
    }
}

fn explanation(explanation: &Explanation) -> UnschedulableExplanation {
    let amounts = |list: &Quantities| {
        list.iter().map(|(name, amount)| ((*name).to_owned(), Quantity(amount.to_string()))).collect()
    };
    let details = explanation.detail.as_ref().map(|queue| UnschedulableDetails {
        queue_details: Some(QueueDetails {
            name: queue.name.clone(),
            queue_requested_resources: amounts(&queue.requested),
            queue_deserved_resources: amounts(&queue.deserved),
            queue_allocated_resources: amounts(&queue.allocated),
            queue_allocated_non_preemptible_resources: amounts(&queue.allocated_non_preemptible),
            queue_resource_limits: amounts(&queue.limits),
            pod_group_requested_resources: amounts(&queue.group_requested),
            pod_group_requested_non_preemptible_resources: amounts(&queue.group_requested_non_preemptible),
        }),
    });
    UnschedulableExplanation {
        reason: explanation.reason.text().to_owned(),
        message: explanation.message.clone(),
        details,
    }
}

/// A condition `PodScheduled` with the status `False`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodCondition {
    pub(crate) pod: Key,
    pub(crate) uid: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Writes the conditions of a group; an empty list removes them.
///
/// The list holds conditions of other node pools too: the write fails with a conflict if the group is no longer in the
/// state of `version`, from which the list was computed.
pub(crate) fn write_group(
    group: &Key,
    conditions: &[SchedulingCondition],
    version: u64,
    done: Done,
) -> Write {
    let key = group.clone();
    let conditions = if conditions.is_empty() { Value::Null } else { json!(conditions) };
    Write {
        priority: WritePriority::Status,
        path: POD_GROUP.path_of(&key) + "/status",
        object: (POD_GROUP.clone(), key),
        slot: Some(GROUP_SLOT),
        method: "PATCH",
        content_type: "application/merge-patch+json",
        body: json!({
            "metadata": {"resourceVersion": version.to_string()},
            "status": {"schedulingConditions": conditions},
        }),
        retry: Retry::UntilAnswered,
        done: Some(done),
    }
}

/// Writes a condition of a pod.
///
/// The write fails with a conflict on another pod of the same name, and if the pod is no longer in the state of `version`:
/// it may have been bound, and `PodScheduled` is `True` then.
pub(crate) fn write_pod(condition: &PodCondition, version: u64, time: &str, done: Done) -> Write {
    let PodCondition { pod, uid, reason, message } = condition;
    let key = pod.clone();
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": time,
    });
    Write {
        priority: WritePriority::Status,
        path: POD.path_of(&key) + "/status",
        object: (POD, key),
        slot: Some(POD_SLOT),
        method: "PATCH",
        content_type: "application/strategic-merge-patch+json",
        body: json!({
            "metadata": {"uid": uid, "resourceVersion": version.to_string()},
            "status": {"conditions": [condition]},
        }),
        retry: Retry::UntilAnswered,
        done: Some(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(pool: &str, message: &str, id: &str) -> SchedulingCondition {
        SchedulingCondition {
            node_pool: pool.to_owned(),
            message: message.to_owned(),
            transition_id: id.to_owned(),
            ..SchedulingCondition::default()
        }
    }

    #[test]
    fn unchanged_condition_is_not_written_and_the_newest_is_last() {
        let first = upsert(&[], condition("a", "no capacity", "")).expect("a new condition");
        assert_eq!(first, [condition("a", "no capacity", "1")]);
        assert_eq!(upsert(&first, condition("a", "no capacity", "")), None);
        let second = upsert(&first, condition("b", "no capacity", "")).expect("a condition of another pool");
        assert_eq!(second, [condition("a", "no capacity", "1"), condition("b", "no capacity", "2")]);
        let third = upsert(&second, condition("a", "no capacity", "")).expect("it was not last");
        assert_eq!(third, [condition("b", "no capacity", "2"), condition("a", "no capacity", "3")]);
    }

    #[test]
    fn largest_transition_id_in_a_status_is_kept() {
        let known = [condition("b", "", &i64::MAX.to_string())];
        let next = upsert(&known, condition("a", "no capacity", "")).expect("a new condition");
        assert_eq!(next[1].transition_id, i64::MAX.to_string());
    }
}
