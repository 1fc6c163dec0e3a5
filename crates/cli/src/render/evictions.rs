//! Tables of evictions: victims by preemptor and rule, and the allocation of both queues before and after.

use super::amount;
use kai_engine::Outcome;
use kai_engine::explain::rule;
use kai_engine::outcome::{EvictionReason, QueueChange};
use kai_engine::verdict::QueueResource;
use kai_view::Names;
use kai_view::amounts::RESOURCES;
use kai_view::evictions::{ActionEvictions, Victims, by_preemptor};
use std::collections::BTreeMap;

/// Maximum pods that a row names; the rest is counted.
const PODS_MAX: usize = 4;
/// Maximum groups with a row of their own where the rule is the same; more are summarised in one.
const GROUPS_MAX: usize = 4;

/// One row per victim group and rule; `None` without evictions.
pub(super) fn table(outcome: &Outcome, names: Names<'_>) -> Option<String> {
    let mut rows = Vec::new();
    for evictions in by_preemptor(outcome) {
        let mut head = [preemptor(&evictions, names), evictions.action.to_owned()];
        for (reason, victims) in by_reason(&evictions) {
            for [groups, pods] in victim_rows(&victims, names) {
                let [preemptor, action] = std::mem::take(&mut head);
                rows.push([preemptor, action, groups, pods, reason.clone()]);
            }
        }
    }
    super::table(["PREEMPTOR", "ACTION", "VICTIM", "PODS", "REASON"], rows)
}

/// Victims with the same reason, in the order of the first of each.
fn by_reason<'a>(evictions: &'a ActionEvictions<'a>) -> Vec<(String, Vec<&'a Victims<'a>>)> {
    let mut all: Vec<(String, Vec<&Victims<'_>>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for victims in &evictions.victims {
        let reason = reason(victims.why);
        let at = *known.entry(reason.clone()).or_insert_with(|| {
            all.push((reason, Vec::new()));
            all.len() - 1
        });
        all[at].1.push(victims);
    }
    all
}

/// A row per group; one for all where there are many.
fn victim_rows(victims: &[&Victims<'_>], names: Names<'_>) -> Vec<[String; 2]> {
    let group =
        |victims: &Victims<'_>| victims.group.map_or_else(|| "–".to_owned(), |group| names.group(group));
    if victims.len() <= GROUPS_MAX {
        return victims.iter().map(|victims| [group(victims), pods(victims)]).collect();
    }
    let count: usize = victims.iter().map(|victims| victims.pods.len()).sum();
    vec![[format!("{} and {} more", group(victims[0]), victims.len() - 1), format!("{count} pods")]]
}

/// The queues of reclaimers and victims; `None` where no rule compared queues.
pub(super) fn queue_changes(outcome: &Outcome, names: Names<'_>) -> Option<String> {
    let mut rows = Vec::new();
    for evictions in by_preemptor(outcome) {
        let mut preemptor = preemptor(&evictions, names);
        for (change, role) in evictions.queue_changes() {
            let mut head = [std::mem::take(&mut preemptor), change.queue.clone(), role.name().to_owned()];
            for resource in RESOURCES.into_iter().filter(|resource| is_shown(change, *resource)) {
                let [preemptor, queue, role] = std::mem::take(&mut head);
                rows.push([
                    preemptor,
                    queue,
                    role,
                    amount::name(resource).to_owned(),
                    amount::bound(resource, change.quota[resource]),
                    amount::text(resource, change.fair_share[resource]),
                    amount::text(resource, change.before[resource]),
                    amount::text(resource, change.after[resource]),
                ]);
            }
        }
    }
    super::table(["PREEMPTOR", "QUEUE", "ROLE", "RESOURCE", "QUOTA", "FAIR SHARE", "BEFORE", "AFTER"], rows)
}

/// GPUs are always shown, CPU and memory where the queue has a quota and its allocation changes.
fn is_shown(change: &QueueChange, resource: QueueResource) -> bool {
    match resource {
        QueueResource::Gpu => true,
        QueueResource::Cpu | QueueResource::Memory => {
            change.quota[resource].is_some_and(|quota| quota > 0)
                && change.before[resource] != change.after[resource]
        }
    }
}

fn preemptor(evictions: &ActionEvictions<'_>, names: Names<'_>) -> String {
    evictions.preemptor.map_or_else(|| "–".to_owned(), |group| names.group(group))
}

/// The names without the namespace, which is that of the group.
fn pods(victims: &Victims<'_>) -> String {
    if victims.group.is_none() {
        return victims.pods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    }
    let names: Vec<&str> = victims.pods.iter().take(PODS_MAX).map(|pod| pod.name.as_str()).collect();
    match victims.pods.len().saturating_sub(PODS_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn reason(why: &EvictionReason) -> String {
    match why {
        EvictionReason::Moved { node } => format!("moved to {node}"),
        EvictionReason::AboveShare { .. }
        | EvictionReason::AboveQuota { .. }
        | EvictionReason::Priority { .. }
        | EvictionReason::Stale { .. }
        | EvictionReason::TimeLimit { .. }
        | EvictionReason::Custom { .. } => format!("evicted: {}", rule(why)),
    }
}
