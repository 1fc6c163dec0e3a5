//! Only those give way who may be asked to, for somebody who gains by it.

use super::after::{After, How};
use super::takings::{Taking, Takings};
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
    let takings = Takings::read(before, after, outcome, findings);
    for taking in &takings.all {
        preemptor(before, taking, findings);
        match taking.cause {
            Cause::Consolidation => consolidation(before, policy, &takings, taking, findings),
            Cause::Reclaim => fairness::check(before, policy, &takings, taking, findings),
            Cause::Preempt => preempt(before, taking, findings),
            Cause::Stale => {}
        }
    }
    overtaken(before, &takings, findings);
    stale(before, policy, after, &takings, findings);
    protection::min_runtime(before, policy, after, &takings, findings);
    if policy.disruption_budgets == DisruptionBudgets::Honour {
        protection::budgets(before, after, findings);
    }
}

/// Whoever takes gains by it, and may take already.
fn preemptor(before: &Cluster, taking: &Taking, findings: &mut Findings) {
    let group = &before.groups[taking.preemptor];
    let key = before.group_key(taking.preemptor);
    let action = taking.cause.action();
    if taking.placed.is_empty() {
        findings.say(
            Invariant::Eviction,
            format!("pods are evicted for group `{key}`, which places none ({action})"),
        );
    }
    if taking.evicted.iter().any(|pod| before.pods[*pod].group == Some(taking.preemptor)) {
        findings.say(Invariant::Eviction, format!("group `{key}` evicts its own pods"));
    }
    let from = group.last_eviction.map_or(group.created, |last| last.max(group.created));
    if group.preemption_delay.is_some_and(|delay| delay > Span(0) && before.settled_at() < from + delay) {
        findings.say(Invariant::Eviction, format!("group `{key}` evicts others within its preemption delay"));
    }
}

fn preempt(before: &Cluster, taking: &Taking, findings: &mut Findings) {
    let ours = &before.groups[taking.preemptor];
    for &pod in &taking.evicted {
        let Some(theirs) = before.pods[pod].group.map(|g| &before.groups[g]) else { continue };
        let key = before.pod_key(pod);
        let preemptor = before.group_key(taking.preemptor);
        if theirs.queue != ours.queue {
            findings.say(
                Invariant::Eviction,
                format!("pod `{key}` is preempted by group `{preemptor}` of another queue"),
            );
        }
        if theirs.priority >= ours.priority {
            let what =
                format!("pod `{key}` is preempted by group `{preemptor}`, which is not more important");
            findings.say(Invariant::Eviction, what);
        }
    }
}

/// Consolidation only moves, and not too many.
fn consolidation(
    before: &Cluster,
    policy: &Policy,
    takings: &Takings,
    taking: &Taking,
    findings: &mut Findings,
) {
    let key = before.group_key(taking.preemptor);
    if !before.groups[taking.preemptor].preemptible {
        findings.say(
            Invariant::Consolidation,
            format!("pods are moved for group `{key}`, which cannot be evicted itself"),
        );
    }
    for pod in taking.evicted.iter().filter(|pod| !takings.is_moved(**pod)) {
        findings.say(
            Invariant::Consolidation,
            format!("pod `{}` is to be moved and has no new place", before.pod_key(*pod)),
        );
    }
    let groups: BTreeSet<Option<GroupIdx>> =
        taking.evicted.iter().chain(&taking.moved).map(|pod| before.pods[*pod].group).collect();
    if policy.params.max_consolidation_victims.is_some_and(|most| groups.len() > most as usize) {
        findings.say(
            Invariant::Consolidation,
            format!("pods of {} groups are moved for group `{key}`", groups.len()),
        );
    }
}

/// A pod that was moved loses its new place only to somebody who could have evicted it as well.
fn overtaken(before: &Cluster, takings: &Takings, findings: &mut Findings) {
    for (&pod, &moved_by) in &takings.overtaken {
        let Some(theirs) = before.pods[pod].group.map(|g| &before.groups[g]) else { continue };
        let may_take = |taking: &Taking| {
            let ours = &before.groups[taking.preemptor];
            match taking.cause {
                Cause::Preempt => ours.queue == theirs.queue && ours.priority > theirs.priority,
                Cause::Reclaim => ours.queue != theirs.queue,
                Cause::Consolidation | Cause::Stale => false,
            }
        };
        if !takings.all[moved_by + 1..].iter().any(may_take) {
            let what = format!("pod `{}` is to be moved and has no new place", before.pod_key(pod));
            findings.say(Invariant::Consolidation, what);
        }
    }
}

/// Gangs are cleared away whole, once they have been below their minimum for too long.
fn stale(before: &Cluster, policy: &Policy, after: &After, takings: &Takings, findings: &mut Findings) {
    let groups: BTreeSet<GroupIdx> = takings.stale.iter().filter_map(|pod| before.pods[*pod].group).collect();
    let mut bound: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
    for held in after.placed(before).filter(|h| h.how.is_new() && !after.evicted.contains(&h.pod)) {
        if let Some(group) = before.pods[held.pod].group {
            bound.entry(group).or_default().push(held.pod);
        }
    }
    let now = before.settled_at();
    for index in groups {
        let group = &before.groups[index];
        let key = before.group_key(index);
        let more = bound.get(&index).map_or(&[][..], Vec::as_slice);
        let in_use = |pod: &PodIdx| before.pods[*pod].state.status.is_active_used() || more.contains(pod);
        let works = super::gang::is_satisfied_by(before, group, &in_use);
        if works || group.count(Status::Succeeded) > 0 {
            findings.say(Invariant::Eviction, format!("group `{key}` is evicted as stale and is not"));
        }
        let grace = group.staleness_grace.unwrap_or(policy.params.staleness_grace);
        if grace < Span(0) || now < group.stale_since.unwrap_or(now) + grace {
            findings.say(Invariant::Eviction, format!("group `{key}` is evicted as stale before its time"));
        }
        if has_left(before, after, group) {
            findings.say(Invariant::Eviction, format!("group `{key}` is evicted as stale in part"));
        }
    }
}

fn has_left(before: &Cluster, after: &After, group: &Group) -> bool {
    let stays = |held: &super::after::Held| held.how == How::Stays && group.pods.contains(&held.pod);
    let counts = |pod: PodIdx| {
        before.pods[pod].member.is_some() && before.pods[pod].state.status.is_active_allocated()
    };
    after.held.iter().any(|held| stays(held) && counts(held.pod))
}
