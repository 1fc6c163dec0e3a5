//! Capacity gates.

use super::super::compare::same;
use super::super::record::{Case, NAMES, Queues, ledger, quantities, text};
use super::super::{Adapter, CallOutcome};
use kai_engine::ids::QueueIdx;
use kai_engine::share::gate::{self, Excess};
use kai_engine::share::{Ledger, Triple, root_ledgers, root_path};
use kai_engine::verdict::{CapacityRule, QueueResource};
use serde_json::{Value, json};

pub(super) fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "capacity_policy.isOverLimit" => Some(over_limit),
        "capacity_policy.isAllocatedNonPreemptibleOverQuota" => Some(over_quota),
        "capacity_policy.CapacityPolicy.resultsOverLimit" => Some(path_over_limit),
        "capacity_policy.CapacityPolicy.resultsWithNonPreemptibleOverQuota" => Some(path_over_quota),
        _ => None,
    }
}

fn over_limit(case: &Case<'_>) -> CallOutcome {
    one_queue(case, |ledger, asked| gate::over_limit(std::iter::once(ledger), asked))
}

fn over_quota(case: &Case<'_>) -> CallOutcome {
    one_queue(case, |ledger, asked| gate::over_quota(std::iter::once(ledger), asked))
}

fn one_queue(case: &Case<'_>, check: fn(&Ledger, &Triple) -> Option<Excess>) -> CallOutcome {
    let ledger = ledger(&case.input["queue_attributes"], 0);
    let excess = check(&ledger, &quantities(&case.input["requested"]));
    same(case.result(), &json!([excess.is_some(), excess.map_or("", |excess| name(excess.resource))]))
}

fn path_over_limit(case: &Case<'_>) -> CallOutcome {
    path(case, |queues, leaf, asked| gate::over_limit(root_ledgers(queues, leaf), asked))
}

fn path_over_quota(case: &Case<'_>) -> CallOutcome {
    // The quota binds non-preemptible groups only; a group that says nothing counts as one.
    match text(&case.input["job"]["preemptibility"]) {
        "preemptible" => path(case, |_, _, _| None),
        _ => path(case, |queues, leaf, asked| gate::over_quota(root_ledgers(queues, leaf), asked)),
    }
}

fn path(case: &Case<'_>, check: fn(&Queues, QueueIdx, &Triple) -> Option<Excess>) -> CallOutcome {
    let queues = Queues::new(&case.input["self"]["queues"]);
    let Some(leaf) = queues.find(text(&case.input["job"]["queue"])) else {
        return CallOutcome::Failed("the record names an unknown queue".to_owned());
    };
    let excess = check(&queues, leaf, &quantities(&case.input["requested_share"]));
    same(&essence(&case.result()[0]), &verdict(&queues, leaf, excess.as_ref()))
}

/// What a recorded answer says, without its wording.
pub(super) fn essence(answer: &Value) -> Value {
    json!({
        "is_schedulable": answer["is_schedulable"],
        "reason": answer["reason"],
        "queue": answer["details"]["queueDetails"]["name"],
    })
}

/// The same of ours.
pub(super) fn verdict(queues: &Queues, leaf: QueueIdx, excess: Option<&Excess>) -> Value {
    let Some(excess) = excess else {
        return json!({ "is_schedulable": true });
    };
    let reason = match excess.rule {
        CapacityRule::Limit => "OverLimit",
        CapacityRule::NonPreemptibleQuota => "NonPreemptibleOverQuota",
    };
    let queue = root_path(queues, leaf).nth(excess.level).map(|queue| queues.name(queue));
    json!({ "is_schedulable": false, "reason": reason, "queue": queue })
}

fn name(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => NAMES[0],
        QueueResource::Memory => NAMES[1],
        QueueResource::Gpu => NAMES[2],
    }
}
