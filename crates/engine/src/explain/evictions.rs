//! Why nobody was evicted for a group, in a sentence.

use super::amount::{number, unit};
use crate::outcome::Cause;
use crate::verdict::{EvictionMiss, EvictionReason, EvictionRefusal, QueueResource};

/// Why an action evicted or moved nobody.
pub(crate) fn no_victims(miss: &EvictionMiss) -> String {
    let verb = match miss.cause {
        Cause::Consolidation => "moving others does not help",
        Cause::Reclaim => "nothing is reclaimed for it",
        Cause::Preempt => "nobody is preempted for it",
        Cause::Stale => "no gang is evicted for it",
    };
    format!("{verb}: {}", reason(&miss.reason))
}

fn reason(reason: &EvictionReason) -> String {
    match reason {
        EvictionReason::BeyondFairShare { queue, resource, fair_share, used, requested } => format!(
            "queue `{queue}` holds {} of its fair share of {} and would need {} more",
            of(*resource, *used),
            of(*resource, *fair_share),
            of(*resource, *requested),
        ),
        EvictionReason::BeyondQuota(excess) => format!(
            "it is non-preemptible, and queue `{}` has {} of its quota of {} in such use",
            excess.queue,
            of(excess.resource, excess.used),
            of(excess.resource, excess.bound),
        ),
        EvictionReason::NoCandidates => "no running group may be evicted for it".to_owned(),
        EvictionReason::TooLittle { resource, requested, free, evictable, queues } => format!(
            "it needs {}, but only {} are free and {} could be evicted in {queues} queue{}",
            of(*resource, *requested),
            of(*resource, *free),
            of(*resource, *evictable),
            if *queues == 1 { "" } else { "s" },
        ),
        EvictionReason::NodesTooSmall { pods, fitting, .. } => format!(
            "even with everybody gone who may be evicted, only {fitting} of {pods} pods would find a node with enough GPUs"
        ),
        EvictionReason::TooLittleFree { requested, free } => format!(
            "it needs {}, and only {} are free in all",
            of(QueueResource::Gpu, *requested),
            of(QueueResource::Gpu, *free),
        ),
        EvictionReason::LikeAnother(group) => {
            format!("group `{group}`, which asks for no more, found nothing either")
        }
        EvictionReason::NothingWorked { tried, all, refused } => {
            let scope = if *all { "all sets of victims were tried" } else { "scenarios were tried" };
            let rule = refused
                .as_ref()
                .map_or(String::new(), |r| format!("; the last one was refused: {}", refusal(r)));
            format!("{scope} ({tried}), and none works{rule}")
        }
        EvictionReason::GaveUp { tried, .. } => {
            format!("the search gave up after {tried} scenarios; its budget is spent")
        }
        EvictionReason::Impossible(_) => "no eviction would help".to_owned(),
    }
}

fn refusal(refusal: &EvictionRefusal) -> String {
    match refusal {
        EvictionRefusal::Unfair => "a queue would lose what it is entitled to".to_owned(),
        EvictionRefusal::MinRuntime(group) => format!("the minimum run time of group `{group}` is not over"),
        EvictionRefusal::NotMoved => "somebody who must be moved has nowhere to go".to_owned(),
        EvictionRefusal::Fresh => "a pod placed in this cycle would lose its place".to_owned(),
        EvictionRefusal::TooManyMoved => "more groups would be moved than the limit allows".to_owned(),
        EvictionRefusal::Budget(budget) => format!("disruption budget `{budget}` would be broken"),
        EvictionRefusal::Plugin(words) => words.clone(),
    }
}

/// An amount with its unit.
fn of(resource: QueueResource, amount: i64) -> String {
    let number = number(amount, unit(resource));
    match resource {
        QueueResource::Cpu => format!("{number} cores"),
        QueueResource::Memory => format!("{number} GB"),
        QueueResource::Gpu => format!("{number} GPU{}", if number == "1" { "" } else { "s" }),
    }
}
