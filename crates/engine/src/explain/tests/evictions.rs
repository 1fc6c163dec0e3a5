//! Messages of evictions and of failed eviction actions.

use super::super::eviction_event::{EventInputs, message};
use super::super::{condition_message, failed_actions, plain, reasons, rule};
use super::{GPU, excess, group, pod};
use crate::input::Key;
use crate::outcome::{Cause, EvictionReason, QueueChange};
use crate::verdict::{
    EvictionFailure, EvictionFailureReason, PodRejection, QueueResource, ScenarioRejection, Verdict,
};

fn failure(cause: Cause, reason: EvictionFailureReason) -> Verdict {
    Verdict::NoVictims(Box::new(EvictionFailure { cause, reason }))
}

fn insufficient_evictable(evictable: i64, queues: u32) -> EvictionFailureReason {
    let resource = QueueResource::Gpu;
    EvictionFailureReason::InsufficientEvictable {
        resource,
        requested: 28 * GPU,
        free: 4 * GPU,
        evictable,
        queues,
    }
}

fn no_valid_scenario(tried: u32, all: bool, refused: Option<ScenarioRejection>) -> EvictionFailureReason {
    EvictionFailureReason::NoValidScenario { tried, all, refused }
}

fn change(queue: &str, before: i64, after: i64) -> QueueChange {
    QueueChange {
        queue: queue.into(),
        quota: [None, Some(64_000_000_000), Some(GPU)],
        fair_share: [8_000, 64_000_000_000, 2 * GPU],
        before: [1_500, 4_000_000_000, before * GPU],
        after: [1_500, 4_000_000_000, after * GPU],
    }
}

#[track_caller]
fn check(cases: &[(Cause, EvictionFailureReason, &str)]) {
    for (cause, reason, text) in cases {
        assert_eq!(plain(&failure(*cause, reason.clone()), "team").to_string(), *text);
    }
}

#[test]
fn failure_messages_contain_the_bound_with_numbers() {
    let beyond = EvictionFailureReason::BeyondFairShare {
        queue: "team".into(),
        resource: QueueResource::Gpu,
        fair_share: 4 * GPU,
        used: 3 * GPU,
        requested: 2 * GPU,
    };
    let free = |free| EvictionFailureReason::InsufficientFree {
        resource: QueueResource::Gpu,
        requested: 4 * GPU,
        free,
    };
    let small = |pods| EvictionFailureReason::NodesTooSmall { pods, fitting: pods / 2, gpus: 8 * GPU };
    let more_capacity = "wait for pods to finish, or add a node";
    check(&[
        (
            Cause::Reclaim,
            beyond,
            "no reclaim: queue `team` would use 5 of its fair share of 4 GPUs; hint: raise the quota or the over-quota weight of `team`, or wait for its pods to finish",
        ),
        (
            Cause::Preempt,
            EvictionFailureReason::BeyondQuota(excess(QueueResource::Cpu, 1_000, 500, 1_000)),
            "no preemption: queue `research` would use 1.5 of its quota of 1 CPU core for non-preemptible pods; hint: use a preemptible priority class, or raise the quota of `research`",
        ),
        (
            Cause::Reclaim,
            insufficient_evictable(16 * GPU, 2),
            &format!(
                "no reclaim: 24 GPUs would have to be freed in queues above their fair share; only 16 are reclaimable, in 2 queues; hint: {more_capacity}"
            ),
        ),
        (
            Cause::Reclaim,
            insufficient_evictable(GPU, 1),
            &format!(
                "no reclaim: 24 GPUs would have to be freed in queues above their fair share; only 1 is reclaimable; hint: {more_capacity}"
            ),
        ),
        (
            Cause::Preempt,
            insufficient_evictable(0, 0),
            &format!(
                "no preemption: 24 GPUs would have to be freed in queue `team`; none is preemptible; hint: {more_capacity}"
            ),
        ),
        (
            Cause::Consolidation,
            free(GPU),
            &format!(
                "no consolidation: 4 GPUs requested, and only 1 is free in total; hint: {more_capacity}"
            ),
        ),
        (
            Cause::Reclaim,
            small(1),
            "no reclaim: with all candidates evicted, no node that its pod may use would have 8 GPUs for it; hint: request fewer GPUs per pod, wait for pods to finish, or add a node",
        ),
        (
            Cause::Reclaim,
            small(4),
            "no reclaim: with all candidates evicted, only 2 of 4 pods would fit on the nodes that they may use: they need 8 GPUs or more; hint: request fewer GPUs per pod, wait for pods to finish, or add a node",
        ),
    ]);
}

#[test]
fn failed_search_reports_scenarios_and_rejection() {
    let other = Key::new("lab", "other");
    let more_capacity = "wait for pods to finish, or add a node";
    check(&[
        (
            Cause::Preempt,
            EvictionFailureReason::NoCandidates,
            "no preemption: queue `team` has no preemptible group of lower priority; hint: use a higher priority class, or wait",
        ),
        (
            Cause::Consolidation,
            EvictionFailureReason::EquivalentGroupFailed(other.clone()),
            "no consolidation: the search failed for group `lab/other`, which is equivalent and requests no more; hint: see why `lab/other` is pending",
        ),
        (
            Cause::Reclaim,
            EvictionFailureReason::RepeatedEviction(other.clone()),
            "no reclaim: group `lab/other` would be evicted, but one of the two groups was evicted for the other before, and demand, quotas and capacity are unchanged; hint: wait for pods to finish, or add a node",
        ),
        (
            Cause::Reclaim,
            no_valid_scenario(12, true, Some(ScenarioRejection::MinRuntime(other.clone()))),
            "no reclaim: all 12 sets of victims were simulated and none is valid: the minimum run time of group `lab/other` has not elapsed; hint: wait until `lab/other` has run for its minimum run time, or shorten that of its queue",
        ),
        (
            Cause::Reclaim,
            no_valid_scenario(1, false, Some(ScenarioRejection::DisruptionBudget(other))),
            "no reclaim: one set of victims was simulated and is not valid: disruption budget `lab/other` would be violated; hint: wait until `lab/other` allows more disruptions, or relax it",
        ),
        (
            Cause::Reclaim,
            no_valid_scenario(0, true, None),
            &format!("no reclaim: no set of victims frees enough capacity; hint: {more_capacity}"),
        ),
        (
            Cause::Preempt,
            EvictionFailureReason::BudgetExhausted { tried: 1, steps: 90_000 },
            "no preemption: the search budget was exhausted after 1 scenario and 90000 steps; hint: raise `scenarioSearchBudgets` in the scheduler's configuration, or wait for pods to finish",
        ),
        (
            Cause::Preempt,
            EvictionFailureReason::Unschedulable(PodRejection::ConfigMaps(vec!["env".into()])),
            "no preemption: evictions cannot help: config map `env` is missing; hint: create the config map",
        ),
    ]);
}

#[test]
fn actions_with_the_same_reason_share_a_sentence() {
    let equivalent = || EvictionFailureReason::EquivalentGroupFailed(Key::new("lab", "other"));
    let verdict = group(vec![
        Verdict::QueueMissing,
        failure(Cause::Consolidation, equivalent()),
        failure(Cause::Reclaim, equivalent()),
        failure(Cause::Reclaim, equivalent()),
        failure(Cause::Preempt, equivalent()),
        failure(Cause::Reclaim, EvictionFailureReason::NoCandidates),
        failure(Cause::Preempt, EvictionFailureReason::NoCandidates),
    ]);
    let texts: Vec<String> =
        failed_actions(&verdict).into_iter().map(|failed| failed.sentence.text).collect();
    assert_eq!(
        texts,
        [
            "no consolidation, reclaim or preemption: the search failed for group `lab/other`, which is equivalent and requests no more",
            "no reclaim: no group of another queue can be reclaimed",
            "no preemption: queue `research` has no preemptible group of lower priority",
        ]
    );
}

#[test]
fn conditions_omit_eviction_failures() {
    let verdict =
        group(vec![Verdict::QueueMissing, failure(Cause::Reclaim, EvictionFailureReason::NoCandidates)]);
    assert_eq!(condition_message(&verdict), "QueueDoesNotExist: Queue 'research' does not exist.");
    assert!(reasons(&group(vec![failure(Cause::Reclaim, EvictionFailureReason::NoCandidates)])).is_empty());
}

#[test]
fn eviction_rule_names_the_exceeded_resources() {
    let (reclaimer, victim) = (change("speech", 0, 1), change("vision", 3, 2));
    let above_share = EvictionReason::AboveShare { reclaimer: reclaimer.clone(), victim: victim.clone() };
    assert_eq!(rule(&above_share), "queue `vision` is above its fair share of GPUs");
    let above_quota = EvictionReason::AboveQuota { reclaimer, victim };
    assert_eq!(
        rule(&above_quota),
        "queue `vision` is above its quota of GPUs, and `speech` stays within its own"
    );
    assert_eq!(
        rule(&EvictionReason::Priority { preemptor: 75, victim: 50 }),
        "priority 75 is higher than 50"
    );
    assert_eq!(
        rule(&EvictionReason::Stale { since: 1_767_225_600_000_000 }),
        "the gang has been below its minimum since 2026-01-01T00:00:00Z"
    );
}

#[test]
fn reclaim_event_names_both_queues() {
    let inputs = EventInputs { victim: Some(100), reclaimer: Some(200), pod_set: None };
    let why =
        EvictionReason::AboveShare { reclaimer: change("Speech", 0, 1), victim: change("Vision", 3, 2) };
    let next = Key::new("lab", "next");
    let text = message(&pod("train-0"), Some(&next), "reclaim", &why, inputs);
    assert_eq!(
        text,
        "Pod lab/train-0 was preempted by workload lab/next.\nVision uses <GPU: 3, CPU: 1.5 (cores), memory: 4 (GB)> with a quota of <GPU: 1, CPU: Unlimited (cores), memory: 64 (GB)>, fair-share of <GPU: 2, CPU: 8 (cores), memory: 64 (GB)> and queue priority of <100>.\nSpeech uses <GPU: 0, CPU: 1.5 (cores), memory: 4 (GB)> with a quota of <GPU: 1, CPU: Unlimited (cores), memory: 64 (GB)>, fair-share of <GPU: 2, CPU: 8 (cores), memory: 64 (GB)> and queue priority of <200>."
    );
}

#[test]
fn event_messages_differ_by_action() {
    let next = Key::new("lab", "next");
    let in_set = |pod_set, action, why: EvictionReason| {
        let inputs = EventInputs { pod_set, ..EventInputs::default() };
        message(&pod("train-0"), Some(&next), action, &why, inputs)
    };
    let text = |action, why| in_set(Some(("default", 4)), action, why);
    let moved = || EvictionReason::Moved { node: "n1".into() };
    let higher = "Pod lab/train-0 was preempted by higher priority workload lab/next";
    assert_eq!(text("preempt", EvictionReason::Priority { preemptor: 75, victim: 50 }), higher);
    assert_eq!(text("preempt", moved()), higher);
    assert_eq!(text("reclaim", moved()), "Pod lab/train-0 was preempted by workload lab/next.");
    assert_eq!(
        text("consolidation", moved()),
        "Pod lab/train-0 was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    );
    let stale = |pod_set| in_set(pod_set, "stalegangeviction", EvictionReason::Stale { since: 0 });
    let below = "Workload doesn't meet the minimum required number of pods";
    let evicting = "evicting remaining pod: lab/train-0";
    assert_eq!(stale(Some(("default", 4))), format!("{below} (4), {evicting}"));
    assert_eq!(stale(Some(("workers", 2))), format!("{below} (2) in sub-group workers, {evicting}"));
    assert_eq!(stale(None), format!("{below}, {evicting}"));
}
