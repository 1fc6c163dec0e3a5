//! Evictions and pending groups as JSON: the rules and reasons with their numbers, and the same in words.

use crate::batches::{Batch, Story, stories};
use crate::figures::{by_resource, key, named, unit};
use kai_engine::Outcome;
use kai_engine::explain::{FailedActions, failed_actions, plain, rule};
use kai_engine::outcome::{EvictionReason, QueueChange};
use kai_engine::verdict::{EvictionFailureReason, GroupVerdict, QueueResource, ScenarioRejection, Verdict};
use kai_units::Timestamp;
use serde_json::{Map, Value, json};

/// One object for everything that an action evicts for a group.
pub(super) fn evictions(outcome: &Outcome) -> Vec<Value> {
    let of_story = |story: &Story<'_>| {
        json!({
            "for": story.preemptor.map(ToString::to_string),
            "by": story.action,
            "queues": story.changes().into_iter().map(change).collect::<Vec<_>>(),
            "victims": story.batches.iter().map(victims).collect::<Vec<_>>(),
        })
    };
    stories(outcome).iter().map(of_story).collect()
}

/// Pods of a group that give way by the same rule.
fn victims(batch: &Batch<'_>) -> Value {
    let (name, numbers) = match batch.why {
        EvictionReason::Moved { node } => ("moved", json!({ "moved_to": node })),
        EvictionReason::AboveShare { reclaimer, victim } => {
            ("above_share", json!({ "reclaimer": reclaimer.queue, "victim": victim.queue }))
        }
        EvictionReason::AboveQuota { reclaimer, victim } => {
            ("above_quota", json!({ "reclaimer": reclaimer.queue, "victim": victim.queue }))
        }
        EvictionReason::Priority { preemptor, victim } => {
            ("priority", json!({ "priority": preemptor, "victim_priority": victim }))
        }
        EvictionReason::Stale { since } => ("stale", json!({ "since": Timestamp(*since).to_string() })),
    };
    let mut told = object(json!({
        "group": batch.group.map(ToString::to_string),
        "pods": batch.pods.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rule": name,
        "why": rule(batch.why),
    }));
    told.append(&mut object(numbers));
    Value::Object(told)
}

fn change((change, takes): (&QueueChange, bool)) -> Value {
    let resources = by_resource(|resource, at| {
        json!({
            "quota": change.quota[at].map(|quota| unit(resource, quota)),
            "fair_share": unit(resource, change.fair_share[at]),
            "before": unit(resource, change.before[at]),
            "after": unit(resource, change.after[at]),
        })
    });
    json!({ "queue": change.queue, "role": if takes { "reclaimer" } else { "victim" }, "resources": resources })
}

/// One object a group that is not wholly placed.
pub(super) fn pending(outcome: &Outcome) -> Vec<Value> {
    outcome.verdicts.iter().filter(|verdict| verdict.leading != Verdict::Placed).map(group).collect()
}

/// Why a group is pending.
pub(crate) fn group(verdict: &GroupVerdict) -> Value {
    let reason = |of: &Verdict| {
        let sentence = plain(of, &verdict.queue);
        object(json!({ "verdict": name(of), "why": sentence.text, "hint": sentence.hint }))
    };
    let further = verdict.further.iter().filter(|further| !matches!(further, Verdict::NoVictims(_)));
    let mut told = object(json!({
        "group": verdict.group.to_string(),
        "queue": verdict.queue,
        "pods": verdict.pending,
        "further": further.map(reason).collect::<Vec<_>>(),
        "no_victims": failed_actions(verdict).iter().map(refusal).collect::<Vec<_>>(),
    }));
    told.append(&mut reason(&verdict.leading));
    Value::Object(told)
}

fn refusal(refusal: &FailedActions<'_>) -> Value {
    let (name, mut numbers) = numbers(refusal.reason);
    let mut told = object(json!({
        "by": refusal.causes.iter().map(|cause| cause.action()).collect::<Vec<_>>(),
        "reason": name,
        "why": refusal.sentence.text,
        "hint": refusal.sentence.hint,
    }));
    told.append(&mut numbers);
    Value::Object(told)
}

/// The name of a reason, and its numbers.
fn numbers(reason: &EvictionFailureReason) -> (&'static str, Map<String, Value>) {
    let (name, numbers) = match reason {
        EvictionFailureReason::BeyondFairShare { queue, resource: r, fair_share, used, requested } => (
            "beyond_fair_share",
            json!({
                "of_queue": queue, "resource": key(*r), "fair_share": unit(*r, *fair_share), "used": unit(*r, *used),
                "requested": unit(*r, *requested),
            }),
        ),
        EvictionFailureReason::BeyondQuota(excess) => {
            let r = excess.resource;
            (
                "beyond_quota",
                json!({
                    "of_queue": excess.queue, "resource": key(r), "quota": unit(r, excess.bound),
                    "used": unit(r, excess.used), "requested": unit(r, excess.requested),
                }),
            )
        }
        EvictionFailureReason::NoCandidates => ("no_candidates", json!({})),
        EvictionFailureReason::InsufficientEvictable { resource: r, requested, free, evictable, queues } => (
            "insufficient_evictable",
            json!({
                "resource": key(*r), "requested": unit(*r, *requested), "free": unit(*r, *free),
                "evictable": unit(*r, *evictable), "in_queues": queues,
            }),
        ),
        EvictionFailureReason::NodesTooSmall { pods, fitting, gpus } => (
            "nodes_too_small",
            json!({ "of_pods": pods, "fitting": fitting, "least_gpus": unit(QueueResource::Gpu, *gpus) }),
        ),
        EvictionFailureReason::InsufficientEvictableOther { resource, requested, free, evictable } => (
            "insufficient_evictable_other",
            json!({
                "resource": resource, "requested": named(resource, *requested), "free": named(resource, *free),
                "evictable": named(resource, *evictable),
            }),
        ),
        EvictionFailureReason::DomainTooSmall { level, domain, resource, requested, most } => (
            "domain_too_small",
            json!({
                "level": level, "domain": domain, "resource": resource, "requested": named(resource, *requested),
                "most": named(resource, *most),
            }),
        ),
        EvictionFailureReason::InsufficientFree { resource: r, requested, free } => (
            "insufficient_free",
            json!({ "resource": key(*r), "requested": unit(*r, *requested), "free": unit(*r, *free) }),
        ),
        EvictionFailureReason::EquivalentGroupFailed(group) => {
            ("equivalent_group_failed", json!({ "like": group.to_string() }))
        }
        EvictionFailureReason::RepeatedEviction(group) => {
            ("repeated_eviction", json!({ "group": group.to_string() }))
        }
        EvictionFailureReason::NoValidScenario { tried, all, refused } => (
            "no_valid_scenario",
            json!({ "tried": tried, "all": all, "refused": refused.as_ref().map(broken) }),
        ),
        EvictionFailureReason::BudgetExhausted { tried, steps } => {
            ("budget_exhausted", json!({ "tried": tried, "steps": steps }))
        }
        EvictionFailureReason::Unschedulable(_) => ("unschedulable", json!({})),
    };
    (name, object(numbers))
}

fn broken(refusal: &ScenarioRejection) -> Value {
    match refusal {
        ScenarioRejection::Unfair => json!({ "rule": "unfair" }),
        ScenarioRejection::MinRuntime(group) => json!({ "rule": "min_runtime", "of": group.to_string() }),
        ScenarioRejection::NotMoved => json!({ "rule": "not_moved" }),
        ScenarioRejection::PlacedThisCycle => json!({ "rule": "placed_this_cycle" }),
        ScenarioRejection::TooManyMoved => json!({ "rule": "too_many_moved" }),
        ScenarioRejection::DisruptionBudget(budget) => {
            json!({ "rule": "disruption_budget", "of": budget.to_string() })
        }
        ScenarioRejection::Plugin(words) => json!({ "rule": "plugin", "of": words }),
    }
}

/// The fields of an object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// A verdict's name.
pub(super) fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Placed => "placed",
        Verdict::NotAttempted => "not_attempted",
        Verdict::QueueMissing => "queue_missing",
        Verdict::QueueNotLeaf => "queue_not_leaf",
        Verdict::InvalidGroup(_) => "invalid_group",
        Verdict::NotReady { .. } => "not_ready",
        Verdict::OverLimit(_) => "over_limit",
        Verdict::NonPreemptibleOverQuota(_) => "non_preemptible_over_quota",
        Verdict::BeyondQueueDepth { .. } => "beyond_queue_depth",
        Verdict::GangNotSatisfied { .. } => "gang_not_satisfied",
        Verdict::NoNode(_) => "no_node",
        Verdict::Topology(_) => "topology",
        Verdict::PodUnschedulable { .. } => "pod_unschedulable",
        Verdict::PreemptionDelay { .. } => "preemption_delay",
        Verdict::NoVictims(_) => "no_victims",
        Verdict::WaitingForVictims { .. } => "waiting_for_victims",
        Verdict::InBackoff { .. } => "in_backoff",
        Verdict::Quarantined(_) => "quarantined",
    }
}
