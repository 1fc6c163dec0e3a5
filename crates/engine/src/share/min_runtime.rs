//! Minimum run time before a group can be evicted for others (KAI plugin `minruntime`).
//!
//! The duration comes from its queue, an ancestor or a default; for reclaim it depends on the lowest common ancestor of
//! both queues. A protected group at its minimum is never a victim; a larger one may lose the pods beyond its minimum.

use crate::ids::QueueIdx;
use kai_units::{Span, Timestamp};

/// Minimum run times by queue.
pub trait MinRuntimes {
    /// The parent; `None` for a top-level queue.
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx>;
    /// The queue's own `preemptMinRuntime`.
    fn before_preempt(&self, queue: QueueIdx) -> Option<Span>;
    /// The queue's own `reclaimMinRuntime`.
    fn before_reclaim(&self, queue: QueueIdx) -> Option<Span>;
}

/// Where the lookup of the minimum run time before reclaim starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimResolution {
    /// At the child of the lowest common ancestor, on the victim's side.
    #[default]
    LowestCommonAncestor,
    /// At the victim's queue.
    VictimQueue,
}

/// The minimum run time before preemption for groups of `victim`: the nearest value on the path to the root.
pub fn before_preempt<T: MinRuntimes + ?Sized>(tree: &T, victim: QueueIdx, default: Span) -> Span {
    path(tree, victim).find_map(|queue| tree.before_preempt(queue)).unwrap_or(default)
}

/// The minimum run time before reclaim for groups of `victim` when `reclaimer` reclaims.
pub fn before_reclaim<T: MinRuntimes + ?Sized>(
    tree: &T,
    resolution: ReclaimResolution,
    reclaimer: QueueIdx,
    victim: QueueIdx,
    default: Span,
) -> Span {
    let from = match resolution {
        ReclaimResolution::VictimQueue => victim,
        // In different trees the victim's side is its top-level queue, which has no parent.
        ReclaimResolution::LowestCommonAncestor => victim_side(tree, reclaimer, victim),
    };
    path(tree, from).find_map(|queue| tree.before_reclaim(queue)).unwrap_or(default)
}

/// Whether a group is protected; without a recorded start it never is.
pub fn is_protected(last_start: Option<Timestamp>, span: Span, now: Timestamp) -> bool {
    last_start.is_some_and(|start| start + span > now)
}

/// Whether a protected group would fall below the minimum of a pod set. Each pod set is given as (pods in use, victims
/// among them, minimum).
pub fn breaks_minimum(pod_sets: impl IntoIterator<Item = (u32, u32, u32)>) -> bool {
    pod_sets.into_iter().any(|(used, victims, minimum)| used.saturating_sub(victims) < minimum)
}

/// The highest ancestor of `victim`, or itself, that is no ancestor of `reclaimer`; `victim` where there is none.
fn victim_side<T: MinRuntimes + ?Sized>(tree: &T, reclaimer: QueueIdx, victim: QueueIdx) -> QueueIdx {
    path(tree, victim)
        .take_while(|&queue| path(tree, reclaimer).all(|other| other != queue))
        .last()
        .unwrap_or(victim)
}

fn path<T: MinRuntimes + ?Sized>(tree: &T, leaf: QueueIdx) -> impl Iterator<Item = QueueIdx> {
    std::iter::successors(Some(leaf), |&queue| tree.parent(queue))
}
