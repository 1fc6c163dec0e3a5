//! Replays the division of resources among queues.

use super::super::compare::{difference, same};
use super::super::record::{Case, NAMES, Queues, amount, number, quantities, recorded, text};
use super::super::{Adapter, CallOutcome};
use kai_engine::ids::{Idx, QueueIdx};
use kai_engine::share::division::{self, ResourceShare};
use kai_engine::share::{QueueTree, QueueTreeMut, RESOURCES, UNITS};
use serde_json::{Map, Value, json};

/// The remains of rounding never exceed a request or a limit, and stay within their priority.
const REMAINDER: &str = "D08";

pub(super) fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "resource_division.SetResourcesShare" => Some(siblings),
        "resource_division.setResourceShare" => Some(one_resource),
        "resource_division.divideOverQuotaResource" => Some(surplus),
        "proportion.proportionPlugin.setFairShare" => Some(tree),
        _ => None,
    }
}

fn siblings(case: &Case<'_>) -> CallOutcome {
    let mut queues = Queues::new(&case.input["queues"]);
    let total = quantities(&case.input["total_resource"]);
    for r in 0..3 {
        let mut shares = shares(&queues, r);
        division::divide(UNITS[r], total[r], number(&case.input["k_value"]), &mut shares);
        write_back(&mut queues, r, &shares);
    }
    compare_shares(&case.output["after"]["queues"], &queues)
}

fn one_resource(case: &Case<'_>) -> CallOutcome {
    single(case, "total_amount", division::divide)
}

fn surplus(case: &Case<'_>) -> CallOutcome {
    single(case, "total_resource_amount", division::divide_surplus)
}

fn single(
    case: &Case<'_>,
    total: &str,
    divide: fn(i64, i64, f64, &mut [ResourceShare]) -> i64,
) -> CallOutcome {
    let Some(r) = NAMES.iter().position(|name| *name == text(&case.input["resource_name"])) else {
        return CallOutcome::Failed("unknown resource".to_owned());
    };
    let mut queues = Queues::new(&case.input["queues"]);
    let mut shares = shares(&queues, r);
    let total = amount(&case.input[total], r);
    let left = divide(UNITS[r], total, number(&case.input["k_value"]), &mut shares);
    write_back(&mut queues, r, &shares);
    // Absent means that the call changed nothing.
    let after = case.output["after"].get("queues").unwrap_or(&case.input["queues"]);
    let shares = compare_shares(after, &queues);
    if shares == CallOutcome::Passed { same(case.result(), &json!([recorded(left, r)])) } else { shares }
}

fn tree(case: &Case<'_>) -> CallOutcome {
    let recorded = &case.input["self"];
    let mut queues = Queues::new(&recorded["queues"]);
    let all = queues.all();
    division::divide_tree(&mut queues, &all, &quantities(&recorded["total"]), number(&recorded["k_value"]));
    compare_shares(&case.output["after"]["self"]["queues"], &queues)
}

/// What each queue has already counts: a division adds to it.
fn shares(queues: &Queues, resource: usize) -> Vec<ResourceShare> {
    let share = |queue| {
        let ledger = queues.ledger(queue);
        ResourceShare {
            share: ledger.fair_share[resource],
            ..ResourceShare::new(ledger, RESOURCES[resource])
        }
    };
    queues.all().into_iter().map(share).collect()
}

fn write_back(queues: &mut Queues, resource: usize, shares: &[ResourceShare]) {
    for (i, share) in shares.iter().enumerate() {
        queues.ledger_mut(QueueIdx::new(i)).fair_share[resource] = share.share;
    }
}

fn compare_shares(expected: &Value, queues: &Queues) -> CallOutcome {
    let shares = |read: &dyn Fn(&str, usize) -> Value| -> Value {
        let queue = |(key, _)| {
            let shares: Map<_, _> = (0..3).map(|r| (NAMES[r].to_owned(), read(key, r))).collect();
            (key.to_owned(), Value::Object(shares))
        };
        queues.iter().map(queue).collect::<Map<_, _>>().into()
    };
    let ledger = |key: &str| queues.find(key).map(|queue| queues.ledger(queue));
    let ours = shares(&|key, r| ledger(key).map_or(Value::Null, |ledger| recorded(ledger.fair_share[r], r)));
    let theirs = shares(&|key, r| json!(number(&expected[key][NAMES[r]]["fair_share"])));
    match difference("", &theirs, &ours) {
        None => CallOutcome::Passed,
        Some(_) if breaks_a_request(expected, queues) || crosses_priorities(expected, queues) => {
            CallOutcome::ByDesign(REMAINDER)
        }
        Some(text) => CallOutcome::Failed(text),
    }
}

/// Some recorded share is beyond the request or limit of the queue.
fn breaks_a_request(expected: &Value, queues: &Queues) -> bool {
    queues.iter().any(|(key, ledger)| {
        (0..3).any(|r| amount(&expected[key][NAMES[r]]["fair_share"], r) > ledger.requestable(RESOURCES[r]))
    })
}

/// Some queue got a recorded surplus although a sibling of higher priority, with a weight, requests more.
fn crosses_priorities(expected: &Value, queues: &Queues) -> bool {
    let share =
        |queue: QueueIdx, r: usize| amount(&expected[&queues.keys[queue.index()]][NAMES[r]]["fair_share"], r);
    let all = queues.all();
    let pairs = all.iter().flat_map(|&high| all.iter().map(move |&low| (high, low)));
    pairs.filter(|&(high, low)| queues.parent(high) == queues.parent(low)).any(|(high, low)| {
        let (above, below) = (queues.ledger(high), queues.ledger(low));
        above.priority > below.priority
            && (0..3).any(|r| {
                let wants = share(high, r) < above.requestable(RESOURCES[r]) && above.weight[r] != 0.0;
                wants && below.quota[r].is_some_and(|quota| share(low, r) > quota)
            })
    })
}
