//! Evictions for people: by which rule a pod gives way, and why nobody was evicted for a group.
//!
//! [`rule`] tells the rule of an eviction, [`failed_actions`] what kept each action from evicting somebody for a pending
//! group. Actions that were kept back by the same reason share a sentence.

use super::amount::{number, unit, unit_of};
use super::plain::{MORE_ROOM, Sentence, amount, beyond, pod_hint, pod_miss};
use crate::input;
use crate::outcome::{Cause, EvictionReason, QueueChange};
use crate::verdict::{
    EvictionFailure, EvictionFailureReason, GroupVerdict, QueueResource, ScenarioRejection, Verdict,
};
use kai_units::Timestamp;

/// The resources that queues account for, in the order in which messages list them.
const RESOURCES: [QueueResource; 3] = [QueueResource::Gpu, QueueResource::Cpu, QueueResource::Memory];

/// Why some actions evicted or moved nobody for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedActions<'a> {
    /// The actions, in the order they ran.
    pub causes: Vec<Cause>,
    /// What kept them back.
    pub reason: &'a EvictionFailureReason,
    /// The same in words.
    pub sentence: Sentence,
}

/// What kept each action from making room for a group by eviction, each reason once.
pub fn failed_actions(group: &GroupVerdict) -> Vec<FailedActions<'_>> {
    let mut merged: Vec<(Vec<Cause>, &EvictionFailureReason)> = Vec::new();
    for verdict in std::iter::once(&group.leading).chain(&group.further) {
        let Verdict::NoVictims(miss) = verdict else { continue };
        // The same words would mean different things for reasons that depend on the action.
        let is_shared = |of: &[Cause], reason: &EvictionFailureReason| {
            *reason == miss.reason && (of.contains(&miss.cause) || !depends_on_cause(reason))
        };
        match merged.iter_mut().find(|(causes, reason)| is_shared(causes, reason)) {
            Some((causes, _)) if causes.contains(&miss.cause) => {}
            Some((causes, _)) => causes.push(miss.cause),
            None => merged.push((vec![miss.cause], &miss.reason)),
        }
    }
    let told = |(causes, reason): (Vec<Cause>, _)| FailedActions {
        sentence: sentence(&causes, reason, &group.queue),
        causes,
        reason,
    };
    merged.into_iter().map(told).collect()
}

/// Why one action evicted or moved nobody.
pub(super) fn no_victims(miss: &EvictionFailure, queue: &str) -> Sentence {
    sentence(&[miss.cause], &miss.reason, queue)
}

/// `no reclaim or preemption: …`, and what would help.
fn sentence(causes: &[Cause], reason: &EvictionFailureReason, queue: &str) -> Sentence {
    let mut names: Vec<&str> = causes.iter().map(|cause| noun(*cause)).collect();
    let last = names.pop().unwrap_or("eviction");
    let names = if names.is_empty() { last.to_owned() } else { format!("{} or {last}", names.join(", ")) };
    let cause = causes.first().copied().unwrap_or(Cause::Reclaim);
    Sentence {
        text: format!("no {names}: {}", text(cause, reason, queue)),
        hint: Some(hint(cause, reason, queue)),
    }
}

fn noun(cause: Cause) -> &'static str {
    match cause {
        Cause::Consolidation => "consolidation",
        Cause::Reclaim => "reclaim",
        Cause::Preempt => "preemption",
        Cause::Stale => "eviction of stale gangs",
    }
}

fn depends_on_cause(reason: &EvictionFailureReason) -> bool {
    match reason {
        EvictionFailureReason::NoCandidates | EvictionFailureReason::InsufficientEvictable { .. } => true,
        EvictionFailureReason::BeyondFairShare { .. }
        | EvictionFailureReason::BeyondQuota(_)
        | EvictionFailureReason::NodesTooSmall { .. }
        | EvictionFailureReason::InsufficientEvictableOther { .. }
        | EvictionFailureReason::DomainTooSmall { .. }
        | EvictionFailureReason::InsufficientFree { .. }
        | EvictionFailureReason::EquivalentGroupFailed(_)
        | EvictionFailureReason::RepeatedEviction(_)
        | EvictionFailureReason::NoValidScenario { .. }
        | EvictionFailureReason::BudgetExhausted { .. }
        | EvictionFailureReason::Unschedulable(_) => false,
    }
}

fn text(cause: Cause, reason: &EvictionFailureReason, queue: &str) -> String {
    match reason {
        EvictionFailureReason::BeyondFairShare { queue, resource, fair_share, used, requested } => format!(
            "queue `{queue}` would go to {} of its fair share of {}",
            number(used + requested, unit(*resource)),
            amount(*resource, *fair_share),
        ),
        EvictionFailureReason::BeyondQuota(excess) => {
            format!("{} for pods that cannot be preempted", beyond(excess, "quota"))
        }
        EvictionFailureReason::NoCandidates => no_candidates(cause, queue),
        EvictionFailureReason::InsufficientEvictable { resource, requested, free, evictable, queues } => {
            let lacking = amount(*resource, requested - free);
            let only_so_many = only_so_many(*resource, *evictable);
            match cause {
                Cause::Preempt => format!(
                    "it would need {lacking} from its own queue `{queue}`; {only_so_many} preemptible"
                ),
                Cause::Reclaim | Cause::Consolidation | Cause::Stale if *queues > 1 => format!(
                    "queue `{queue}` would need {lacking} from queues above their share; {only_so_many} \
                     reclaimable, in {queues} queues"
                ),
                Cause::Reclaim | Cause::Consolidation | Cause::Stale => format!(
                    "queue `{queue}` would need {lacking} from queues above their share; {only_so_many} reclaimable"
                ),
            }
        }
        EvictionFailureReason::NodesTooSmall { pods, fitting, gpus } => {
            let gpus = amount(QueueResource::Gpu, *gpus);
            let who = if *pods == 1 {
                format!("its pod would find no node with {gpus}")
            } else {
                format!("only {fitting} of its {pods} pods would find a node with {gpus} or more")
            };
            format!("even with everybody gone who may be evicted, {who}")
        }
        EvictionFailureReason::InsufficientEvictableOther { resource, requested, free, evictable } => {
            format!(
                "it would need {} from others; {} evictable",
                named(resource, requested - free),
                so_many(&number(*evictable, unit_of(resource)))
            )
        }
        EvictionFailureReason::DomainTooSmall { level, domain, resource, requested, most } => format!(
            "its pods belong in one `{level}`; even with everybody gone who may be evicted, `{domain}` would have {} of the \
             {} that they need, and no other one more",
            number(*most, unit_of(resource)),
            named(resource, *requested),
        ),
        EvictionFailureReason::InsufficientFree { resource, requested, free } => {
            let only_so_many = only_so_many(*resource, *free);
            let in_all = if *free == 0 { "" } else { " in all" };
            format!("it needs {}, and {only_so_many} free{in_all}", amount(*resource, *requested))
        }
        EvictionFailureReason::EquivalentGroupFailed(group) => {
            format!("group `{group}`, which asks for no more, found nothing")
        }
        EvictionFailureReason::RepeatedEviction(group) => format!(
            "group `{group}` would have to give way, but one of the two was evicted for the other before, and demand, quotas \
             and capacity are as they were"
        ),
        EvictionFailureReason::NoValidScenario { tried, all, refused } => {
            nothing_worked(*tried, *all, refused.as_ref())
        }
        EvictionFailureReason::BudgetExhausted { tried, steps } => format!(
            "the search budget ran out after {} and {}",
            counted(u64::from(*tried), "scenario"),
            counted(*steps, "step")
        ),
        EvictionFailureReason::Unschedulable(miss) => {
            format!("evictions would not help, since {}", pod_miss(miss))
        }
    }
}

/// `only 16 are`, `only 1 is`, `none is`.
fn only_so_many(resource: QueueResource, amount: i64) -> String {
    so_many(&number(amount, unit(resource)))
}

fn so_many(number: &str) -> String {
    match number {
        "0" => "none is".to_owned(),
        "1" => "only 1 is".to_owned(),
        many => format!("only {many} are"),
    }
}

/// An amount of a resource by its name: so many GPUs, or so many of `example.com/nic`.
fn named(resource: &str, value: i64) -> String {
    match resource {
        input::CPU => amount(QueueResource::Cpu, value),
        input::MEMORY => amount(QueueResource::Memory, value),
        input::GPU => amount(QueueResource::Gpu, value),
        other => format!("{} of `{other}`", number(value, unit_of(other))),
    }
}

fn no_candidates(cause: Cause, queue: &str) -> String {
    match cause {
        Cause::Consolidation | Cause::Stale => "no running group may be moved".to_owned(),
        Cause::Reclaim => "no other queue has a group that may be evicted for it".to_owned(),
        Cause::Preempt => format!("queue `{queue}` has no less important group that may be evicted for it"),
    }
}

fn nothing_worked(tried: u32, all: bool, refused: Option<&ScenarioRejection>) -> String {
    let tried = match (tried, all) {
        (0, _) => "no set of victims makes enough room".to_owned(),
        (1, true) => "the only set of victims was tried and does not work".to_owned(),
        (1, false) => "one set of victims was tried and does not work".to_owned(),
        (tried, true) => format!("all {tried} sets of victims were tried and none works"),
        (tried, false) => format!("{tried} sets of victims were tried and none works"),
    };
    refused.map_or(tried.clone(), |rule| format!("{tried}: {}", broken(rule)))
}

/// The rule that the last otherwise good plan broke.
fn broken(refusal: &ScenarioRejection) -> String {
    match refusal {
        ScenarioRejection::Unfair => "a queue would lose what it is entitled to".to_owned(),
        ScenarioRejection::MinRuntime(group) => {
            format!("the minimum run time of group `{group}` is not over")
        }
        ScenarioRejection::NotMoved => "a pod that must be moved has nowhere to go".to_owned(),
        ScenarioRejection::PlacedThisCycle => "a pod placed in this cycle would lose its place".to_owned(),
        ScenarioRejection::TooManyMoved => "more groups would be moved than a cycle may move".to_owned(),
        ScenarioRejection::DisruptionBudget(budget) => {
            format!("disruption budget `{budget}` would be broken")
        }
        ScenarioRejection::Plugin(words) => words.clone(),
    }
}

/// What a user can do.
fn hint(cause: Cause, reason: &EvictionFailureReason, queue: &str) -> String {
    match reason {
        EvictionFailureReason::BeyondFairShare { queue, .. } => {
            format!(
                "raise the quota or the over-quota weight of `{queue}`, or wait for its own pods to finish"
            )
        }
        EvictionFailureReason::BeyondQuota(excess) => {
            format!("use a preemptible priority class, or raise the quota of `{}`", excess.queue)
        }
        EvictionFailureReason::NoCandidates => match cause {
            Cause::Consolidation | Cause::Stale => MORE_ROOM.to_owned(),
            Cause::Reclaim => format!(
                "only preemptible groups of queues above their share give way, once their minimum run time is over; raise \
                 the quota of `{queue}`, or wait"
            ),
            Cause::Preempt => "use a priority class of a higher value, or wait".to_owned(),
        },
        EvictionFailureReason::InsufficientEvictable { .. }
        | EvictionFailureReason::InsufficientEvictableOther { .. }
        | EvictionFailureReason::InsufficientFree { .. }
        | EvictionFailureReason::RepeatedEviction(_) => MORE_ROOM.to_owned(),
        EvictionFailureReason::DomainTooSmall { level, .. } => {
            format!("ask for less, or let its pods be further apart than one `{level}`")
        }
        EvictionFailureReason::NodesTooSmall { .. } => {
            "ask for fewer GPUs in each pod, wait for pods to finish, or add a node".to_owned()
        }
        EvictionFailureReason::EquivalentGroupFailed(group) => format!("see what keeps `{group}` pending"),
        EvictionFailureReason::NoValidScenario { refused, .. } => {
            refused.as_ref().map_or_else(|| MORE_ROOM.to_owned(), broken_hint)
        }
        EvictionFailureReason::BudgetExhausted { .. } => {
            "raise `scenarioSearchBudgets` in the scheduler's configuration, or wait for pods to finish"
                .to_owned()
        }
        EvictionFailureReason::Unschedulable(miss) => {
            pod_hint(miss).unwrap_or("see why the pod cannot be placed as it is").to_owned()
        }
    }
}

fn broken_hint(refusal: &ScenarioRejection) -> String {
    match refusal {
        ScenarioRejection::Unfair => "raise the quota of its queue, or wait for pods to finish".to_owned(),
        ScenarioRejection::MinRuntime(group) => {
            format!("wait until `{group}` has run long enough, or shorten the minimum run time of its queue")
        }
        ScenarioRejection::NotMoved => MORE_ROOM.to_owned(),
        ScenarioRejection::PlacedThisCycle => "wait for the next cycle".to_owned(),
        ScenarioRejection::TooManyMoved => {
            "raise `maxNumberConsolidationPreemptees`, or wait for pods to finish".to_owned()
        }
        ScenarioRejection::DisruptionBudget(budget) => {
            format!("wait until `{budget}` allows more disruptions, or loosen it")
        }
        ScenarioRejection::Plugin(_) => "see the configuration of the plugin that refused".to_owned(),
    }
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The rule by which a pod gives way, in words.
pub fn rule(why: &EvictionReason) -> String {
    match why {
        EvictionReason::Moved { .. } => "it starts again elsewhere".to_owned(),
        EvictionReason::AboveShare { victim, .. } => {
            let share = |at: QueueResource| victim.quota[at].map(|quota| quota.max(victim.fair_share[at]));
            format!("queue `{}` held more than its share{}", victim.queue, of_what(victim, share))
        }
        EvictionReason::AboveQuota { reclaimer, victim } => format!(
            "queue `{}` held more than its quota{}, and `{}` stays within its own",
            victim.queue,
            of_what(victim, |at| victim.quota[at]),
            reclaimer.queue
        ),
        EvictionReason::Priority { preemptor, victim } => {
            format!("priority {preemptor} comes before {victim}")
        }
        EvictionReason::Stale { since } => {
            format!("its gang has run below its minimum since {}", Timestamp(*since))
        }
    }
}

/// ` of GPUs`: the resources of which a queue held more than a bound.
fn of_what(queue: &QueueChange, bound: impl Fn(QueueResource) -> Option<i64>) -> String {
    let name = |resource| match resource {
        QueueResource::Gpu => "GPUs",
        QueueResource::Cpu => "CPU",
        QueueResource::Memory => "memory",
    };
    let beyond = RESOURCES.into_iter().filter(|&r| bound(r).is_some_and(|most| queue.before[r] > most));
    let names: Vec<&str> = beyond.map(name).collect();
    if names.is_empty() { String::new() } else { format!(" of {}", names.join(" and ")) }
}
