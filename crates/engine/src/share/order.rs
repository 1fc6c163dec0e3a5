//! The queue order of the proportion plugin: compares sibling queues.
//!
//! The first difference decides. Shares are compared as exact fractions. The comparison of allocatable shares is a
//! partial order, so that the whole comparison is not transitive: callers use a heap and do not sort.

use super::{Bounds, Ledger, QueueAmounts, RESOURCES, difference, sum};
use crate::input::WHOLE_GPU;
use crate::resource::PerResource;
use kai_units::Timestamp;
use std::cmp::Ordering;

/// A queue with its next group.
#[derive(Clone, Copy, Debug)]
pub struct QueueOrderKey<'a> {
    /// The ledger of the queue.
    pub ledger: &'a Ledger,
    /// Request of the next group of its subtree; zero when victims are ordered.
    pub request: QueueAmounts,
    /// Allocation of the victims selected so far and next.
    pub victims: QueueAmounts,
    /// Decides when everything else is equal.
    pub tie_break: TieBreak,
}

/// Order of equal queues: older first, then preferred ones, then by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TieBreak {
    /// Creation time.
    pub created: Timestamp,
    /// False for a queue that comes first among queues of the same creation time.
    pub is_not_preferred: bool,
    /// Position among all queues by (creation, name).
    pub rank: u32,
}

impl TieBreak {
    /// A tie break by rank alone.
    pub fn by_rank(ledger: &Ledger) -> Self {
        Self { created: Timestamp(0), is_not_preferred: true, rank: ledger.rank }
    }
}

/// Compares two sibling queues; [`Ordering::Less`] means that `left` comes first.
///
/// `total` is the whole cluster and replaces an unlimited share. Only a queue compared with itself is equal.
pub fn compare(left: &QueueOrderKey<'_>, right: &QueueOrderKey<'_>, total: &QueueAmounts) -> Ordering {
    let (l, r) = (left.ledger, right.ledger);
    let after = [sum(&l.allocated, &left.request), sum(&r.allocated, &right.request)];
    let shares = [l.allocatable_share(), r.allocatable_share()];
    l.over_utilised()
        .cmp(&r.over_utilised())
        .then_with(|| r.within_quota(&right.request).cmp(&l.within_quota(&left.request)))
        .then_with(|| r.priority.cmp(&l.priority))
        .then_with(|| {
            uses_without_share(&after[0], &shares[0]).cmp(&uses_without_share(&after[1], &shares[1]))
        })
        .then_with(|| {
            let left = dominant_share(&difference(&after[0], &left.victims), &shares[0], total);
            left.cmp(&dominant_share(&difference(&after[1], &right.victims), &shares[1], total))
        })
        .then_with(|| {
            let left = dominant_share(&l.allocated, &shares[0], total);
            left.cmp(&dominant_share(&r.allocated, &shares[1], total))
        })
        .then_with(|| compare_bounds(&shares[0], &shares[1]))
        .then_with(|| left.tie_break.cmp(&right.tie_break))
}

/// Whether the queue uses a resource of which it has no share.
#[inline]
fn uses_without_share(amounts: &QueueAmounts, shares: &Bounds) -> bool {
    RESOURCES.into_iter().any(|r| shares[r] == Some(0) && amounts[r] > 0)
}

/// A fraction with a positive denominator.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    part: i128,
    whole: i128,
}

impl Fraction {
    const ZERO: Self = Self { part: 0, whole: 1 };

    /// The value as a floating-point number.
    pub fn value(self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}

impl Ord for Fraction {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.part * other.whole).cmp(&(other.part * self.whole))
    }
}
impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Fraction {}

/// Factor for amounts of a resource of which the queue has no share (as in KAI).
const WITHOUT_SHARE: i128 = 1000;
/// Base units per unit of a resource without a share.
const COUNTED_IN: PerResource<i128> = [1, 1, WHOLE_GPU as i128];

/// The largest ratio of amount to share over all resources.
#[inline]
pub fn dominant_share(amounts: &QueueAmounts, shares: &Bounds, total: &QueueAmounts) -> Fraction {
    let mut dominant = Fraction::ZERO;
    for r in RESOURCES {
        let part = i128::from(amounts[r]);
        let share = match shares[r].unwrap_or(total[r]) {
            share if share > 0 => Fraction { part, whole: i128::from(share) },
            _ => Fraction { part: part * WITHOUT_SHARE, whole: COUNTED_IN[r] },
        };
        dominant = dominant.max(share);
    }
    dominant
}

/// A bound is smaller if it is nowhere larger and somewhere smaller; otherwise both are equal.
#[inline]
fn compare_bounds(left: &Bounds, right: &Bounds) -> Ordering {
    let mut found = Ordering::Equal;
    for r in RESOURCES {
        let here = left[r].unwrap_or(i64::MAX).cmp(&right[r].unwrap_or(i64::MAX));
        if here != Ordering::Equal {
            if found != Ordering::Equal && found != here {
                return Ordering::Equal;
            }
            found = here;
        }
    }
    found
}
