//! Evicts gangs that have run below their minimum for longer than the grace period.

use crate::cycle::Run;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Cause, EvictionReason};
use kai_units::Span;
use std::collections::BTreeSet;

pub(crate) fn run(run: &mut Run<'_, '_>) {
    run.end_search();
    // Groups changed by this cycle may have become stale.
    let decided = run.outcome.decisions.iter().filter_map(|decision| {
        let pod = run.plan.pod(decision.pod())?;
        run.plan.pods[pod].group
    });
    let groups: BTreeSet<GroupIdx> = run.plan.stale_groups().chain(decided).collect();
    let may_be_stale = |group: &GroupIdx| {
        let g = &run.plan.groups[*group];
        g.invalid_reason.is_none() && (g.stale_since.is_some() || g.is_stale())
    };
    let mut groups: Vec<(Key, GroupIdx)> =
        groups.into_iter().filter(may_be_stale).map(|group| (run.plan.group_key(group), group)).collect();
    groups.sort_unstable();
    for (_, group) in groups {
        run.guarded(group, |run| of_group(run, group));
    }
}

fn of_group(run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
    let g = &run.plan.groups[group];
    let (stale_since, now) = (g.stale_since, run.cycle.now);
    if !g.is_stale() {
        if stale_since.is_some() {
            let key = run.plan.group_key(group);
            run.outcome.staleness.push((key, None));
        }
        return false;
    }
    let since = stale_since.unwrap_or(now);
    let grace = g.staleness_grace.unwrap_or(run.policy.params.staleness_grace);
    if stale_since.is_none() {
        let key = run.plan.group_key(group);
        run.outcome.staleness.push((key, Some(since)));
    }
    if grace < Span(0) || now < since + grace {
        return false;
    }
    let pods: Vec<PodIdx> =
        run.plan.groups[group].pods.iter().copied().filter(|pod| is_evictable(&run.plan, *pod)).collect();
    if run.disruptions.is_none() {
        run.disruptions = Some(Disruptions::new(run.plan.cluster_mut(), run.policy.disruption_budgets));
    }
    let Some(mut disruptions) = run.disruptions.take() else { return false };
    let allowed = disruptions.broken_by(&run.plan, &pods).is_none();
    if allowed {
        disruptions.draw(&run.plan, &pods);
        for &pod in &pods {
            let why = EvictionReason::Stale { since: since.0 };
            run.push_eviction(pod, Cause::Stale.action(), pods.len(), None, why);
            run.plan.evict(pod);
        }
    }
    run.disruptions = Some(disruptions);
    allowed
}

/// Whether a pod holds a node from before this cycle and is not evicted yet.
pub(super) fn is_evictable(cluster: &crate::Cluster, pod: PodIdx) -> bool {
    let state = &cluster.pods[pod].state;
    state.status.is_active_allocated() && state.releasing.is_none() && !cluster.is_placed_this_cycle(pod)
}
