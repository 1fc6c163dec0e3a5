//! Only permitted victims are evicted, and for a preemptor that is placed.

use super::after::{After, Presence};
use super::eviction_batches::{EvictionBatch, Evictions};
use super::{Findings, Invariant, fairness, protection};
use crate::cluster::Cluster;
use crate::cluster::group::Group;
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, PodIdx};
use crate::outcome::{Cause, Outcome};
use crate::policy::{DisruptionBudgets, Policy};
use kai_units::Span;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(
    before: &Cluster,
    policy: &Policy,
    after: &After,
    outcome: &Outcome,
    findings: &mut Findings,
) {
    let evictions = Evictions::read(before, after, outcome, findings);
    for batch in &evictions.all {
        preemptor(before, batch, findings);
        match batch.cause {
            Cause::Consolidation => consolidation(before, policy, &evictions, batch, findings),
            Cause::Reclaim => fairness::check(before, policy, &evictions, batch, findings),
            Cause::Preempt => preempt(before, batch, findings),
            Cause::Stale => {}
        }
    }
    displaced(before, &evictions, findings);
    stale(before, policy, after, &evictions, findings);
    protection::min_runtime(before, policy, after, &evictions, findings);
    if policy.disruption_budgets == DisruptionBudgets::Honour {
        protection::budgets(before, after, &super::time_limit::evicted(before, outcome), findings);
    }
}

/// The preemptor is placed and its preemption delay has elapsed.
fn preemptor(before: &Cluster, batch: &EvictionBatch, findings: &mut Findings) {
    let group = &before.groups[batch.preemptor];
    let key = before.group_key(batch.preemptor);
    let action = batch.cause.action();
    if batch.placed.is_empty() {
        findings.add(
            Invariant::Eviction,
            format!("pods are evicted for group `{key}`, which is not placed ({action})"),
        );
    }
    if batch.evicted.iter().any(|pod| before.pods[*pod].group == Some(batch.preemptor)) {
        findings.add(Invariant::Eviction, format!("group `{key}` evicts its own pods"));
    }
    let from = group.last_eviction.map_or(group.created, |last| last.max(group.created));
    if group.preemption_delay.is_some_and(|delay| delay > Span(0) && before.refreshed_at() < from + delay) {
        findings
            .add(Invariant::Eviction, format!("group `{key}` causes evictions within its preemption delay"));
    }
}

fn preempt(before: &Cluster, batch: &EvictionBatch, findings: &mut Findings) {
    let ours = &before.groups[batch.preemptor];
    for &pod in &batch.evicted {
        let Some(theirs) = before.pods[pod].group.map(|g| &before.groups[g]) else { continue };
        let key = before.pod_key(pod);
        let preemptor = before.group_key(batch.preemptor);
        if theirs.queue != ours.queue {
            findings.add(
                Invariant::Eviction,
                format!("pod `{key}` is preempted by group `{preemptor}` of another queue"),
            );
        }
        if theirs.priority >= ours.priority {
            let what =
                format!("pod `{key}` is preempted by group `{preemptor}`, which has no higher priority");
            findings.add(Invariant::Eviction, what);
        }
    }
}

/// Consolidation only moves pods, within the configured maximum.
fn consolidation(
    before: &Cluster,
    policy: &Policy,
    evictions: &Evictions,
    batch: &EvictionBatch,
    findings: &mut Findings,
) {
    let key = before.group_key(batch.preemptor);
    if !before.groups[batch.preemptor].preemptible {
        findings.add(
            Invariant::Consolidation,
            format!("pods are moved for group `{key}`, which is non-preemptible"),
        );
    }
    for pod in batch.evicted.iter().filter(|pod| !evictions.is_moved(**pod)) {
        findings.add(
            Invariant::Consolidation,
            format!("pod `{}` is moved but not placed again", before.pod_key(*pod)),
        );
    }
    let groups: BTreeSet<Option<GroupIdx>> =
        batch.evicted.iter().chain(&batch.moved).map(|pod| before.pods[*pod].group).collect();
    if policy.params.max_consolidation_victims.is_some_and(|most| groups.len() > most as usize) {
        findings.add(
            Invariant::Consolidation,
            format!("pods of {} groups are moved for group `{key}`", groups.len()),
        );
    }
}

/// A moved pod loses its new node only to a group that could have evicted it directly.
fn displaced(before: &Cluster, evictions: &Evictions, findings: &mut Findings) {
    for (&pod, &moved_by) in &evictions.displaced {
        let Some(theirs) = before.pods[pod].group.map(|g| &before.groups[g]) else { continue };
        let may_take = |batch: &EvictionBatch| {
            let ours = &before.groups[batch.preemptor];
            match batch.cause {
                Cause::Preempt => ours.queue == theirs.queue && ours.priority > theirs.priority,
                Cause::Reclaim => ours.queue != theirs.queue,
                Cause::Consolidation | Cause::Stale => false,
            }
        };
        if !evictions.all[moved_by + 1..].iter().any(may_take) {
            let what = format!("pod `{}` is moved but not placed again", before.pod_key(pod));
            findings.add(Invariant::Consolidation, what);
        }
    }
}

/// Stale gangs are evicted as a whole, after their grace period.
fn stale(before: &Cluster, policy: &Policy, after: &After, evictions: &Evictions, findings: &mut Findings) {
    let groups: BTreeSet<GroupIdx> =
        evictions.stale.iter().filter_map(|pod| before.pods[*pod].group).collect();
    let mut bound: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
    for held in after.placed(before).filter(|h| h.presence.is_new() && !after.evicted.contains(&h.pod)) {
        if let Some(group) = before.pods[held.pod].group {
            bound.entry(group).or_default().push(held.pod);
        }
    }
    let now = before.refreshed_at();
    for index in groups {
        let group = &before.groups[index];
        let key = before.group_key(index);
        let more = bound.get(&index).map_or(&[][..], Vec::as_slice);
        let in_use = |pod: &PodIdx| before.pods[*pod].state.status.is_active_used() || more.contains(pod);
        let works = super::gang::is_satisfied_by(before, group, &in_use);
        if works || group.count(Status::Succeeded) > 0 {
            findings.add(Invariant::Eviction, format!("group `{key}` is evicted as stale but is not stale"));
        }
        let grace = group.staleness_grace.unwrap_or(policy.params.staleness_grace);
        if grace < Span(0) || now < group.stale_since.unwrap_or(now) + grace {
            findings.add(
                Invariant::Eviction,
                format!("group `{key}` is evicted as stale within its grace period"),
            );
        }
        if has_left(before, after, group) {
            findings.add(Invariant::Eviction, format!("group `{key}` is only partly evicted as stale"));
        }
    }
}

fn has_left(before: &Cluster, after: &After, group: &Group) -> bool {
    let stays =
        |held: &super::after::PlacedPod| held.presence == Presence::Stays && group.pods.contains(&held.pod);
    let counts = |pod: PodIdx| {
        before.pods[pod].member.is_some() && before.pods[pod].state.status.is_active_allocated()
    };
    after.held.iter().any(|held| stays(held) && counts(held.pod))
}
