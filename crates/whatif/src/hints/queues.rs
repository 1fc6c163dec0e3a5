//! Limits and quotas to raise.

use super::{RESOURCES, Search};
use crate::change::{Bound, Change};
use kai_engine::input::WHOLE_GPU;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::verdict::{
    CapacityRule, EvictionFailureReason, GroupVerdict, NodeFit, NodeRejection, QueueExcess, QueueResource,
    Verdict,
};

/// Maximum bounds that one hint raises.
const RAISED_MAX: usize = 6;

impl Search<'_, '_> {
    /// Bounds that the verdict names, raised one after the other until none is in the way, and whether that is enough.
    pub(super) fn bounds(&mut self) -> (bool, Vec<Change>) {
        let mut changes: Vec<Change> = Vec::new();
        let is_enough = self.raise_bounds(&mut changes).is_some();
        if is_enough {
            self.minimise(&mut changes);
        }
        (is_enough, changes)
    }

    fn raise_bounds(&mut self, changes: &mut Vec<Change>) -> Option<()> {
        let mut exceeded = exceeded(self.verdict);
        while let Some((bound, excess)) = exceeded.take() {
            if changes.len() >= RAISED_MAX {
                return None;
            }
            let queue = self.object_name(&excess)?;
            let (resource, from) = (excess.resource, Some(excess.bound));
            let wanted = excess.used.saturating_add(excess.requested);
            let to = Some(round_up(wanted.max(excess.bound + 1), quantum(resource, wanted)));
            let same = |change: &&mut Change| {
                matches!(change, Change::QueueBound { queue: of, bound: b, resource: r, .. }
                    if *of == queue && *b == bound && *r == resource)
            };
            match changes.iter_mut().find(same) {
                Some(Change::QueueBound { to: known, .. }) if *known < to => *known = to,
                Some(_) => return None,
                None => changes.push(Change::QueueBound { queue, bound, resource, from, to }),
            }
            let planned = self.plan(changes)?;
            if planned.is_reached {
                return Some(());
            }
            exceeded =
                planned.outcome.verdicts.iter().find(|of| of.group == *self.group).and_then(self::exceeded);
        }
        None
    }

    /// Quotas of the queue and its ancestors with which it may reclaim.
    pub(super) fn reclaim_quota(&mut self) -> Option<Vec<Change>> {
        if exceeded(self.verdict).is_some() {
            return None;
        }
        let resources = self.short_resources();
        let mut changes = Vec::new();
        let path = path(self.base, &self.verdict.queue);
        for resource in resources {
            for queue in &path {
                let wanted = queue.requested[resource];
                let wanted = round_up(wanted, quantum(resource, wanted));
                let Some(quota) = queue.quota[resource].filter(|quota| *quota < wanted) else { continue };
                let (from, to) = (Some(quota), Some(wanted));
                changes.push(Change::QueueBound {
                    queue: queue.name.clone(),
                    bound: Bound::Quota,
                    resource,
                    from,
                    to,
                });
            }
        }
        if changes.is_empty() || !self.runs(&changes) {
            return None;
        }
        self.minimise(&mut changes);
        Some(changes)
    }

    /// Removes changes that are not needed, the outermost queues first, and lowers the amounts of the others.
    fn minimise(&mut self, changes: &mut Vec<Change>) {
        for at in (0..changes.len()).rev() {
            let mut fewer = changes.clone();
            fewer.remove(at);
            if !fewer.is_empty() && self.runs(&fewer) {
                *changes = fewer;
            }
        }
        for at in 0..changes.len() {
            let Some(Change::QueueBound { resource, from: Some(from), to: Some(to), .. }) = changes.get(at)
            else {
                continue;
            };
            let step = quantum(*resource, *to);
            let (fails, works) = (from.div_euclid(step), to.div_euclid(step));
            let of = changes.clone();
            let with = |steps: i64| {
                let mut changed = of.clone();
                if let Some(Change::QueueBound { to, .. }) = changed.get_mut(at) {
                    *to = Some(steps * step);
                }
                changed
            };
            let least = self.least(fails, works, with);
            if let Some(Change::QueueBound { to, .. }) = changes.get_mut(at) {
                *to = Some(least * step);
            }
        }
    }

    /// Resources that the group requests: those that the failed evictions name, else GPUs, else CPU and memory.
    fn short_resources(&self) -> Vec<QueueResource> {
        let failures = [&self.verdict.leading].into_iter().chain(&self.verdict.further);
        let named = failures.filter_map(|verdict| {
            let Verdict::NoVictims(failure) = verdict else { return None };
            let EvictionFailureReason::BeyondFairShare { resource, .. } = &failure.reason else {
                return None;
            };
            Some(*resource)
        });
        let mut named: Vec<QueueResource> = named.collect();
        named.dedup();
        if !named.is_empty() {
            return named;
        }
        let requested = self.cluster_group().map(|group| group.counted.request).unwrap_or_default();
        if requested[QueueResource::Gpu] > 0 {
            return vec![QueueResource::Gpu];
        }
        RESOURCES.into_iter().filter(|resource| requested[*resource] > 0).collect()
    }

    /// Messages may name a queue by its display name.
    fn object_name(&self, excess: &QueueExcess) -> Option<String> {
        if let Some(numbers) = &excess.numbers {
            return Some(numbers.name.clone());
        }
        let objects = self.model.store.objects();
        let path = path(self.base, &self.verdict.queue);
        let is_named = |queue: &&&QueueReport| {
            let key = kai_engine::input::Key::new("", queue.name.as_str());
            queue.name == excess.queue
                || objects.queues.get(&key).is_some_and(|object| object.spec.display_name == excess.queue)
        };
        path.iter().find(is_named).map(|queue| queue.name.clone())
    }
}

/// The queue and its ancestors.
fn path<'a>(outcome: &'a Outcome, queue: &str) -> Vec<&'a QueueReport> {
    let mut path: Vec<&QueueReport> = Vec::new();
    let mut next = Some(queue);
    while let Some(found) = next.and_then(|name| outcome.queues.iter().find(|queue| queue.name == name)) {
        if path.len() > outcome.queues.len() {
            break;
        }
        path.push(found);
        next = found.parent.as_deref();
    }
    path
}

/// The first bound that the verdict names as exceeded.
fn exceeded(verdict: &GroupVerdict) -> Option<(Bound, QueueExcess)> {
    let of_fit = |fit: &NodeFit| {
        fit.reasons.iter().find_map(|(reason, _)| {
            let NodeRejection::OverCapacity(excess, rule) = reason else { return None };
            let bound = match rule {
                CapacityRule::Limit => Bound::Limit,
                CapacityRule::NonPreemptibleQuota => Bound::Quota,
            };
            Some((bound, (**excess).clone()))
        })
    };
    let of_verdict = |verdict: &Verdict| {
        if let Verdict::OverLimit(excess) = verdict {
            Some((Bound::Limit, excess.clone()))
        } else if let Verdict::NonPreemptibleOverQuota(excess) = verdict {
            Some((Bound::Quota, excess.clone()))
        } else if let Verdict::GangNotSatisfied { fit, .. } | Verdict::NoNode(fit) = verdict {
            of_fit(fit)
        } else if let Verdict::NoVictims(failure) = verdict
            && let EvictionFailureReason::BeyondQuota(excess) = &failure.reason
        {
            Some((Bound::Quota, excess.clone()))
        } else {
            None
        }
    };
    [&verdict.leading].into_iter().chain(&verdict.further).find_map(of_verdict)
}

/// The step in which a bound is raised: a GPU, or a hundredth where the amount is no whole number; a millicore; a
/// megabyte.
fn quantum(resource: QueueResource, amount: i64) -> i64 {
    match resource {
        QueueResource::Gpu if amount % WHOLE_GPU == 0 => WHOLE_GPU,
        QueueResource::Gpu => WHOLE_GPU / 100,
        QueueResource::Cpu => 1,
        QueueResource::Memory => 1_000_000,
    }
}

fn round_up(amount: i64, step: i64) -> i64 {
    let rest = amount.rem_euclid(step);
    if rest == 0 { amount } else { amount.saturating_add(step - rest) }
}
