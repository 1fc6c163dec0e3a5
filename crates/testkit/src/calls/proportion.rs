//! Replays queue shares, capacity policies, queue order and reclaim rules.

mod capacity;
mod fair_share;
mod queue;
mod reclaim;

use super::compare::same;
use super::record::{Case, NAMES, bound, ledger, quantities, quota_of, recorded, recorded_bound};
use super::{Adapter, Area, CallOutcome};
use kai_engine::resource::QueueResource;
use kai_engine::share::{self, order};
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-proportion", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    let (_, name) = function.split_once('.')?;
    fair_share::adapter(function)
        .or_else(|| capacity::adapter(function))
        .or_else(|| queue::adapter(function))
        .or_else(|| reclaim::adapter(function))
        .or(match name {
            "QueueResourceShare.AllocatedPlusResourcesLessEqualDeserved" => Some(within_quota),
            "QueueResourceShare.FairShareLessThanAllocated" => Some(over_utilised),
            "QueueResourceShare.GetAllocatableShare" => Some(allocatable_share),
            "QueueResourceShare.GetDominantResourceShare" => Some(dominant_share),
            "ResourceQuantities.Less" => Some(less),
            "ResourceQuantities.LessEqual" => Some(fits),
            "ResourceQuantities.LessInAtLeastOneResource" => Some(less_somewhere),
            "ResourceShare.GetAllocatableShare" => Some(allocatable),
            "ResourceShare.GetRequestableShare" => Some(requestable),
            _ => None,
        })
}

fn result(case: &Case<'_>, value: impl Into<Value>) -> CallOutcome {
    same(case.result(), &json!([value.into()]))
}

fn within_quota(case: &Case<'_>) -> CallOutcome {
    let asked = quota_of(&case.input["resources"], &case.input["vector_map"]);
    result(case, ledger(&case.input["self"], 0).within_quota(&asked))
}

fn over_utilised(case: &Case<'_>) -> CallOutcome {
    result(case, ledger(&case.input["self"], 0).over_utilised())
}

fn allocatable_share(case: &Case<'_>) -> CallOutcome {
    let share = ledger(&case.input["self"], 0).allocatable_share();
    let map: serde_json::Map<_, _> =
        (0..3).map(|r| (NAMES[r].to_owned(), recorded_bound(share[r], r))).collect();
    result(case, map)
}

fn dominant_share(case: &Case<'_>) -> CallOutcome {
    let ledger = ledger(&case.input["self"], 0);
    let total = quantities(&case.input["total_resources"]);
    result(case, order::dominant_share(&ledger.allocated, &ledger.allocatable_share(), &total).value())
}

/// The comparison behind "over-utilised": less in every resource.
fn less(case: &Case<'_>) -> CallOutcome {
    let over = share::Ledger {
        fair_share: quantities(&case.input["self"]),
        allocated: quantities(&case.input["other"]),
        ..share::Ledger::default()
    };
    result(case, over.over_utilised())
}

fn fits(case: &Case<'_>) -> CallOutcome {
    let bounds = std::array::from_fn(|r| bound(&case.input["other"][NAMES[r]], r));
    result(case, share::fits(&quantities(&case.input["self"]), &bounds))
}

fn less_somewhere(case: &Case<'_>) -> CallOutcome {
    let bounds = std::array::from_fn(|r| bound(&case.input["self"][NAMES[r]], r));
    result(case, share::exceeds_somewhere(&quantities(&case.input["other"]), &bounds))
}

/// A share of one resource without its name, read as CPU.
fn single(case: &Case<'_>) -> share::Ledger {
    ledger(&json!({ "cpu": case.input["self"] }), 0)
}

fn allocatable(case: &Case<'_>) -> CallOutcome {
    result(case, recorded_bound(single(case).allocatable(QueueResource::Cpu), 0))
}

fn requestable(case: &Case<'_>) -> CallOutcome {
    result(case, recorded(single(case).requestable(QueueResource::Cpu), 0))
}
