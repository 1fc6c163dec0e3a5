//! Minimum run times and disruption budgets are respected.

use super::after::After;
use super::eviction_batches::{EvictionBatch, Evictions};
use super::matching::selects;
use super::queue_allocation::{branch, path};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx, QueueIdx};
use crate::outcome::Cause;
use crate::plugin::MinRuntime;
use crate::policy::Policy;
use crate::share::min_runtime::ReclaimResolution;
use kai_units::Span;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn min_runtime(
    before: &Cluster,
    policy: &Policy,
    after: &After,
    evictions: &Evictions,
    findings: &mut Findings,
) {
    let Some(args) = &policy.registry.builtin.min_runtime else { return };
    let mut protected: BTreeSet<GroupIdx> = BTreeSet::new();
    for batch in &evictions.all {
        for group in batch.evicted.iter().filter_map(|pod| before.pods[*pod].group) {
            if is_protected(before, args, batch, group) {
                protected.insert(group);
            }
        }
    }
    let mut joined: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
    for held in after.placed(before).filter(|held| !after.evicted.contains(&held.pod)) {
        if let Some(group) = before.pods[held.pod].group.filter(|group| protected.contains(group)) {
            joined.entry(group).or_default().push(held.pod);
        }
    }
    let lost = evictions.by_group(before, &[Cause::Reclaim, Cause::Preempt]);
    for index in protected {
        let group = &before.groups[index];
        let key = before.group_key(index);
        let has_more = group.pod_sets().any(|(_, set)| set.pods.len() > set.min as usize);
        if !has_more {
            findings
                .add(Invariant::MinRuntime, format!("group `{key}` is evicted before its minimum run time"));
            continue;
        }
        let more = joined.get(&index).map_or(&[][..], Vec::as_slice);
        for (member, set) in group.pod_sets() {
            let mine = |pods: &[PodIdx]| {
                pods.iter().filter(|pod| before.pods[**pod].member == Some(member)).count() as u32
            };
            let had = |pod: &&PodIdx| before.pods[**pod].state.status.is_active_allocated();
            let had =
                group.pods.iter().filter(had).filter(|p| before.pods[**p].member == Some(member)).count()
                    as u32;
            let gone = mine(&lost[&index]);
            if gone > 0 && had >= set.min && had + mine(more) < set.min + gone {
                let what = format!("group `{key}` falls below its minimum before its minimum run time");
                findings.add(Invariant::MinRuntime, what);
            }
        }
    }
}

fn is_protected(before: &Cluster, args: &MinRuntime, batch: &EvictionBatch, victim: GroupIdx) -> bool {
    let (victim, taker) = (&before.groups[victim], &before.groups[batch.preemptor]);
    let (Some(start), Some(theirs), Some(ours)) = (victim.last_start, victim.queue, taker.queue) else {
        return false;
    };
    if victim.exceeds_time_limit {
        return false;
    }
    let nearest = |from: QueueIdx, own: &dyn Fn(QueueIdx) -> Option<Span>| path(before, from).find_map(own);
    let span = match batch.cause {
        Cause::Consolidation | Cause::Stale => return false,
        Cause::Preempt => {
            let Some(default) = args.preempt else { return false };
            nearest(theirs, &|queue| before.queues[queue].preempt_min_runtime).unwrap_or(default)
        }
        Cause::Reclaim => {
            let from = match args.resolution {
                ReclaimResolution::VictimQueue => theirs,
                ReclaimResolution::LowestCommonAncestor => branch(before, theirs, ours),
            };
            let Some(default) = args.reclaim else { return false };
            nearest(from, &|queue| before.queues[queue].reclaim_min_runtime).unwrap_or(default)
        }
    };
    start + span > before.refreshed_at()
}

/// No disruption budget is exceeded; `ended` are pods that budgets do not protect.
pub(super) fn budgets(before: &Cluster, after: &After, ended: &BTreeSet<PodIdx>, findings: &mut Findings) {
    if before.budgets.is_empty() {
        return;
    }
    let mut drawn: BTreeMap<usize, i64> = BTreeMap::new();
    for &pod in after.evicted.difference(ended) {
        let p = &before.pods[pod];
        let labels: Vec<(&str, &str)> = before
            .terms
            .labels(p.label_set)
            .iter()
            .map(|(k, v)| (before.text(*k), before.text(*v)))
            .collect();
        for (at, budget) in before.budgets.values().enumerate() {
            if budget.key.namespace == before.text(p.namespace) && selects(&budget.selector, &labels) {
                *drawn.entry(at).or_default() += 1;
            }
        }
    }
    for (at, budget) in before.budgets.values().enumerate() {
        let (drawn, most) =
            (drawn.get(&at).copied().unwrap_or(0), i64::from(budget.disruptions_allowed.max(0)));
        if drawn > most {
            let what = format!("{drawn} pods of disruption budget `{}` are evicted, of {most}", budget.key);
            findings.add(Invariant::DisruptionBudget, what);
        }
    }
}
