//! The transaction in which a cycle edits the cluster.
//!
//! Every hypothetical change is an edit in a journal; a rollback to a mark costs as much as the edits since. Node
//! ledgers, queue ledgers, group counts, GPU groups, affinity counters and claims change together.
//! Invariant: after `rollback(mark)` the cluster equals its state at `mark`, versions included.

use crate::cluster::node::NodeLedger;
use crate::cluster::pod::{Place, PodState, Status};
use crate::cluster::{Cluster, LedgerLog, load_at, presence_of};
use crate::dra::{Fit, Undo};
use crate::ids::{GroupIdx, MemberIdx, NodeIdx, PodIdx, QueueIdx};
use crate::input::Utility;
use crate::plugin::{Allocation, AllocationHandler};
use crate::share::{QueueAmounts, difference, sum};
use crate::state::{ClusterState, Memo};
use crate::terms::{Placed, Presence};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// A transaction over a cluster.
pub struct Plan<'c> {
    state: &'c mut ClusterState,
    journal: Vec<Edit>,
    /// Edits before this position are undone only together with all others.
    sealed: usize,
    /// Edits folded out of the sealed part.
    fold: Fold,
    /// Pod edits and node evaluations so far.
    work: u64,
    /// Plugins that observe allocations; none unless [`Plan::observe`] was called.
    handlers: Vec<Arc<dyn AllocationHandler>>,
}

/// The net effect of sealed edits.
#[derive(Default)]
struct Fold {
    /// Nodes whose initial ledger is in the sealed part.
    nodes: FxHashSet<NodeIdx>,
    /// Pods whose initial state is in the sealed part.
    pods: FxHashSet<PodIdx>,
    /// Amounts added to queue ledgers, and the initial version of each.
    queues: BTreeMap<QueueIdx, QueueFold>,
}

struct QueueFold {
    allocated: QueueAmounts,
    allocated_np: QueueAmounts,
    version: u64,
}

impl Fold {
    /// Folds an edit; false when the journal must keep it.
    fn absorb(&mut self, edit: &Edit) -> bool {
        match edit {
            Edit::Ledger { node, .. } => !self.nodes.insert(*node),
            Edit::Pod { pod, .. } => !self.pods.insert(*pod),
            Edit::Queue { queue, amounts, np, version } => {
                let first = QueueFold { allocated: [0; 3], allocated_np: [0; 3], version: *version };
                let fold = self.queues.entry(*queue).or_insert(first);
                fold.allocated = sum(&fold.allocated, amounts);
                if *np {
                    fold.allocated_np = sum(&fold.allocated_np, amounts);
                }
                true
            }
            Edit::Count { .. }
            | Edit::Joined { .. }
            | Edit::Left { .. }
            | Edit::TermsPlaced { .. }
            | Edit::TermsUnplaced { .. }
            | Edit::Device(_)
            | Edit::VolumesPlaced { .. }
            | Edit::VolumesUnplaced { .. } => false,
        }
    }
}

/// A position in the journal to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// Whether an edit changes the pod list of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Change,
    Keep,
}

/// The data that undoes one edit.
enum Edit {
    /// Boxed to keep the enum small.
    Pod {
        pod: PodIdx,
        old: Box<PodState>,
    },
    Count {
        pod: PodIdx,
        group: GroupIdx,
        member: MemberIdx,
        from: Status,
        to: Status,
        stamp: u64,
    },
    Ledger {
        node: NodeIdx,
        old: Box<NodeLedger>,
        version: u64,
        epoch: u64,
    },
    Joined {
        node: NodeIdx,
    },
    Left {
        node: NodeIdx,
        pod: PodIdx,
        at: usize,
    },
    TermsPlaced {
        pod: PodIdx,
        node: NodeIdx,
        presence: Presence,
    },
    TermsUnplaced {
        pod: PodIdx,
        node: NodeIdx,
        presence: Presence,
    },
    Queue {
        queue: QueueIdx,
        amounts: QueueAmounts,
        np: bool,
        version: u64,
    },
    Device(Box<Undo>),
    VolumesPlaced {
        pod: PodIdx,
        node: NodeIdx,
        presence: Presence,
    },
    VolumesUnplaced {
        pod: PodIdx,
        node: NodeIdx,
        presence: Presence,
    },
}

impl Deref for Plan<'_> {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.state.cluster
    }
}

impl<'c> Plan<'c> {
    /// Opens a transaction on a refreshed cluster.
    pub fn new(state: &'c mut ClusterState) -> Self {
        Self { state, journal: Vec::new(), sealed: 0, fold: Fold::default(), work: 0, handlers: Vec::new() }
    }

    /// The current position.
    pub fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    /// Seals the edits so far: later rollbacks go to the beginning or to a later mark. Of each node and pod only the
    /// initial state is kept, and of each queue the sum, so that the journal of a long cycle stays small.
    pub fn seal(&mut self) {
        let mut kept = self.sealed;
        for at in self.sealed..self.journal.len() {
            if !self.fold.absorb(&self.journal[at]) {
                self.journal.swap(kept, at);
                kept += 1;
            }
        }
        self.journal.truncate(kept);
        self.sealed = self.journal.len();
    }

    /// The cluster, for changes that need no undo (interning names).
    pub(crate) fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.state.cluster
    }

    /// Log of nodes whose ledger changed.
    pub(crate) fn ledger_log(&self) -> &LedgerLog {
        &self.state.changes.ledger_log
    }

    /// Groups whose pods have changed their state in this transaction, sorted by index.
    pub(crate) fn changed_groups(&self) -> Vec<GroupIdx> {
        let counted = self.journal.iter().filter_map(|edit| match edit {
            Edit::Count { group, .. } => Some(*group),
            Edit::Pod { .. }
            | Edit::Ledger { .. }
            | Edit::Joined { .. }
            | Edit::Left { .. }
            | Edit::TermsPlaced { .. }
            | Edit::TermsUnplaced { .. }
            | Edit::Queue { .. }
            | Edit::Device(_)
            | Edit::VolumesPlaced { .. }
            | Edit::VolumesUnplaced { .. } => None,
        });
        let mut groups: Vec<GroupIdx> = counted.collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Results of earlier searches.
    pub(crate) fn memo(&self) -> &Memo {
        &self.state.memo
    }

    /// Results of earlier searches, to be extended.
    pub(crate) fn memo_mut(&mut self) -> &mut Memo {
        &mut self.state.memo
    }

    /// Marks derived values for a rebuild before the next cycle: a panic interrupted an edit.
    pub(crate) fn invalidate(&mut self) {
        self.state.invalidate();
    }

    /// Sets a pod's state and updates every ledger.
    pub fn set_state(&mut self, pod: PodIdx, new: PodState) {
        self.work += 1;
        let old = self.state.cluster.pods[pod].state.clone();
        let (before, after) = (presences(&old), presences(&new));
        // A pod that only changes its status keeps its list entry: searching a long list is expensive.
        let listing = match (before.as_slice(), after.as_slice()) {
            ([(from, _)], [(to, _)]) if from.node == to.node => Listing::Keep,
            _ => Listing::Change,
        };
        for presence in before.iter().filter(|p| !after.contains(p)) {
            self.remove_presence(pod, presence, listing);
        }
        for presence in after.iter().filter(|p| !before.contains(p)) {
            self.add_presence(pod, presence, listing);
        }
        self.count(pod, old.status, new.status);
        let (left, taken) = (charged_at(&old), charged_at(&new));
        if left != taken {
            self.charge_queue(pod, &old, -1);
            self.charge_queue(pod, &new, 1);
        }
        self.state.cluster.pods[pod].state = new;
        self.journal.push(Edit::Pod { pod, old: Box::new(old) });
        if left != taken && !self.handlers.is_empty() {
            self.notify(pod, left, taken);
        }
    }

    /// Reports allocations to these handlers from now on.
    pub(crate) fn observe(&mut self, handlers: &[Arc<dyn AllocationHandler>]) {
        self.handlers = handlers.to_vec();
    }

    fn notify(&self, pod: PodIdx, left: Option<NodeIdx>, taken: Option<NodeIdx>) {
        for handler in &self.handlers {
            if let Some(node) = left {
                handler.deallocated(self, Allocation { pod, node });
            }
            if let Some(node) = taken {
                handler.allocated(self, Allocation { pod, node });
            }
        }
    }

    /// Reserves devices for a pod.
    pub fn reserve_devices(&mut self, pod: PodIdx, found: &Fit) {
        let uid = self.state.cluster.pods[pod].uid;
        let undo = self.state.cluster.devices.reserve(uid, found);
        self.journal.extend(undo.into_iter().map(|u| Edit::Device(Box::new(u))));
    }

    /// Evicts a pod and releases its devices. A moved pod loses its pipelined place; a pod placed in this cycle
    /// becomes pending again.
    pub fn evict(&mut self, pod: PodIdx) {
        let mut state = self.state.cluster.pods[pod].state.clone();
        if self.state.cluster.is_placed_this_cycle(pod) {
            self.set_state(pod, PodState::unplaced(Status::Pending));
            self.release_devices(pod);
            return;
        }
        if let Some(left) = state.releasing.take() {
            let place = Some(left);
            self.set_state(
                pod,
                PodState { status: Status::Releasing, place, releasing: None, is_virtual: true },
            );
            self.release_devices(pod);
            return;
        }
        let has_devices =
            self.state.cluster.pods[pod].has_claims() || self.state.cluster.requests_devices(pod);
        if let (true, Some(place)) = (has_devices, &mut state.place) {
            place.devices = self.state.cluster.held_devices(pod);
        }
        self.set_state(pod, PodState { status: Status::Releasing, is_virtual: true, ..state });
        self.release_devices(pod);
    }

    fn release_devices(&mut self, pod: PodIdx) {
        let undo = self.state.cluster.devices.release(self.state.cluster.pods[pod].uid);
        self.journal.extend(undo.into_iter().map(|u| Edit::Device(Box::new(u))));
    }

    /// Number of edits so far, undone ones included: the unit of search budgets.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Counts work that leaves no edit.
    pub(crate) fn add_work(&mut self, steps: usize) {
        self.work += steps as u64;
    }

    /// Rebuilds a node's ledger from the pods on it. The accounting of shared GPUs depends on the order of edits;
    /// this is the order of a refresh, pipelined pods last.
    pub(crate) fn renew_ledger(&mut self, node: NodeIdx) {
        self.record_ledger(node);
        let c = &mut self.state.cluster;
        let mut pods = c.nodes[node].pods.clone();
        pods.sort_by_key(|pod| {
            let pod = &c.pods[*pod];
            (pod.utility != Some(Utility::Reservation), c.names.text(pod.namespace), c.names.text(pod.name))
        });
        pods.dedup();
        let n = &mut c.nodes[node];
        let numa = n.ledger.numa.take();
        n.reset_ledger();
        for pipelined in [false, true] {
            for &pod in &pods {
                let all = presences(&c.pods[pod].state);
                let here = all.iter().filter(|(place, _)| place.node == node);
                for (place, status) in here.filter(|(_, status)| (*status == Status::Pipelined) == pipelined)
                {
                    n.add(&load_at(&c.pods[pod], &c.shapes, &c.devices, place), *status);
                }
            }
        }
        n.ledger.numa = numa;
    }

    fn record_ledger(&mut self, node: NodeIdx) {
        let version = self.state.cluster.fresh_version();
        let epoch = std::mem::replace(&mut self.state.cluster.epoch, version);
        let n = &mut self.state.cluster.nodes[node];
        let old = Box::new(n.ledger.clone());
        self.journal.push(Edit::Ledger { node, old, version: n.version, epoch });
        n.version = version;
        self.state.changes.ledger_log.push(node);
    }

    fn add_presence(&mut self, pod: PodIdx, (place, status): &(Place, Status), listing: Listing) {
        let node = place.node;
        self.record_ledger(node);
        let c = &mut self.state.cluster;
        let n = &mut c.nodes[node];
        n.add(&load_at(&c.pods[pod], &c.shapes, &c.devices, place), *status);
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
        if self.state.cluster.has_volumes(pod) {
            self.state.cluster.place_volumes(pod, node, presence);
            self.journal.push(Edit::VolumesPlaced { pod, node, presence });
        }
    }

    fn remove_presence(&mut self, pod: PodIdx, (place, status): &(Place, Status), listing: Listing) {
        let node = place.node;
        self.record_ledger(node);
        let c = &mut self.state.cluster;
        let n = &mut c.nodes[node];
        n.remove(&load_at(&c.pods[pod], &c.shapes, &c.devices, place), *status);
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
        self.unplace_terms(pod, node, presence);
        self.journal.push(Edit::TermsUnplaced { pod, node, presence });
        if self.state.cluster.has_volumes(pod) {
            self.state.cluster.unplace_volumes(pod, node, presence);
            self.journal.push(Edit::VolumesUnplaced { pod, node, presence });
        }
    }

    fn place_terms(&mut self, pod: PodIdx, node: NodeIdx, presence: Presence) {
        let c = &mut self.state.cluster;
        let p = &c.pods[pod];
        let (terms, node_labels) = (&c.shapes[p.shape].terms, &*c.nodes[node].labels);
        c.terms.place(&Placed { label_set: p.label_set, terms, node, node_labels, presence });
    }

    fn unplace_terms(&mut self, pod: PodIdx, node: NodeIdx, presence: Presence) {
        let c = &mut self.state.cluster;
        let p = &c.pods[pod];
        let (terms, node_labels) = (&c.shapes[p.shape].terms, &*c.nodes[node].labels);
        c.terms.unplace(&Placed { label_set: p.label_set, terms, node, node_labels, presence });
    }

    fn count(&mut self, pod: PodIdx, from: Status, to: Status) {
        if from == to {
            return;
        }
        let p = &self.state.cluster.pods[pod];
        let (Some(group), Some(member)) = (p.group, p.member) else { return };
        let stamp = self.state.cluster.fresh_version();
        let old_stamp = self.recount(pod, group, member, from, to, stamp);
        self.journal.push(Edit::Count { pod, group, member, from, to, stamp: old_stamp });
    }

    /// Moves a pod between two counters; returns the previous stamp of the group.
    fn recount(
        &mut self,
        pod: PodIdx,
        group: GroupIdx,
        member: MemberIdx,
        from: Status,
        to: Status,
        stamp: u64,
    ) -> u64 {
        let position = self.state.cluster.pods[pod].position;
        let g = &mut self.state.cluster.groups[group];
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
        let p = &self.state.cluster.pods[pod];
        let (Some(group), true) = (p.group, p.member.is_some()) else { return };
        let g = &self.state.cluster.groups[group];
        let (np, mut at) = (!g.preemptible, g.queue);
        let amounts = self.state.cluster.accepted(pod, place).map(|a| a * sign);
        while let Some(queue) = at {
            let version = self.state.cluster.fresh_version();
            let old = self.add_to_queue(queue, &amounts, np, version);
            self.journal.push(Edit::Queue { queue, amounts, np, version: old });
            at = self.state.cluster.queues[queue].parent;
        }
    }

    /// Adds to a queue's ledger; returns its previous version.
    fn add_to_queue(&mut self, queue: QueueIdx, amounts: &QueueAmounts, np: bool, version: u64) -> u64 {
        let q = &mut self.state.cluster.queues[queue];
        q.ledger.allocated = sum(&q.ledger.allocated, amounts);
        if np {
            q.ledger.allocated_np = sum(&q.ledger.allocated_np, amounts);
        }
        std::mem::replace(&mut q.version, version)
    }

    /// Undoes every edit made since `mark`, newest first.
    pub fn rollback(&mut self, mark: Mark) {
        assert!(mark.0 <= self.journal.len(), "mark is from a later state");
        assert!(mark.0 == 0 || mark.0 >= self.sealed, "what was done before the mark's state is final");
        // Handlers are called when the cluster is consistent again.
        let mut changes = Vec::new();
        while mark.0 < self.journal.len() {
            let edit = self.journal.pop().expect("length was checked");
            if let Edit::Pod { pod, old } = &edit
                && !self.handlers.is_empty()
            {
                changes.push((*pod, charged_at(&self.state.cluster.pods[*pod].state), charged_at(old)));
            }
            self.undo(edit);
        }
        if mark.0 == 0 {
            self.unfold();
        }
        for (pod, left, taken) in changes.into_iter().filter(|(_, left, taken)| left != taken) {
            self.notify(pod, left, taken);
        }
    }

    /// Undoes the folded edits of queues.
    fn unfold(&mut self) {
        self.sealed = 0;
        for (queue, fold) in std::mem::take(&mut self.fold).queues {
            let q = &mut self.state.cluster.queues[queue];
            q.ledger.allocated = difference(&q.ledger.allocated, &fold.allocated);
            q.ledger.allocated_np = difference(&q.ledger.allocated_np, &fold.allocated_np);
            q.version = fold.version;
        }
    }

    fn undo(&mut self, edit: Edit) {
        match edit {
            Edit::Pod { pod, old } => self.state.cluster.pods[pod].state = *old,
            Edit::Count { pod, group, member, from, to, stamp } => {
                self.recount(pod, group, member, to, from, stamp);
            }
            Edit::Ledger { node, old, version, epoch } => {
                self.state.cluster.epoch = epoch;
                let n = &mut self.state.cluster.nodes[node];
                n.ledger = *old;
                n.version = version;
                self.state.changes.ledger_log.push(node);
            }
            Edit::Joined { node } => {
                self.state.cluster.nodes[node].pods.pop();
            }
            Edit::Left { node, pod, at } => {
                let pods = &mut self.state.cluster.nodes[node].pods;
                pods.push(pod);
                let last = pods.len() - 1;
                pods.swap(at, last);
            }
            Edit::TermsPlaced { pod, node, presence } => self.unplace_terms(pod, node, presence),
            Edit::TermsUnplaced { pod, node, presence } => self.place_terms(pod, node, presence),
            Edit::Queue { queue, amounts, np, version } => {
                self.add_to_queue(queue, &amounts.map(|a| -a), np, version);
            }
            Edit::Device(undo) => self.state.cluster.devices.undo(*undo),
            Edit::VolumesPlaced { pod, node, presence } => {
                self.state.cluster.unplace_volumes(pod, node, presence);
            }
            Edit::VolumesUnplaced { pod, node, presence } => {
                self.state.cluster.place_volumes(pod, node, presence);
            }
        }
    }
}

/// The node at which a pod is charged to its queue.
fn charged_at(state: &PodState) -> Option<NodeIdx> {
    state.node().filter(|_| state.status.is_active_allocated())
}

/// The places that a pod occupies, with the status under which nodes account for it: allocated, binding, bound and
/// running are equal to a node.
fn presences(state: &PodState) -> SmallVec<[(Place, Status); 2]> {
    let status = if state.status.is_allocated() { Status::Running } else { state.status };
    let mut list = SmallVec::new();
    if let Some(place) = state.place.as_ref().filter(|_| status.holds_node()) {
        list.push((place.clone(), status));
    }
    if let Some(place) = &state.releasing {
        list.push((place.clone(), Status::Releasing));
    }
    list
}
