//! Queue arithmetic: fair share, queue order, capacity checks and reclaim rules.
//!
//! Every function is pure over [`Ledger`]s, one per queue, and a [`QueueTree`] with the parent of each queue.
//! Amounts are integers: CPU in millicores, memory in bytes, GPU in millionths of a device; `None` is unlimited.
//! Floating point is used only for weights and usage ([`division`]) and for a saturation multiplier other than 1
//! ([`reclaim`]).
//! Not here: updates of ledgers when pods change (see the cluster) and messages (see `explain`).

pub mod capacity_policy;
pub mod division;
pub mod min_runtime;
pub mod order;
pub mod reclaim;

use crate::ids::QueueIdx;
use crate::input::{QueueInput, WHOLE_GPU};
use crate::resource::{PerResource, QueueResource};

/// One amount per queue resource.
pub type QueueAmounts = PerResource<i64>;
/// One bound per queue resource; `None` is unlimited.
pub type Bounds = PerResource<Option<i64>>;

/// The queue resources in declaration order.
pub const RESOURCES: PerResource<QueueResource> =
    [QueueResource::Cpu, QueueResource::Memory, QueueResource::Gpu];

/// The unit in which the surplus of each resource is divided: a millicore, a byte, a whole GPU.
pub const UNITS: QueueAmounts = [1, 1, WHOLE_GPU];

/// Whether a group may be evicted for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preemptibility {
    /// It may be evicted, and may use more than its queue's quota.
    Preemptible,
    /// It may not be evicted, and must stay within the quota of its queue and all ancestors.
    NonPreemptible,
}

/// Entitlements, request and allocation of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Guaranteed amounts (KAI: deserved quota).
    pub quota: Bounds,
    /// Maximum amounts (KAI: max allowed).
    pub limit: Bounds,
    /// Over-quota weights.
    pub weight: PerResource<f64>,
    /// Historical usage, each as a fraction of the cluster.
    pub usage: PerResource<f64>,
    /// A higher priority comes first.
    pub priority: i32,
    /// Position among all queues by (creation, name): breaks ties.
    pub rank: u32,
    /// Allocation of its groups.
    pub allocated: QueueAmounts,
    /// Allocation of its non-preemptible groups.
    pub allocated_np: QueueAmounts,
    /// Allocation and pending requests of its groups.
    pub request: QueueAmounts,
    /// Fair share; set by [`division`].
    pub fair_share: QueueAmounts,
}

impl Ledger {
    /// Creates an empty ledger with a queue's entitlements.
    pub fn new(queue: &QueueInput, rank: u32) -> Self {
        let shares = [queue.cpu, queue.memory, queue.gpu];
        Self {
            quota: shares.map(|s| s.quota),
            limit: shares.map(|s| s.limit),
            weight: shares.map(|s| s.weight),
            usage: queue.usage,
            priority: queue.priority,
            rank,
            ..Self::default()
        }
    }

    /// The request for a resource, capped at the limit.
    #[inline]
    pub fn requestable(&self, resource: QueueResource) -> i64 {
        self.limit[resource].map_or(self.request[resource], |limit| limit.min(self.request[resource]))
    }

    /// The amount of a resource above which the queue can be reclaimed from.
    ///
    /// With an unlimited quota it is the limit; otherwise the larger of quota and fair share, capped at the limit.
    #[inline]
    pub fn allocatable(&self, resource: QueueResource) -> Option<i64> {
        let limit = self.limit[resource];
        let Some(quota) = self.quota[resource] else {
            return limit;
        };
        let share = quota.max(self.fair_share[resource]);
        Some(limit.map_or(share, |limit| limit.min(share)))
    }

    /// [`Self::allocatable`] of all resources.
    #[inline]
    pub fn allocatable_share(&self) -> Bounds {
        use QueueResource::{Cpu, Gpu, Memory};
        [self.allocatable(Cpu), self.allocatable(Memory), self.allocatable(Gpu)]
    }

    /// Whether the queue holds more than its fair share of every resource.
    #[inline]
    pub fn over_utilised(&self) -> bool {
        RESOURCES.into_iter().all(|r| self.fair_share[r] < self.allocated[r])
    }

    /// Whether the allocation and `more` stay within the quota of every resource.
    #[inline]
    pub fn within_quota(&self, more: &QueueAmounts) -> bool {
        fits(&sum(&self.allocated, more), &self.quota)
    }

    /// Whether the non-preemptible allocation and `more` stay within the quota of every resource.
    #[inline]
    pub fn np_within_quota(&self, more: &QueueAmounts) -> bool {
        fits(&sum(&self.allocated_np, more), &self.quota)
    }
}

/// The queue tree.
pub trait QueueTree {
    /// The parent; `None` for a top-level queue.
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx>;
    /// The ledger of a queue.
    fn ledger(&self, queue: QueueIdx) -> &Ledger;
}

/// A queue tree with mutable ledgers.
pub trait QueueTreeMut: QueueTree {
    /// The mutable ledger of a queue.
    fn ledger_mut(&mut self, queue: QueueIdx) -> &mut Ledger;
}

/// A queue and its ancestors, leaf first.
pub fn root_path<T: QueueTree + ?Sized>(tree: &T, leaf: QueueIdx) -> impl Iterator<Item = QueueIdx> + Clone {
    std::iter::successors(Some(leaf), |&queue| tree.parent(queue))
}

/// The ledgers of a queue and its ancestors, leaf first.
pub fn root_ledgers<T: QueueTree + ?Sized>(
    tree: &T,
    leaf: QueueIdx,
) -> impl Iterator<Item = &Ledger> + Clone {
    root_path(tree, leaf).map(|queue| tree.ledger(queue))
}

/// The children of the lowest common ancestor on the paths to two queues (KAI: leveled queues).
///
/// Where one queue is an ancestor of the other, or both are the same, it is that queue twice.
pub fn levelled_pair<T: QueueTree + ?Sized>(tree: &T, a: QueueIdx, b: QueueIdx) -> (QueueIdx, QueueIdx) {
    let depth = |queue| root_path(tree, queue).count();
    let raise = |queue, levels: usize| root_path(tree, queue).nth(levels).expect("levels is below the depth");
    let (depth_a, depth_b) = (depth(a), depth(b));
    let mut a = raise(a, depth_a.saturating_sub(depth_b));
    let mut b = raise(b, depth_b.saturating_sub(depth_a));
    while a != b {
        match (tree.parent(a), tree.parent(b)) {
            (Some(up_a), Some(up_b)) if up_a != up_b => (a, b) = (up_a, up_b),
            _ => break,
        }
    }
    (a, b)
}

/// Element-wise sum.
#[inline]
pub fn sum(a: &QueueAmounts, b: &QueueAmounts) -> QueueAmounts {
    use QueueResource::{Cpu, Gpu, Memory};
    [a[Cpu] + b[Cpu], a[Memory] + b[Memory], a[Gpu] + b[Gpu]]
}

/// Element-wise difference.
#[inline]
pub fn difference(a: &QueueAmounts, b: &QueueAmounts) -> QueueAmounts {
    use QueueResource::{Cpu, Gpu, Memory};
    [a[Cpu] - b[Cpu], a[Memory] - b[Memory], a[Gpu] - b[Gpu]]
}

/// Whether every amount is within its bound.
#[inline]
pub fn fits(amounts: &QueueAmounts, bounds: &Bounds) -> bool {
    amounts.iter().zip(bounds).all(|(&amount, bound)| bound.is_none_or(|bound| amount <= bound))
}

/// Whether some amount exceeds its bound.
#[inline]
pub fn exceeds_somewhere(amounts: &QueueAmounts, bounds: &Bounds) -> bool {
    !fits(amounts, bounds)
}

#[cfg(test)]
mod tests;
