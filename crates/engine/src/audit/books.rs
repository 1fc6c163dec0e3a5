//! What queues hold, counted again from the pods and kept up as one decision follows the other.

use crate::cluster::Cluster;
use crate::cluster::pod::{Place, Status};
use crate::ids::{IndexVec, NodeIdx, PodIdx, QueueIdx};
use crate::outcome::Outcome;
use crate::share::{Bounds, QueueAmounts, RESOURCES, sum};

/// The books of all queues at one point of an outcome.
#[derive(Clone)]
pub(super) struct Books {
    /// What each queue holds.
    pub(super) held: IndexVec<QueueIdx, QueueAmounts>,
    /// What its groups hold that cannot be evicted.
    pub(super) fixed: IndexVec<QueueIdx, QueueAmounts>,
    /// What it may expect, as the outcome reports it.
    pub(super) share: IndexVec<QueueIdx, QueueAmounts>,
}

impl Books {
    /// The books when the cycle began.
    pub(super) fn new(before: &Cluster, outcome: &Outcome) -> Self {
        let none: IndexVec<QueueIdx, QueueAmounts> = IndexVec::filled([0; 3], before.queues.len());
        let mut books = Self { held: none.clone(), fixed: none.clone(), share: none };
        for report in &outcome.queues {
            if let Some(queue) = before.queue(&report.name) {
                books.share[queue] = report.fair_share;
            }
        }
        for (index, pod) in before.present_pods() {
            // A pod that leaves has given its share back, one that waits has none yet.
            let counts = pod.state.status.is_allocated() && pod.state.status != Status::Pipelined;
            if let Some(place) = pod.state.place.as_ref().filter(|_| counts) {
                books.charge(before, index, place.node, 1);
            }
        }
        books
    }

    /// Adds what a pod holds at a node, or takes it away.
    pub(super) fn charge(&mut self, before: &Cluster, pod: PodIdx, node: NodeIdx, sign: i64) {
        let p = &before.pods[pod];
        let Some(group) = p.group.map(|g| &before.groups[g]).filter(|g| g.present && p.member.is_some())
        else {
            return;
        };
        let cost = before.accepted(pod, &Place::on(node)).map(|amount| sign * amount);
        for queue in group.queue.into_iter().flat_map(|leaf| path(before, leaf)) {
            self.held[queue] = sum(&self.held[queue], &cost);
            if !group.preemptible {
                self.fixed[queue] = sum(&self.fixed[queue], &cost);
            }
        }
    }

    /// What a queue may hold before others may take from it.
    pub(super) fn entitled(&self, before: &Cluster, queue: QueueIdx) -> Bounds {
        let ledger = &before.queues[queue].ledger;
        [0, 1, 2].map(|r| match (ledger.quota[r], ledger.limit[r]) {
            (None, limit) => limit,
            (Some(quota), limit) => {
                let share = quota.max(self.share[queue][r]);
                Some(limit.map_or(share, |limit| share.min(limit)))
            }
        })
    }
}

/// A queue and those above it, the queue first.
pub(super) fn path(before: &Cluster, leaf: QueueIdx) -> impl Iterator<Item = QueueIdx> {
    std::iter::successors(Some(leaf), |queue| before.queues[*queue].parent)
}

/// The child, on the way down to a leaf, of the lowest queue that is above both leaves.
pub(super) fn side(before: &Cluster, leaf: QueueIdx, other: QueueIdx) -> QueueIdx {
    let others: Vec<QueueIdx> = path(before, other).collect();
    path(before, leaf).take_while(|queue| !others.contains(queue)).last().unwrap_or(leaf)
}

/// Whether every amount is within its bound.
pub(super) fn within(amounts: &QueueAmounts, bounds: &Bounds) -> bool {
    RESOURCES.into_iter().all(|r| bounds[r].is_none_or(|bound| amounts[r] <= bound))
}
