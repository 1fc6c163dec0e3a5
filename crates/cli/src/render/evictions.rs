//! Who is evicted for whom, by which rule, and what the queues on both sides had before and after.

use super::{amount, queues};
use crate::batches::{Batch, Story, stories};
use kai_engine::Outcome;
use kai_engine::explain::rule;
use kai_engine::outcome::{EvictionReason, QueueChange};
use kai_engine::verdict::QueueResource;
use std::collections::BTreeMap;

/// Most pods that a row names; the rest is counted.
const PODS_MAX: usize = 4;
/// Most groups that have rows of their own where the same happens to all of them.
const GROUPS_MAX: usize = 4;

/// One row for pods of a group that give way by the same rule; `None` when nobody does.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    let mut rows = Vec::new();
    for story in stories(outcome) {
        let mut head = [preemptor(&story), story.action.to_owned()];
        for (what, batches) in alike(&story) {
            for [groups, pods] in victims(&batches) {
                let [preemptor, action] = std::mem::take(&mut head);
                rows.push([preemptor, action, groups, pods, what.clone()]);
            }
        }
    }
    super::table(["FOR", "BY", "GROUP", "PODS", "WHAT AND WHY"], rows)
}

/// What happens, in the order of the batches, and to whom.
fn alike<'a>(story: &'a Story<'a>) -> Vec<(String, Vec<&'a Batch<'a>>)> {
    let mut all: Vec<(String, Vec<&Batch<'_>>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for batch in &story.batches {
        let what = what(batch.why);
        let at = *known.entry(what.clone()).or_insert_with(|| {
            all.push((what, Vec::new()));
            all.len() - 1
        });
        all[at].1.push(batch);
    }
    all
}

/// A row for each group; one for all where there are many.
fn victims(batches: &[&Batch<'_>]) -> Vec<[String; 2]> {
    let group = |batch: &Batch<'_>| batch.group.map_or_else(|| "–".to_owned(), ToString::to_string);
    if batches.len() <= GROUPS_MAX {
        return batches.iter().map(|batch| [group(batch), pods(batch)]).collect();
    }
    let count: usize = batches.iter().map(|batch| batch.pods.len()).sum();
    vec![[format!("{} and {} more", group(batches[0]), batches.len() - 1), format!("{count} pods")]]
}

/// The queues that took from others and those that gave; `None` when no eviction was about queues.
pub(super) fn changes(outcome: &Outcome) -> Option<String> {
    let mut rows = Vec::new();
    for story in stories(outcome) {
        let mut preemptor = preemptor(&story);
        for (change, takes) in story.changes() {
            let mut head = [
                std::mem::take(&mut preemptor),
                change.queue.clone(),
                (if takes { "takes" } else { "gives" }).to_owned(),
            ];
            for (resource, at) in shown(change) {
                let [preemptor, queue, role] = std::mem::take(&mut head);
                rows.push([
                    preemptor,
                    queue,
                    role,
                    amount::name(resource).to_owned(),
                    amount::bound(resource, change.quota[at]),
                    amount::text(resource, change.fair_share[at]),
                    amount::text(resource, change.before[at]),
                    amount::text(resource, change.after[at]),
                ]);
            }
        }
    }
    super::table(["FOR", "QUEUE", "ROLE", "RESOURCE", "QUOTA", "FAIR SHARE", "BEFORE", "AFTER"], rows)
}

/// GPUs, and what else changes hands where the queue has a bound for it.
fn shown(change: &QueueChange) -> Vec<(QueueResource, usize)> {
    let is_shown = |&(resource, at): &(QueueResource, usize)| match resource {
        QueueResource::Gpu => true,
        QueueResource::Cpu | QueueResource::Memory => {
            change.quota[at].is_some_and(|quota| quota > 0) && change.before[at] != change.after[at]
        }
    };
    queues::RESOURCES.into_iter().filter(is_shown).collect()
}

fn preemptor(story: &Story<'_>) -> String {
    story.preemptor.map_or_else(|| "–".to_owned(), ToString::to_string)
}

/// The names; the namespace is the group's.
fn pods(batch: &Batch<'_>) -> String {
    if batch.group.is_none() {
        return batch.pods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    }
    let names: Vec<&str> = batch.pods.iter().take(PODS_MAX).map(|pod| pod.name.as_str()).collect();
    match batch.pods.len().saturating_sub(PODS_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn what(why: &EvictionReason) -> String {
    match why {
        EvictionReason::Moved { node } => format!("moved to {node}"),
        EvictionReason::AboveShare { .. }
        | EvictionReason::AboveQuota { .. }
        | EvictionReason::Priority { .. }
        | EvictionReason::Stale { .. } => format!("evicted: {}", rule(why)),
    }
}
