//! How long a group may run before it can be evicted for others.
//!
//! The span comes from its queue, an ancestor or a default; for reclaim it depends on where the two queues part.
//! Protected groups that are no larger than their minimum are never victims; larger ones may lose what is beyond it.

use crate::ids::QueueIdx;
use kai_units::{Span, Timestamp};

/// The minimum run times of the queues.
pub trait MinRuntimes {
    /// The parent, or none for a top-level queue.
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx>;
    /// The queue's own span before preemption.
    fn before_preempt(&self, queue: QueueIdx) -> Option<Span>;
    /// The queue's own span before reclaim.
    fn before_reclaim(&self, queue: QueueIdx) -> Option<Span>;
}

/// From which queue on the span before reclaim is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimResolution {
    /// From where the ways of both queues from the root part.
    #[default]
    LowestCommonAncestor,
    /// From the victim's own queue.
    VictimQueue,
}

/// The span that protects groups of `victim`'s queue from preemption: the nearest one set on the way to the root.
pub fn before_preempt<T: MinRuntimes + ?Sized>(tree: &T, victim: QueueIdx, default: Span) -> Span {
    path(tree, victim).find_map(|queue| tree.before_preempt(queue)).unwrap_or(default)
}

/// The span that protects groups of `victim`'s queue from reclaim by `reclaimer`'s queue.
pub fn before_reclaim<T: MinRuntimes + ?Sized>(
    tree: &T,
    resolution: ReclaimResolution,
    reclaimer: QueueIdx,
    victim: QueueIdx,
    default: Span,
) -> Span {
    let from = match resolution {
        ReclaimResolution::VictimQueue => victim,
        // In different trees the victim's side is its top-level queue, which has nothing above it.
        ReclaimResolution::LowestCommonAncestor => victim_side(tree, reclaimer, victim),
    };
    path(tree, from).find_map(|queue| tree.before_reclaim(queue)).unwrap_or(default)
}

/// Whether a group is still protected; one without a recorded start never is.
pub fn is_protected(last_start: Option<Timestamp>, span: Span, now: Timestamp) -> bool {
    last_start.is_some_and(|start| start + span > now)
}

/// Whether a protected group would fall below the minimum of a pod set, given per pod set
/// (pods in use, victims among them, minimum).
pub fn breaks_minimum(pod_sets: impl IntoIterator<Item = (u32, u32, u32)>) -> bool {
    pod_sets.into_iter().any(|(used, victims, minimum)| used.saturating_sub(victims) < minimum)
}

/// The highest ancestor of `victim` (or itself) that is not above `reclaimer` as well; the queue itself where it is.
fn victim_side<T: MinRuntimes + ?Sized>(tree: &T, reclaimer: QueueIdx, victim: QueueIdx) -> QueueIdx {
    path(tree, victim)
        .take_while(|&queue| path(tree, reclaimer).all(|other| other != queue))
        .last()
        .unwrap_or(victim)
}

fn path<T: MinRuntimes + ?Sized>(tree: &T, leaf: QueueIdx) -> impl Iterator<Item = QueueIdx> {
    std::iter::successors(Some(leaf), |&queue| tree.parent(queue))
}
