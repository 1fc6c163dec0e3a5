//! Checks that a request exceeds neither the limit nor the quota of its queue and the ancestors.
//!
//! Both checks go from the leaf queue to the root and test CPU, memory and GPU in that order; a resource that is not
//! requested is ignored. Limits are checked on the whole path before quotas.

use super::{Bounds, Ledger, Preemptibility, QueueAmounts, RESOURCES};
use crate::verdict::{CapacityRule, QueueExcess, QueueNumbers, QueueResource};

/// A bound that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Position of the queue on the path, counted from the leaf.
    pub level: usize,
    /// The resource.
    pub resource: QueueResource,
    /// Limit or quota.
    pub rule: CapacityRule,
    /// Value of the bound.
    pub bound: i64,
    /// Amount that counts against the bound.
    pub used: i64,
    /// Requested amount.
    pub requested: i64,
}

impl Excess {
    /// The excess with the name of the queue.
    pub fn named(&self, queue: impl Into<String>) -> QueueExcess {
        QueueExcess {
            queue: queue.into(),
            resource: self.resource,
            bound: self.bound,
            used: self.used,
            requested: self.requested,
            numbers: None,
        }
    }
}

/// The numbers of a queue that a condition shows beside the bound.
pub fn numbers(
    name: &str,
    ledger: &Ledger,
    requested: &QueueAmounts,
    preemptibility: Preemptibility,
) -> QueueNumbers {
    QueueNumbers {
        name: name.to_owned(),
        requested: ledger.request,
        quota: ledger.quota,
        allocated: ledger.allocated,
        allocated_non_preemptible: ledger.allocated_np,
        limit: ledger.limit,
        group_requested: *requested,
        group_requested_non_preemptible: match preemptibility {
            Preemptibility::Preemptible => [0; 3],
            Preemptibility::NonPreemptible => *requested,
        },
    }
}

/// The first bound on the path that `requested` exceeds.
pub fn check<'a, P>(path: P, requested: &QueueAmounts, preemptibility: Preemptibility) -> Option<Excess>
where
    P: Iterator<Item = &'a Ledger> + Clone,
{
    over_limit(path.clone(), requested).or_else(|| match preemptibility {
        Preemptibility::Preemptible => None,
        Preemptibility::NonPreemptible => over_quota(path, requested),
    })
}

/// The first limit on the path that `requested` exceeds.
pub fn over_limit<'a>(path: impl Iterator<Item = &'a Ledger>, requested: &QueueAmounts) -> Option<Excess> {
    path.enumerate().find_map(|(level, ledger)| {
        beyond(CapacityRule::Limit, level, &ledger.allocated, &ledger.limit, requested)
    })
}

/// The first quota on the path that `requested`, as a non-preemptible request, exceeds.
pub fn over_quota<'a>(path: impl Iterator<Item = &'a Ledger>, requested: &QueueAmounts) -> Option<Excess> {
    path.enumerate().find_map(|(level, ledger)| {
        beyond(CapacityRule::NonPreemptibleQuota, level, &ledger.allocated_np, &ledger.quota, requested)
    })
}

#[inline]
fn beyond(
    rule: CapacityRule,
    level: usize,
    used: &QueueAmounts,
    bounds: &Bounds,
    requested: &QueueAmounts,
) -> Option<Excess> {
    RESOURCES.into_iter().find_map(|r| {
        let bound = bounds[r]?;
        (requested[r] > 0 && used[r] + requested[r] > bound).then(|| Excess {
            level,
            resource: r,
            rule,
            bound,
            used: used[r],
            requested: requested[r],
        })
    })
}
