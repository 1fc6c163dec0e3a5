//! Renders the rule of an eviction, and why the actions evicted no pod for a group.
//!
//! Actions that failed for the same reason share a sentence.

use super::amount::{number, unit, unit_of};
use super::plain::{MORE_CAPACITY, Sentence, amount, beyond, pod_hint, pod_rejection};
use crate::input;
use crate::outcome::{Cause, EvictionReason, QueueChange};
use crate::verdict::{
    EvictionFailure, EvictionFailureReason, GroupVerdict, QueueResource, ScenarioRejection, Verdict,
};
use kai_units::Timestamp;

/// The resources that queues account for, in the order in which messages list them.
const RESOURCES: [QueueResource; 3] = [QueueResource::Gpu, QueueResource::Cpu, QueueResource::Memory];

/// Actions that failed for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedActions<'a> {
    /// The actions, in the order they ran.
    pub causes: Vec<Cause>,
    /// Why they failed.
    pub reason: &'a EvictionFailureReason,
    /// The reason as a message.
    pub sentence: Sentence,
}

/// Why the eviction actions failed for a group, each reason once.
pub fn failed_actions(group: &GroupVerdict) -> Vec<FailedActions<'_>> {
    let mut merged: Vec<(Vec<Cause>, &EvictionFailureReason)> = Vec::new();
    for verdict in std::iter::once(&group.leading).chain(&group.further) {
        let Verdict::NoVictims(failure) = verdict else { continue };
        // Reasons that depend on the action are rendered once per action.
        let is_shared = |of: &[Cause], reason: &EvictionFailureReason| {
            *reason == failure.reason && (of.contains(&failure.cause) || !depends_on_cause(reason))
        };
        match merged.iter_mut().find(|(causes, reason)| is_shared(causes, reason)) {
            Some((causes, _)) if causes.contains(&failure.cause) => {}
            Some((causes, _)) => causes.push(failure.cause),
            None => merged.push((vec![failure.cause], &failure.reason)),
        }
    }
    let failed = |(causes, reason): (Vec<Cause>, _)| FailedActions {
        sentence: sentence(&causes, reason, &group.queue),
        causes,
        reason,
    };
    merged.into_iter().map(failed).collect()
}

/// Why one action failed.
pub(super) fn no_victims(failure: &EvictionFailure, queue: &str) -> Sentence {
    sentence(&[failure.cause], &failure.reason, queue)
}

/// `no reclaim or preemption: …`, with a hint.
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
            "queue `{queue}` would use {} of its fair share of {}",
            number(used + requested, unit(*resource)),
            amount(*resource, *fair_share),
        ),
        EvictionFailureReason::BeyondQuota(excess) => {
            format!("{} for non-preemptible pods", beyond(excess, "quota"))
        }
        EvictionFailureReason::NoCandidates => no_candidates(cause, queue),
        EvictionFailureReason::InsufficientEvictable { resource, requested, free, evictable, queues } => {
            let lacking = amount(*resource, requested - free);
            let only_so_many = only_so_many(*resource, *evictable);
            match cause {
                Cause::Preempt => {
                    format!("{lacking} would have to be freed in queue `{queue}`; {only_so_many} preemptible")
                }
                Cause::Reclaim | Cause::Consolidation | Cause::Stale if *queues > 1 => format!(
                    "{lacking} would have to be freed in queues above their fair share; {only_so_many} \
                     reclaimable, in {queues} queues"
                ),
                Cause::Reclaim | Cause::Consolidation | Cause::Stale => format!(
                    "{lacking} would have to be freed in queues above their fair share; {only_so_many} reclaimable"
                ),
            }
        }
        EvictionFailureReason::NodesTooSmall { pods, fitting, gpus } => {
            nodes_too_small(*pods, *fitting, &amount(QueueResource::Gpu, *gpus))
        }
        EvictionFailureReason::InsufficientEvictableOther { resource, requested, free, evictable } => {
            format!(
                "{} would have to be freed; {} evictable",
                named(resource, requested - free),
                so_many(&number(*evictable, unit_of(resource)))
            )
        }
        EvictionFailureReason::DomainTooSmall { level, domain, resource, requested, most } => format!(
            "its pods require one `{level}`; with all candidates evicted, `{domain}` would have {} of the {} that they \
             request, and no other domain more",
            number(*most, unit_of(resource)),
            named(resource, *requested),
        ),
        EvictionFailureReason::InsufficientFree { resource, requested, free } => {
            let only_so_many = only_so_many(*resource, *free);
            let in_all = if *free == 0 { "" } else { " in total" };
            format!("{} requested, and {only_so_many} free{in_all}", amount(*resource, *requested))
        }
        EvictionFailureReason::EquivalentGroupFailed(group) => {
            format!("the search failed for group `{group}`, which is equivalent and requests no more")
        }
        EvictionFailureReason::RepeatedEviction(group) => format!(
            "group `{group}` would be evicted, but one of the two groups was evicted for the other before, and demand, \
             quotas and capacity are unchanged"
        ),
        EvictionFailureReason::NoValidScenario { tried, all, refused } => {
            no_valid_scenario(*tried, *all, refused.as_ref())
        }
        EvictionFailureReason::BudgetExhausted { tried, steps } => format!(
            "the search budget was exhausted after {} and {}",
            counted(u64::from(*tried), "scenario"),
            counted(*steps, "step")
        ),
        EvictionFailureReason::Unschedulable(rejection) => {
            format!("evictions cannot help: {}", pod_rejection(rejection))
        }
    }
}

fn nodes_too_small(pods: u32, fitting: u32, gpus: &str) -> String {
    if pods == 1 {
        format!("with all candidates evicted, no node that its pod may use would have {gpus} for it")
    } else {
        format!(
            "with all candidates evicted, only {fitting} of {pods} pods would fit on the nodes that they may use: \
             they need {gpus} or more"
        )
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

/// An amount of a resource by name, with its unit.
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
        Cause::Consolidation | Cause::Stale => "no running group can be moved".to_owned(),
        Cause::Reclaim => "no group of another queue can be reclaimed".to_owned(),
        Cause::Preempt => format!("queue `{queue}` has no preemptible group of lower priority"),
    }
}

fn no_valid_scenario(tried: u32, all: bool, refused: Option<&ScenarioRejection>) -> String {
    let tried = match (tried, all) {
        (0, _) => "no set of victims frees enough capacity".to_owned(),
        (1, true) => "the only set of victims was simulated and is not valid".to_owned(),
        (1, false) => "one set of victims was simulated and is not valid".to_owned(),
        (tried, true) => format!("all {tried} sets of victims were simulated and none is valid"),
        (tried, false) => format!("{tried} sets of victims were simulated and none is valid"),
    };
    refused.map_or(tried.clone(), |rule| format!("{tried}: {}", rejection_text(rule)))
}

/// The rule that rejected the last scenario whose pods were placed.
fn rejection_text(rejection: &ScenarioRejection) -> String {
    match rejection {
        ScenarioRejection::Unfair => "fair share would be violated".to_owned(),
        ScenarioRejection::MinRuntime(group) => {
            format!("the minimum run time of group `{group}` has not elapsed")
        }
        ScenarioRejection::NotMoved => "a pod that must be moved fits on no other node".to_owned(),
        ScenarioRejection::PlacedThisCycle => "a pod placed in this cycle would lose its node".to_owned(),
        ScenarioRejection::TooManyMoved => "more groups would be moved than configured".to_owned(),
        ScenarioRejection::DisruptionBudget(budget) => {
            format!("disruption budget `{budget}` would be violated")
        }
        ScenarioRejection::Plugin(message) => message.clone(),
    }
}

/// A remedy for the user.
fn hint(cause: Cause, reason: &EvictionFailureReason, queue: &str) -> String {
    match reason {
        EvictionFailureReason::BeyondFairShare { queue, .. } => {
            format!("raise the quota or the over-quota weight of `{queue}`, or wait for its pods to finish")
        }
        EvictionFailureReason::BeyondQuota(excess) => {
            format!("use a preemptible priority class, or raise the quota of `{}`", excess.queue)
        }
        EvictionFailureReason::NoCandidates => match cause {
            Cause::Consolidation | Cause::Stale => MORE_CAPACITY.to_owned(),
            Cause::Reclaim => format!(
                "only preemptible groups of queues above their fair share can be reclaimed, after their minimum run time; \
                 raise the quota of `{queue}`, or wait"
            ),
            Cause::Preempt => "use a higher priority class, or wait".to_owned(),
        },
        EvictionFailureReason::InsufficientEvictable { .. }
        | EvictionFailureReason::InsufficientEvictableOther { .. }
        | EvictionFailureReason::InsufficientFree { .. }
        | EvictionFailureReason::RepeatedEviction(_) => MORE_CAPACITY.to_owned(),
        EvictionFailureReason::DomainTooSmall { level, .. } => {
            format!("request less, or require a wider level than `{level}`")
        }
        EvictionFailureReason::NodesTooSmall { .. } => {
            "request fewer GPUs per pod, wait for pods to finish, or add a node".to_owned()
        }
        EvictionFailureReason::EquivalentGroupFailed(group) => format!("see why `{group}` is pending"),
        EvictionFailureReason::NoValidScenario { refused, .. } => {
            refused.as_ref().map_or_else(|| MORE_CAPACITY.to_owned(), rejection_hint)
        }
        EvictionFailureReason::BudgetExhausted { .. } => {
            "raise `scenarioSearchBudgets` in the scheduler's configuration, or wait for pods to finish"
                .to_owned()
        }
        EvictionFailureReason::Unschedulable(rejection) => {
            pod_hint(rejection).unwrap_or("see why the pod is unschedulable").to_owned()
        }
    }
}

fn rejection_hint(rejection: &ScenarioRejection) -> String {
    match rejection {
        ScenarioRejection::Unfair => "raise the quota of its queue, or wait for pods to finish".to_owned(),
        ScenarioRejection::MinRuntime(group) => {
            format!("wait until `{group}` has run for its minimum run time, or shorten that of its queue")
        }
        ScenarioRejection::NotMoved => MORE_CAPACITY.to_owned(),
        ScenarioRejection::PlacedThisCycle => "wait for the next cycle".to_owned(),
        ScenarioRejection::TooManyMoved => {
            "raise `maxNumberConsolidationPreemptees`, or wait for pods to finish".to_owned()
        }
        ScenarioRejection::DisruptionBudget(budget) => {
            format!("wait until `{budget}` allows more disruptions, or relax it")
        }
        ScenarioRejection::Plugin(_) => {
            "see the configuration of the plugin that rejected the scenario".to_owned()
        }
    }
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The rule that allows an eviction.
pub fn rule(why: &EvictionReason) -> String {
    match why {
        EvictionReason::Moved { .. } => "moved to another node".to_owned(),
        EvictionReason::AboveShare { victim, .. } => {
            let share = |at: QueueResource| victim.quota[at].map(|quota| quota.max(victim.fair_share[at]));
            format!("queue `{}` is above its fair share{}", victim.queue, of_what(victim, share))
        }
        EvictionReason::AboveQuota { reclaimer, victim } => format!(
            "queue `{}` is above its quota{}, and `{}` stays within its own",
            victim.queue,
            of_what(victim, |at| victim.quota[at]),
            reclaimer.queue
        ),
        EvictionReason::Priority { preemptor, victim } => {
            format!("priority {preemptor} is higher than {victim}")
        }
        EvictionReason::Stale { since } => {
            format!("the gang has been below its minimum since {}", Timestamp(*since))
        }
        EvictionReason::TimeLimit { ended } => {
            format!("the group ended at {}, after its maximum run time", Timestamp(*ended))
        }
        EvictionReason::Custom { message } => message.clone(),
    }
}

/// ` of GPUs`: the resources of which a queue is above a bound.
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
