//! The message of the event on a group whose pod is evicted.

use super::amount::{number, unit};
use crate::cluster::Cluster;
use crate::cluster::group::DEFAULT_POD_SET;
use crate::input::Key;
use crate::outcome::{Cause, Decision, EvictionReason, QueueChange};
use crate::resource::{PerResource, QueueResource};
use crate::share::root_path;

/// Inputs of the message besides the decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventInputs<'a> {
    /// Priority of the victim's queue.
    pub(super) victim: Option<i32>,
    /// Priority of the reclaimer's queue.
    pub(super) reclaimer: Option<i32>,
    /// The victim's pod set and its minimum.
    pub(super) pod_set: Option<(&'a str, u32)>,
}

/// The event message of an eviction in KAI's format; `None` for other decisions.
///
/// `cluster` is the one that was planned on.
pub fn eviction_message(cluster: &Cluster, decision: &Decision) -> Option<String> {
    let Decision::Evict { pod, group, preemptor, action, why, .. } = decision else { return None };
    let group = group.as_ref().and_then(|key| cluster.group(key));
    let reclaimer = preemptor.as_ref().and_then(|key| cluster.group(key));
    let queue_of = |group| cluster.groups[group].queue;
    let priority = |leaf: Option<_>, change: &QueueChange| {
        let path = leaf.into_iter().flat_map(|leaf| root_path(cluster, leaf));
        let mut queues = path.map(|queue| &cluster.queues[queue]);
        queues.find(|queue| cluster.text(queue.display) == change.queue).map(|queue| queue.ledger.priority)
    };
    let mut inputs = EventInputs::default();
    if let EvictionReason::AboveShare { reclaimer: reclaimer_change, victim }
    | EvictionReason::AboveQuota { reclaimer: reclaimer_change, victim } = why.as_ref()
    {
        inputs.victim = priority(group.and_then(queue_of), victim);
        inputs.reclaimer = priority(reclaimer.and_then(queue_of), reclaimer_change);
    }
    let member = cluster.pod(pod).and_then(|pod| cluster.pods[pod].member);
    inputs.pod_set = group.zip(member).and_then(|(group, member)| {
        let member = cluster.groups[group].members.get(member)?;
        Some((cluster.text(member.name), member.pod_set()?.min))
    });
    Some(message(pod, preemptor.as_ref(), action, why, inputs))
}

/// The message; a moved pod gets the same one as an evicted pod.
pub(super) fn message(
    pod: &Key,
    preemptor: Option<&Key>,
    action: &str,
    why: &EvictionReason,
    inputs: EventInputs<'_>,
) -> String {
    let by = preemptor.map_or_else(String::new, |group| format!(" {group}"));
    match why {
        EvictionReason::Stale { .. } => {
            let below = "Workload doesn't meet the minimum required number of pods";
            match inputs.pod_set {
                None => format!("{below}, evicting remaining pod: {pod}"),
                Some((DEFAULT_POD_SET, min)) => format!("{below} ({min}), evicting remaining pod: {pod}"),
                Some((name, min)) => {
                    format!("{below} ({min}) in sub-group {name}, evicting remaining pod: {pod}")
                }
            }
        }
        EvictionReason::AboveShare { reclaimer, victim }
        | EvictionReason::AboveQuota { reclaimer, victim } => {
            let mut text = format!("Pod {pod} was preempted by workload{by}.");
            for (queue, priority) in [(victim, inputs.victim), (reclaimer, inputs.reclaimer)] {
                text.extend(priority.map(|priority| format!("\n{}", uses(queue, priority))));
            }
            text
        }
        EvictionReason::TimeLimit { .. } => {
            format!("Workload reached its maximum run time, evicting pod: {pod}")
        }
        EvictionReason::Custom { message } => message.clone(),
        EvictionReason::Moved { .. } if action == Cause::Consolidation.action() => {
            format!(
                "Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"
            )
        }
        EvictionReason::Moved { .. } if action == Cause::Reclaim.action() => {
            format!("Pod {pod} was preempted by workload{by}.")
        }
        EvictionReason::Moved { .. } | EvictionReason::Priority { .. } => {
            format!("Pod {pod} was preempted by higher priority workload{by}")
        }
    }
}

/// The usage of a queue before the eviction.
fn uses(queue: &QueueChange, priority: i32) -> String {
    format!(
        "{} uses <{}> with a quota of <{}>, fair-share of <{}> and queue priority of <{priority}>.",
        queue.queue,
        amounts(queue.before.map(Some)),
        amounts(queue.quota),
        amounts(queue.fair_share.map(Some)),
    )
}

fn amounts(amounts: PerResource<Option<i64>>) -> String {
    let amount = |resource: QueueResource| {
        amounts[resource].map_or_else(|| "Unlimited".to_owned(), |amount| number(amount, unit(resource)))
    };
    format!(
        "GPU: {}, CPU: {} (cores), memory: {} (GB)",
        amount(QueueResource::Gpu),
        amount(QueueResource::Cpu),
        amount(QueueResource::Memory)
    )
}
