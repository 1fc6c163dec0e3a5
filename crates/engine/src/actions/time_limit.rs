//! Notices of maximum run times, and the end of groups that have reached one.
//!
//! Runs in every cycle before the configured actions, which see the capacity that it releases. A group ends in two steps:
//! first it is reported as ended, so that the caller can record it, then its pods are evicted. A crash in between loses
//! nothing, and recreated pods of an ended group are not placed, so that no group ends twice.
//! Disruption budgets do not delay the end: tenants create them, and could lift the limits of their queues.

use super::stale_gang_eviction::is_evictable;
use crate::cycle::Run;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{EvictionReason, TIME_LIMIT};
use crate::time_limit::{RunningLimit, ends};

pub(crate) fn run(run: &mut Run<'_, '_>) {
    let now = run.cycle.now;
    let concerned = |group: &GroupIdx| {
        let g = &run.plan.groups[*group];
        let is_due = || {
            g.last_start.is_none() || run.plan.running_limits(*group).any(|limit| limit.warning_at() <= now)
        };
        g.present && g.active_allocated() > 0 && (g.ended.is_some() || is_due())
    };
    let groups: Vec<GroupIdx> = run.plan.limited_groups().into_iter().filter(concerned).collect();
    let mut groups: Vec<(Key, GroupIdx)> =
        groups.into_iter().map(|group| (run.plan.group_key(group), group)).collect();
    groups.sort_unstable();
    for (key, group) in groups {
        run.guarded(group, |run| of_group(run, &key, group));
    }
}

fn of_group(run: &mut Run<'_, '_>, key: &Key, group: GroupIdx) -> bool {
    let g = &run.plan.groups[group];
    if let Some(ended) = g.ended {
        return evict(run, group, ended.0);
    }
    if g.last_start.is_none() && run.plan.time_limits(group).next().is_some() {
        // It started before starts were recorded, or the record was removed: the limit counts from now.
        run.outcome.started.push(key.clone());
        return false;
    }
    let (now, warned) = (run.cycle.now, g.limit_warned);
    let mut limits: Vec<_> = run.plan.running_limits(group).collect();
    limits.sort_by_key(RunningLimit::effective_at);
    let notices = &mut run.outcome.time_limits;
    let (past, future): (Vec<_>, Vec<_>) = limits.into_iter().partition(|limit| limit.effective_at() <= now);
    if let Some(limit) = past.iter().find(|limit| ends(limit)) {
        notices.end.push(limit.notice(&run.plan, group));
        return false;
    }
    if let Some(limit) = past.first() {
        notices.exceeded.push(limit.notice(&run.plan, group));
    }
    let is_due = |warning| warning <= now && warned.is_none_or(|warned| warned < warning);
    if let Some(limit) = future.iter().find(|limit| is_due(limit.warning_at())) {
        notices.warn.push(limit.notice(&run.plan, group));
    }
    false
}

fn evict(run: &mut Run<'_, '_>, group: GroupIdx, ended: i64) -> bool {
    let pods = run.plan.groups[group].pods.iter().copied();
    let pods: Vec<PodIdx> = pods.filter(|pod| is_evictable(&run.plan, *pod)).collect();
    for &pod in &pods {
        run.push_eviction(pod, TIME_LIMIT, pods.len(), None, EvictionReason::TimeLimit { ended });
        run.plan.evict(pod);
    }
    !pods.is_empty()
}
