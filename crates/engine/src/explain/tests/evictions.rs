//! Evictions and failed_actions to evict, in words.

use super::super::eviction_event::{Beside, message};
use super::super::{condition_message, failed_actions, plain, reasons, rule};
use super::{GPU, excess, group, pod};
use crate::input::Key;
use crate::outcome::{Cause, EvictionReason, QueueChange};
use crate::verdict::{
    EvictionFailure, EvictionFailureReason, PodRejection, QueueResource, ScenarioRejection, Verdict,
};

fn miss(cause: Cause, reason: EvictionFailureReason) -> Verdict {
    Verdict::NoVictims(Box::new(EvictionFailure { cause, reason }))
}

fn too_little(evictable: i64, queues: u32) -> EvictionFailureReason {
    let resource = QueueResource::Gpu;
    EvictionFailureReason::InsufficientEvictable {
        resource,
        requested: 28 * GPU,
        free: 4 * GPU,
        evictable,
        queues,
    }
}

fn worked(tried: u32, all: bool, refused: Option<ScenarioRejection>) -> EvictionFailureReason {
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
fn all_read(cases: &[(Cause, EvictionFailureReason, &str)]) {
    for (cause, reason, text) in cases {
        assert_eq!(plain(&miss(*cause, reason.clone()), "team").to_string(), *text);
    }
}

#[test]
fn a_refusal_names_its_bound_with_numbers() {
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
    let room = "wait for pods to finish, or add a node";
    all_read(&[
        (
            Cause::Reclaim,
            beyond,
            "no reclaim: queue `team` would go to 5 of its fair share of 4 GPUs; hint: raise the quota or the over-quota weight of `team`, or wait for its own pods to finish",
        ),
        (
            Cause::Preempt,
            EvictionFailureReason::BeyondQuota(excess(QueueResource::Cpu, 1_000, 500, 1_000)),
            "no preemption: queue `research` would go to 1.5 of its quota of 1 CPU core for pods that cannot be \
             preempted; hint: use a preemptible priority class, or raise the quota of `research`",
        ),
        (
            Cause::Reclaim,
            too_little(16 * GPU, 2),
            &format!(
                "no reclaim: queue `team` would need 24 GPUs from queues above their share; only 16 are reclaimable, in \
                 2 queues; hint: {room}"
            ),
        ),
        (
            Cause::Reclaim,
            too_little(GPU, 1),
            &format!(
                "no reclaim: queue `team` would need 24 GPUs from queues above their share; only 1 is reclaimable; \
                 hint: {room}"
            ),
        ),
        (
            Cause::Preempt,
            too_little(0, 0),
            &format!(
                "no preemption: it would need 24 GPUs from its own queue `team`; none is \
                 preemptible; hint: {room}"
            ),
        ),
        (
            Cause::Consolidation,
            free(GPU),
            &format!("no consolidation: it needs 4 GPUs, and only 1 is free in all; hint: {room}"),
        ),
        (
            Cause::Reclaim,
            small(1),
            "no reclaim: even with everybody gone who may be evicted, its pod would find no node with 8 GPUs; hint: ask \
             for fewer GPUs in each pod, wait for pods to finish, or add a node",
        ),
        (
            Cause::Reclaim,
            small(4),
            "no reclaim: even with everybody gone who may be evicted, only 2 of its 4 pods would find a node with 8 GPUs \
             or more; hint: ask for fewer GPUs in each pod, wait for pods to finish, or add a node",
        ),
    ]);
}

#[test]
fn a_search_without_success_says_how_far_it_got() {
    let other = Key::new("lab", "other");
    let room = "wait for pods to finish, or add a node";
    all_read(&[
        (
            Cause::Preempt,
            EvictionFailureReason::NoCandidates,
            "no preemption: queue `team` has no less important group that may be evicted for it; hint: use a priority \
             class of a higher value, or wait",
        ),
        (
            Cause::Consolidation,
            EvictionFailureReason::EquivalentGroupFailed(other.clone()),
            "no consolidation: group `lab/other`, which asks for no more, found nothing; hint: see what \
             keeps `lab/other` pending",
        ),
        (
            Cause::Reclaim,
            EvictionFailureReason::RepeatedEviction(other.clone()),
            "no reclaim: group `lab/other` would have to give way, but one of the two was evicted for the other before, and \
             demand, quotas and capacity are as they were; hint: wait for pods to finish, or add a node",
        ),
        (
            Cause::Reclaim,
            worked(12, true, Some(ScenarioRejection::MinRuntime(other.clone()))),
            "no reclaim: all 12 sets of victims were tried and none works: the minimum run time of group `lab/other` is \
             not over; hint: wait until `lab/other` has run long enough, or shorten the minimum run time of its queue",
        ),
        (
            Cause::Reclaim,
            worked(1, false, Some(ScenarioRejection::DisruptionBudget(other))),
            "no reclaim: one set of victims was tried and does not work: disruption budget `lab/other` would be broken; \
             hint: wait until `lab/other` allows more disruptions, or loosen it",
        ),
        (
            Cause::Reclaim,
            worked(0, true, None),
            &format!("no reclaim: no set of victims makes enough room; hint: {room}"),
        ),
        (
            Cause::Preempt,
            EvictionFailureReason::BudgetExhausted { tried: 1, steps: 90_000 },
            "no preemption: the search budget ran out after 1 scenario and 90000 steps; hint: raise \
             `scenarioSearchBudgets` in the scheduler's configuration, or wait for pods to finish",
        ),
        (
            Cause::Preempt,
            EvictionFailureReason::Unschedulable(PodRejection::ConfigMap("env".into())),
            "no preemption: evictions would not help, since config map `env` is missing; hint: create the config map",
        ),
    ]);
}

#[test]
fn actions_with_the_same_reason_share_a_sentence() {
    let like = || EvictionFailureReason::EquivalentGroupFailed(Key::new("lab", "other"));
    let verdict = group(vec![
        Verdict::QueueMissing,
        miss(Cause::Consolidation, like()),
        miss(Cause::Reclaim, like()),
        miss(Cause::Reclaim, like()),
        miss(Cause::Preempt, like()),
        miss(Cause::Reclaim, EvictionFailureReason::NoCandidates),
        miss(Cause::Preempt, EvictionFailureReason::NoCandidates),
    ]);
    let texts: Vec<String> =
        failed_actions(&verdict).into_iter().map(|refusal| refusal.sentence.text).collect();
    assert_eq!(
        texts,
        [
            "no consolidation, reclaim or preemption: group `lab/other`, which asks for no more, found nothing",
            "no reclaim: no other queue has a group that may be evicted for it",
            "no preemption: queue `research` has no less important group that may be evicted for it",
        ]
    );
}

#[test]
fn conditions_do_not_tell_about_evictions() {
    let verdict =
        group(vec![Verdict::QueueMissing, miss(Cause::Reclaim, EvictionFailureReason::NoCandidates)]);
    assert_eq!(condition_message(&verdict), "QueueDoesNotExist: Queue 'research' does not exist.");
    assert!(reasons(&group(vec![miss(Cause::Reclaim, EvictionFailureReason::NoCandidates)])).is_empty());
}

#[test]
fn rules_name_what_a_queue_held_too_much_of() {
    let (reclaimer, victim) = (change("speech", 0, 1), change("vision", 3, 2));
    let above_share = EvictionReason::AboveShare { reclaimer: reclaimer.clone(), victim: victim.clone() };
    assert_eq!(rule(&above_share), "queue `vision` held more than its share of GPUs");
    let above_quota = EvictionReason::AboveQuota { reclaimer, victim };
    assert_eq!(
        rule(&above_quota),
        "queue `vision` held more than its quota of GPUs, and `speech` stays within its own"
    );
    assert_eq!(rule(&EvictionReason::Priority { preemptor: 75, victim: 50 }), "priority 75 comes before 50");
    assert_eq!(
        rule(&EvictionReason::Stale { since: 1_767_225_600_000_000 }),
        "its gang has run below its minimum since 2026-01-01T00:00:00Z"
    );
}

#[test]
fn events_name_both_queues_of_a_reclaim() {
    let beside = Beside { victim: Some(100), reclaimer: Some(200), minimum: 0 };
    let why =
        EvictionReason::AboveShare { reclaimer: change("Speech", 0, 1), victim: change("Vision", 3, 2) };
    let next = Key::new("lab", "next");
    let text = message(&pod("train-0"), Some(&next), "reclaim", &why, beside);
    assert_eq!(
        text,
        "Pod lab/train-0 was preempted by workload lab/next.\n\
         Vision uses <GPU: 3, CPU: 1.5 (cores), memory: 4 (GB)> with a quota of <GPU: 1, CPU: Unlimited (cores), memory: \
         64 (GB)>, fair-share of <GPU: 2, CPU: 8 (cores), memory: 64 (GB)> and queue priority of <100>.\n\
         Speech uses <GPU: 0, CPU: 1.5 (cores), memory: 4 (GB)> with a quota of <GPU: 1, CPU: Unlimited (cores), memory: \
         64 (GB)>, fair-share of <GPU: 2, CPU: 8 (cores), memory: 64 (GB)> and queue priority of <200>."
    );
}

#[test]
fn events_tell_the_other_kinds_of_evictions_apart() {
    let next = Key::new("lab", "next");
    let text = |action, why: EvictionReason| {
        let beside = Beside { minimum: 4, ..Beside::default() };
        message(&pod("train-0"), Some(&next), action, &why, beside)
    };
    let moved = || EvictionReason::Moved { node: "n1".into() };
    let higher = "Pod lab/train-0 was preempted by higher priority workload lab/next";
    assert_eq!(text("preempt", EvictionReason::Priority { preemptor: 75, victim: 50 }), higher);
    assert_eq!(text("preempt", moved()), higher);
    assert_eq!(text("reclaim", moved()), "Pod lab/train-0 was preempted by workload lab/next.");
    assert_eq!(
        text("consolidation", moved()),
        "Pod lab/train-0 was evicted and gets another place, for bin packing (consolidation)"
    );
    assert_eq!(
        text("stalegangeviction", EvictionReason::Stale { since: 0 }),
        "Pod lab/train-0 was evicted: its workload runs with fewer pods than its minimum of 4"
    );
}
