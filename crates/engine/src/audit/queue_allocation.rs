//! Allocation of queues, computed from the pods and updated with every decision.

use crate::cluster::Cluster;
use crate::cluster::pod::{Place, Status};
use crate::ids::{IndexVec, NodeIdx, PodIdx, QueueIdx};
use crate::outcome::Outcome;
use crate::share::{Bounds, QueueAmounts, RESOURCES, sum};

/// Allocation of all queues at one point of an outcome.
#[derive(Clone)]
pub(super) struct QueueAllocation {
    pub(super) held: IndexVec<QueueIdx, QueueAmounts>,
    /// Allocation of non-preemptible groups.
    pub(super) non_preemptible: IndexVec<QueueIdx, QueueAmounts>,
    /// Fair share as reported by the outcome.
    pub(super) share: IndexVec<QueueIdx, QueueAmounts>,
}

impl QueueAllocation {
    /// The allocation at the start of the cycle.
    pub(super) fn new(before: &Cluster, outcome: &Outcome) -> Self {
        let none: IndexVec<QueueIdx, QueueAmounts> = IndexVec::filled([0; 3], before.queues.len());
        let mut allocation = Self { held: none.clone(), non_preemptible: none.clone(), share: none };
        for report in &outcome.queues {
            if let Some(queue) = before.queue(&report.name) {
                allocation.share[queue] = report.fair_share;
            }
        }
        for (index, pod) in before.present_pods() {
            // A releasing pod no longer counts violations its queue, a pipelined one not yet.
            let counts = pod.state.status.is_allocated() && pod.state.status != Status::Pipelined;
            if let Some(place) = pod.state.place.as_ref().filter(|_| counts) {
                allocation.charge(before, index, place.node, 1);
            }
        }
        allocation
    }

    /// Adds or subtracts the allocation of a pod on a node.
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
                self.non_preemptible[queue] = sum(&self.non_preemptible[queue], &cost);
            }
        }
    }

    /// The allocatable share of a queue.
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

/// A queue and its ancestors, the queue first.
pub(super) fn path(before: &Cluster, leaf: QueueIdx) -> impl Iterator<Item = QueueIdx> {
    std::iter::successors(Some(leaf), |queue| before.queues[*queue].parent)
}

/// The child of the lowest common ancestor on the path to a leaf queue.
pub(super) fn branch(before: &Cluster, leaf: QueueIdx, other: QueueIdx) -> QueueIdx {
    let others: Vec<QueueIdx> = path(before, other).collect();
    path(before, leaf).take_while(|queue| !others.contains(queue)).last().unwrap_or(leaf)
}

pub(super) fn within(amounts: &QueueAmounts, bounds: &Bounds) -> bool {
    RESOURCES.into_iter().all(|r| bounds[r].is_none_or(|bound| amounts[r] <= bound))
}
