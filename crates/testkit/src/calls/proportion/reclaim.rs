//! Replays reclaim rules between queues.

use super::super::record::{Case, Queues, ledger, list, map, number, quantities, quota_of, text, whole};
use super::super::{Adapter, CallOutcome, recorded_cluster};
use super::result;
use kai_engine::resource::QueueResource;
use kai_engine::share::reclaim::{self, ReclaimAmount, Reclaimer, VictimPod};
use kai_engine::share::{Preemptibility, QueueTree};
use serde_json::{Value, json};

pub(super) fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "reclaimable.Reclaimable.CanReclaimResources" => Some(may_reclaim),
        "reclaimable.Reclaimable.FilterVictim" => Some(keeps_victim),
        "reclaimable.Reclaimable.Reclaimable" => Some(scenario),
        "strategies.MaintainFairShareStrategy.Reclaimable" | "strategies.FitsMaintainFairShare" => {
            Some(beyond_share)
        }
        "strategies.GuaranteeDeservedQuotaStrategy.Reclaimable" => Some(beyond_quota_within_quota),
        "strategies.ReclaimerFitsDeservedQuota" => Some(within_quota),
        "strategies.ReclaimeeExceedsDeservedQuota" => Some(beyond_quota),
        "proportion.proportionPlugin.getVictimResources" => Some(portions),
        _ => None,
    }
}

/// The reclaimer of a case, and its queues.
fn reclaimer(case: &Case<'_>) -> Option<(Queues, Reclaimer)> {
    let recorded = &case.input["reclaimer"];
    let queues = Queues::new(&case.input["queues"]);
    let vector = &recorded["required_resources"];
    let mut request = ReclaimAmount::all_involved(quota_of(vector, &recorded["vector_map"]));
    request.involved[QueueResource::Gpu] = number(&vector["gpu"]) > 0.0;
    let preemptibility = if recorded["is_preemptable"].as_bool()? {
        Preemptibility::Preemptible
    } else {
        Preemptibility::NonPreemptible
    };
    let queue = queues.find(text(&recorded["queue"]))?;
    Some((queues, Reclaimer { queue, preemptibility, request }))
}

fn unreadable() -> CallOutcome {
    CallOutcome::Failed("the record names an unknown queue".to_owned())
}

fn may_reclaim(case: &Case<'_>) -> CallOutcome {
    let Some((queues, reclaimer)) = reclaimer(case) else { return unreadable() };
    let ledger = queues.ledger(reclaimer.queue);
    result(case, reclaim::may_reclaim(ledger, reclaimer.preemptibility, &reclaimer.request.amounts))
}

fn keeps_victim(case: &Case<'_>) -> CallOutcome {
    let Some((queues, reclaimer)) = reclaimer(case) else { return unreadable() };
    let Some(victim) = queues.find(text(&case.input["reclaimee_queue_id"])) else { return unreadable() };
    result(case, reclaim::may_have_victims(&queues, &reclaimer, victim))
}

fn scenario(case: &Case<'_>) -> CallOutcome {
    let Some((queues, reclaimer)) = reclaimer(case) else { return unreadable() };
    let vector_map = &case.input["reclaimer"]["vector_map"];
    let mut losses = Vec::new();
    for (key, portions) in map(&case.input["reclaimee_resources_by_queue"]) {
        let Some(queue) = queues.find(key) else { return unreadable() };
        for vector in list(portions) {
            let mut portion = ReclaimAmount::all_involved(quota_of(vector, vector_map));
            portion.involved[QueueResource::Gpu] = number(&vector["gpu"]) > 0.0;
            losses.push((queue, portion));
        }
    }
    let multiplier = number(&case.input["self"]["saturation_multiplier"]);
    result(case, reclaim::scenario_is_fair(&queues, &reclaimer, &losses, multiplier))
}

fn beyond_share(case: &Case<'_>) -> CallOutcome {
    let remaining = quantities(&case.input["reclaimee_remaining_share"]);
    result(case, reclaim::holds_beyond_share(&ledger(&case.input["reclaimee_queue"], 0), &remaining))
}

fn fits_quota(case: &Case<'_>) -> bool {
    let asked = quota_of(&case.input["reclaimer_resources"], &case.input["vector_map"]);
    ledger(&case.input["reclaimer_queue"], 0).within_quota(&asked)
}

fn exceeds_quota(case: &Case<'_>) -> bool {
    let remaining = quantities(&case.input["reclaimee_remaining_share"]);
    reclaim::holds_beyond_quota(&ledger(&case.input["reclaimee_queue"], 0), &remaining)
}

fn within_quota(case: &Case<'_>) -> CallOutcome {
    result(case, fits_quota(case))
}

fn beyond_quota(case: &Case<'_>) -> CallOutcome {
    result(case, exceeds_quota(case))
}

fn beyond_quota_within_quota(case: &Case<'_>) -> CallOutcome {
    result(case, fits_quota(case) && exceeds_quota(case))
}

/// Statuses of pods that have a place or will have it.
const ACTIVE_ALLOCATED: [&str; 5] = ["Allocated", "Pipelined", "Binding", "Bound", "Running"];

fn portions(case: &Case<'_>) -> CallOutcome {
    let victim = &case.input["victim"];
    let mut pod_sets: Vec<&Value> = Vec::new();
    recorded_cluster::pod_sets(recorded_cluster::tree_of(&victim["job"]), &mut pod_sets);
    let minimums: Vec<u32> = pod_sets.iter().map(|set| whole(&set["min_available"]) as u32).collect();
    let leave_out_replaced = case.input["self"]["allow_consolidating_reclaim"].as_bool() == Some(true);
    let pods: Vec<VictimPod> = list(&victim["tasks"])
        .map(|task| {
            let set = task["sub_group"].as_str().unwrap_or("default");
            let replaced = ACTIVE_ALLOCATED.contains(&text(&task["status"]));
            VictimPod {
                pod_set: pod_sets.iter().position(|s| text(&s["name"]) == set).unwrap_or(0),
                holds: (!(leave_out_replaced && replaced))
                    .then(|| ReclaimAmount::all_involved(quota_of(&task["accepted"], &Value::Null))),
            }
        })
        .collect();
    let chunks: Vec<Value> = reclaim::portions(&pods, &minimums)
        .iter()
        .map(|portion| {
            let [cpu, memory, gpu] = portion.amounts;
            let amounts =
                [("cpu_milli", cpu as f64), ("memory_bytes", memory as f64), ("gpu", gpu as f64 / 1e6)];
            amounts.into_iter().filter(|(_, v)| *v != 0.0).map(|(k, v)| (k.to_owned(), json!(v))).collect()
        })
        .map(Value::Object)
        .collect();
    result(case, chunks)
}
