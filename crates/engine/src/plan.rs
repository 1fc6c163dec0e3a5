//! The transaction that a cycle works in.
//!
//! All hypothetical change goes through here and is written to a journal; going back to a mark costs what was touched
//! since. Node ledgers, queue ledgers, group counts, GPU groups, affinity counters and claims move together.
//! Invariant: after `rollback(mark)` the cluster equals what it was at `mark`, versions included.

use crate::cluster::node::NodeLedger;
use crate::cluster::pod::{Place, PodState, Status};
use crate::cluster::{Cluster, load_of, presence_of};
use crate::dra::{Fit, Undo};
use crate::ids::{GroupIdx, MemberIdx, NodeIdx, PodIdx, QueueIdx};
use crate::share::{Triple, sum};
use crate::terms::{Placed, Presence};
use smallvec::SmallVec;
use std::ops::Deref;

/// A transaction over a cluster.
pub struct Plan<'c> {
    cluster: &'c mut Cluster,
    journal: Vec<Edit>,
}

/// A point to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// What becomes of a pod's entry in the list of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Change,
    Keep,
}

/// What to do to undo one edit.
enum Edit {
    Pod { pod: PodIdx, old: PodState },
    Count { pod: PodIdx, group: GroupIdx, member: MemberIdx, from: Status, to: Status, stamp: u64 },
    Ledger { node: NodeIdx, old: Box<NodeLedger>, version: u64, epoch: u64 },
    Joined { node: NodeIdx },
    Left { node: NodeIdx, pod: PodIdx, at: usize },
    TermsPlaced { pod: PodIdx, node: NodeIdx, presence: Presence },
    TermsLifted { pod: PodIdx, node: NodeIdx, presence: Presence },
    Queue { queue: QueueIdx, amounts: Triple, np: bool, version: u64 },
    Device(Box<Undo>),
    VolumesPlaced { pod: PodIdx, node: NodeIdx, presence: Presence },
    VolumesLifted { pod: PodIdx, node: NodeIdx, presence: Presence },
}

impl Deref for Plan<'_> {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl<'c> Plan<'c> {
    /// Opens a transaction on a settled cluster.
    pub fn new(cluster: &'c mut Cluster) -> Self {
        Self { cluster, journal: Vec::new() }
    }

    /// The present point.
    pub fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    /// The cluster, for refreshing indices that are not part of its state.
    pub(crate) fn cluster_mut(&mut self) -> &mut Cluster {
        self.cluster
    }

    /// Gives a pod another state, and moves every ledger with it.
    pub fn set_state(&mut self, pod: PodIdx, new: PodState) {
        let old = self.cluster.pods[pod].state.clone();
        let (before, after) = (presences(&old), presences(&new));
        // A pod that only changes its status keeps its entry: finding it in a long list is what would cost.
        let listing = match (before.as_slice(), after.as_slice()) {
            ([(from, _)], [(to, _)]) if from.node == to.node => Listing::Keep,
            _ => Listing::Change,
        };
        for presence in before.iter().filter(|p| !after.contains(p)) {
            self.lift(pod, presence, listing);
        }
        for presence in after.iter().filter(|p| !before.contains(p)) {
            self.put(pod, presence, listing);
        }
        self.count(pod, old.status, new.status);
        if charged_at(&old) != charged_at(&new) {
            self.charge_queue(pod, &old, -1);
            self.charge_queue(pod, &new, 1);
        }
        self.cluster.pods[pod].state = new;
        self.journal.push(Edit::Pod { pod, old });
    }

    /// Gives a pod the devices that were found for it.
    pub fn reserve_devices(&mut self, pod: PodIdx, found: &Fit) {
        let uid = self.cluster.pods[pod].uid;
        let undo = self.cluster.devices.reserve(uid, found);
        self.journal.extend(undo.into_iter().map(|u| Edit::Device(Box::new(u))));
    }

    fn remember_ledger(&mut self, node: NodeIdx) {
        let version = self.cluster.fresh_version();
        let epoch = std::mem::replace(&mut self.cluster.epoch, version);
        let n = &mut self.cluster.nodes[node];
        let old = Box::new(n.ledger.clone());
        self.journal.push(Edit::Ledger { node, old, version: n.version, epoch });
        n.version = version;
        self.cluster.touch(node);
    }

    fn put(&mut self, pod: PodIdx, (place, status): &(Place, Status), listing: Listing) {
        let node = place.node;
        self.remember_ledger(node);
        let c = &mut *self.cluster;
        let n = &mut c.nodes[node];
        n.add(&load_of(&c.pods[pod], &c.shapes, &c.devices, &place.gpu_groups), *status);
        if let (Some(numa), Some(held), true) =
            (&mut n.ledger.numa, &place.numa, status.is_active_allocated())
        {
            numa.charge(held);
        }
        if listing == Listing::Change {
            n.pods.push(pod);
            self.journal.push(Edit::Joined { node });
        }
        let presence = presence_of(*status);
        self.place_terms(pod, node, presence);
        self.journal.push(Edit::TermsPlaced { pod, node, presence });
        if self.cluster.has_volumes(pod) {
            self.cluster.place_volumes(pod, node, presence);
            self.journal.push(Edit::VolumesPlaced { pod, node, presence });
        }
    }

    fn lift(&mut self, pod: PodIdx, (place, status): &(Place, Status), listing: Listing) {
        let node = place.node;
        self.remember_ledger(node);
        let c = &mut *self.cluster;
        let n = &mut c.nodes[node];
        n.remove(&load_of(&c.pods[pod], &c.shapes, &c.devices, &place.gpu_groups), *status);
        if let (Some(numa), Some(held), true) =
            (&mut n.ledger.numa, &place.numa, status.is_active_allocated())
        {
            numa.release(held);
        }
        if listing == Listing::Change {
            let at = n.pods.iter().rposition(|p| *p == pod).expect("a pod with a place is on its node");
            n.pods.swap_remove(at);
            self.journal.push(Edit::Left { node, pod, at });
        }
        let presence = presence_of(*status);
        self.lift_terms(pod, node, presence);
        self.journal.push(Edit::TermsLifted { pod, node, presence });
        if self.cluster.has_volumes(pod) {
            self.cluster.lift_volumes(pod, node, presence);
            self.journal.push(Edit::VolumesLifted { pod, node, presence });
        }
    }

    fn place_terms(&mut self, pod: PodIdx, node: NodeIdx, presence: Presence) {
        let c = &mut *self.cluster;
        let p = &c.pods[pod];
        let (terms, node_labels) = (&c.shapes[p.shape].terms, &*c.nodes[node].labels);
        c.terms.place(&Placed { label_set: p.label_set, terms, node, node_labels, presence });
    }

    fn lift_terms(&mut self, pod: PodIdx, node: NodeIdx, presence: Presence) {
        let c = &mut *self.cluster;
        let p = &c.pods[pod];
        let (terms, node_labels) = (&c.shapes[p.shape].terms, &*c.nodes[node].labels);
        c.terms.unplace(&Placed { label_set: p.label_set, terms, node, node_labels, presence });
    }

    fn count(&mut self, pod: PodIdx, from: Status, to: Status) {
        if from == to {
            return;
        }
        let p = &self.cluster.pods[pod];
        let (Some(group), Some(member)) = (p.group, p.member) else { return };
        let stamp = self.cluster.fresh_version();
        let old_stamp = self.recount(pod, group, member, from, to, stamp);
        self.journal.push(Edit::Count { pod, group, member, from, to, stamp: old_stamp });
    }

    /// Moves a pod between two counters; gives back the group's former stamp.
    fn recount(
        &mut self,
        pod: PodIdx,
        group: GroupIdx,
        member: MemberIdx,
        from: Status,
        to: Status,
        stamp: u64,
    ) -> u64 {
        let position = self.cluster.pods[pod].position;
        let g = &mut self.cluster.groups[group];
        let set = g.members[member].pod_set_mut().expect("a pod's member is a pod set");
        set.counts[from as usize] -= 1;
        set.counts[to as usize] += 1;
        if to == Status::Pending {
            set.first_pending = set.first_pending.min(position);
        } else if from == Status::Pending && set.first_pending == position {
            set.first_pending += 1;
        }
        std::mem::replace(&mut g.stamp, stamp)
    }

    fn charge_queue(&mut self, pod: PodIdx, state: &PodState, sign: i64) {
        let (true, Some(place)) = (state.status.is_active_allocated(), &state.place) else { return };
        let p = &self.cluster.pods[pod];
        let (Some(group), true) = (p.group, p.member.is_some()) else { return };
        let g = &self.cluster.groups[group];
        let (np, mut at) = (!g.preemptible, g.queue);
        let amounts = self.cluster.accepted(pod, place).map(|a| a * sign);
        while let Some(queue) = at {
            let version = self.cluster.fresh_version();
            let old = self.add_to_queue(queue, &amounts, np, version);
            self.journal.push(Edit::Queue { queue, amounts, np, version: old });
            at = self.cluster.queues[queue].parent;
        }
    }

    /// Adds to a queue's ledger; gives back its former version.
    fn add_to_queue(&mut self, queue: QueueIdx, amounts: &Triple, np: bool, version: u64) -> u64 {
        let q = &mut self.cluster.queues[queue];
        q.ledger.allocated = sum(&q.ledger.allocated, amounts);
        if np {
            q.ledger.allocated_np = sum(&q.ledger.allocated_np, amounts);
        }
        std::mem::replace(&mut q.version, version)
    }

    /// Undoes every edit made since `mark`, newest first.
    pub fn rollback(&mut self, mark: Mark) {
        assert!(mark.0 <= self.journal.len(), "mark is from a later state");
        while mark.0 < self.journal.len() {
            let edit = self.journal.pop().expect("length was checked");
            self.undo(edit);
        }
    }

    fn undo(&mut self, edit: Edit) {
        match edit {
            Edit::Pod { pod, old } => self.cluster.pods[pod].state = old,
            Edit::Count { pod, group, member, from, to, stamp } => {
                self.recount(pod, group, member, to, from, stamp);
            }
            Edit::Ledger { node, old, version, epoch } => {
                self.cluster.epoch = epoch;
                let n = &mut self.cluster.nodes[node];
                n.ledger = *old;
                n.version = version;
                self.cluster.touch(node);
            }
            Edit::Joined { node } => {
                self.cluster.nodes[node].pods.pop();
            }
            Edit::Left { node, pod, at } => {
                let pods = &mut self.cluster.nodes[node].pods;
                pods.push(pod);
                let last = pods.len() - 1;
                pods.swap(at, last);
            }
            Edit::TermsPlaced { pod, node, presence } => self.lift_terms(pod, node, presence),
            Edit::TermsLifted { pod, node, presence } => self.place_terms(pod, node, presence),
            Edit::Queue { queue, amounts, np, version } => {
                self.add_to_queue(queue, &amounts.map(|a| -a), np, version);
            }
            Edit::Device(undo) => self.cluster.devices.undo(*undo),
            Edit::VolumesPlaced { pod, node, presence } => self.cluster.lift_volumes(pod, node, presence),
            Edit::VolumesLifted { pod, node, presence } => self.cluster.place_volumes(pod, node, presence),
        }
    }
}

/// The node for which a pod in a state is charged to its queue.
fn charged_at(state: &PodState) -> Option<NodeIdx> {
    state.node().filter(|_| state.status.is_active_allocated())
}

/// Where a pod in a state takes room, and as what. Being allocated, binding, bound or running is all one to a node.
fn presences(state: &PodState) -> SmallVec<[(Place, Status); 2]> {
    let status = if state.status.is_allocated() { Status::Running } else { state.status };
    let mut list = SmallVec::new();
    if let Some(place) = state.place.as_ref().filter(|_| status.holds_node()) {
        list.push((place.clone(), status));
    }
    if let Some(place) = &state.leaving {
        list.push((place.clone(), Status::Releasing));
    }
    list
}
