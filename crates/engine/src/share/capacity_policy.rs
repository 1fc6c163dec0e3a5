//! The capacity gates: would a request push a queue or an ancestor beyond its limit or quota?
//!
//! Both gates walk from the leaf to the root and look at CPU, memory, GPU in that order; a resource that is not
//! requested never stands in the way. The limit is checked on the whole path before the quota is.

use super::{Bounds, Ledger, Preemptibility, QueueAmounts, RESOURCES};
use crate::verdict::{CapacityRule, QueueExcess, QueueNumbers, QueueResource};

/// A bound that a request would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Which queue of the path, counted from the leaf.
    pub level: usize,
    /// Which resource.
    pub resource: QueueResource,
    /// Which bound.
    pub rule: CapacityRule,
    /// The bound.
    pub bound: i64,
    /// What counts against it.
    pub used: i64,
    /// What is asked for.
    pub requested: i64,
}

impl Excess {
    /// The same for people, with the queue's name.
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

/// Everything about a queue that an explanation shows beside the bound itself.
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

/// The first bound on the way from leaf to root that `requested` would pass.
pub fn check<'a, P>(path: P, requested: &QueueAmounts, preemptibility: Preemptibility) -> Option<Excess>
where
    P: Iterator<Item = &'a Ledger> + Clone,
{
    over_limit(path.clone(), requested).or_else(|| match preemptibility {
        Preemptibility::Preemptible => None,
        Preemptibility::NonPreemptible => over_quota(path, requested),
    })
}

/// The first limit on the way from leaf to root that `requested` would pass.
pub fn over_limit<'a>(path: impl Iterator<Item = &'a Ledger>, requested: &QueueAmounts) -> Option<Excess> {
    path.enumerate().find_map(|(level, ledger)| {
        beyond(CapacityRule::Limit, level, &ledger.allocated, &ledger.limit, requested)
    })
}

/// The first quota on the way from leaf to root that `requested`, as a non-preemptible request, would pass.
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
