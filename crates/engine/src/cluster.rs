//! The cluster: dense, interned, and current.
//!
//! Deltas change it object by object in any order ([`apply`](Cluster::apply)); before a cycle it is settled, which
//! resolves references and derives ledgers for what changed. Inside a cycle only a `Plan` changes it, and leaves no
//! trace. Slots (`NodeIdx`, `PodIdx` …) are reused and never an order.
//! Invariant: a settled cluster depends on the objects in it, not on the order they came in.

mod apply;
mod apply_pod;
mod changes;
mod devices;
pub mod gpu_group;
pub mod group;
pub mod node;
pub mod pod;
pub mod queue;
mod refresh;
pub mod shape;
mod tree;
mod volumes;

pub(crate) use changes::Changes;
pub(crate) use refresh::presence_of;

use crate::carry_over::CarryOver;
use crate::class::Classes;
use crate::dra::Devices;
use crate::ids::{GroupIdx, IndexVec, LabelSetIdx, NodeIdx, PodIdx, QueueIdx, ShapeIdx, Sym};
use crate::input::{BudgetInput, Key, SharedSpec};
use crate::intern::Interner;
use crate::resource::{Amounts, Dims};
use crate::share::min_runtime::MinRuntimes;
use crate::share::{Ledger, QueueAmounts, QueueTree, QueueTreeMut};
use crate::storage::Storage;
use crate::terms::Terms;
use crate::topology::Topologies;
use group::Group;
use kai_units::{Span, Timestamp};
use node::{Load, Node};
use pod::{GpuGroups, Place, Pod};
use queue::Queue;
use rustc_hash::{FxHashMap, FxHashSet};
use shape::Shape;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// The fixture as the engine knows it.
pub struct Cluster {
    /// All strings.
    pub names: Interner,
    /// Resource dimensions.
    pub dims: Dims,
    /// Nodes by slot.
    pub nodes: IndexVec<NodeIdx, Node>,
    /// Pods by slot.
    pub pods: IndexVec<PodIdx, Pod>,
    /// Groups by slot.
    pub groups: IndexVec<GroupIdx, Group>,
    /// Queues by slot.
    pub queues: IndexVec<QueueIdx, Queue>,
    /// Distinct pod specifications.
    pub shapes: IndexVec<ShapeIdx, Shape>,
    /// Classes of node acceptance.
    pub classes: Classes,
    /// Pod affinity and spread.
    pub terms: Terms,
    /// Volumes.
    pub storage: Storage,
    /// Devices and claims.
    pub devices: Devices,
    /// Topologies.
    pub topologies: Topologies,
    /// Disruption budgets.
    pub budgets: BTreeMap<Key, BudgetInput>,
    /// Groups for which room was made in the last cycle, in the order it was.
    pub(crate) carried_over: CarryOver,
    /// Config maps that exist.
    pub config_maps: FxHashSet<(Sym, Sym)>,
    /// Present nodes in name order.
    pub nodes_by_rank: Vec<NodeIdx>,
    /// Queues with a complete chain of parents, in name order.
    pub queues_by_rank: Vec<QueueIdx>,
    /// Figures over all nodes.
    pub figures: Figures,
    /// The last version given to a ledger.
    pub(crate) last_version: u64,
    /// Nodes whose ledger changed, in order; readers keep a cursor.
    touched: Vec<NodeIdx>,
    /// Names the state of all ledgers: equal epochs mean that every node's ledger is equal.
    pub(crate) epoch: u64,
    /// How many entries of `touched` have been dropped from its front.
    touched_dropped: usize,
    node_by_name: FxHashMap<Sym, NodeIdx>,
    pod_by_key: FxHashMap<(Sym, Sym), PodIdx>,
    group_by_key: FxHashMap<(Sym, Sym), GroupIdx>,
    queue_by_name: FxHashMap<Sym, QueueIdx>,
    shape_by_spec: FxHashMap<SharedSpec, ShapeIdx>,
    /// Names that every group needs.
    fixed: FixedNames,
    free_pods: Vec<PodIdx>,
    /// Pods being deleted, by the moment of their deletion.
    terminating: BTreeSet<(Timestamp, PodIdx)>,
    /// Pods with device claims.
    with_claims: BTreeSet<PodIdx>,
    /// Pods with volume claims.
    with_volumes: BTreeSet<PodIdx>,
    /// Groups with pods that have no place when a cycle begins.
    pending: BTreeSet<GroupIdx>,
    stale: BTreeSet<GroupIdx>,
    /// Pods that began to leave before this moment are stuck.
    stuck_before: Timestamp,
    /// The moment of the last cycle.
    refreshed_at: Timestamp,
    /// The pod order that the groups' pods are sorted by.
    pod_order: Vec<&'static str>,
}

/// Figures over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Smallest GPU memory, of nodes that tell one above 100 MiB.
    pub gpu_memory_min: Option<i64>,
    /// Smallest GPU memory of any node, told or not.
    pub gpu_memory_least: i64,
    /// Largest GPU memory, likewise.
    pub gpu_memory_max: Option<i64>,
    /// Largest allocatable amount per dimension over the nodes.
    pub largest: Amounts,
    /// Some node has a taint of the effect `PreferNoSchedule`.
    pub soft_taints: bool,
    /// Most NUMA zones of a node.
    pub numa_zones: usize,
}

/// Names that every group needs.
#[derive(Clone, Copy)]
struct FixedNames {
    /// The empty name.
    nothing: Sym,
    /// The only pod set of a group without sub-groups.
    default_set: Sym,
}

/// How many objects there are going to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Nodes.
    pub nodes: usize,
    /// Pods.
    pub pods: usize,
    /// Groups.
    pub groups: usize,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// An empty cluster.
    pub fn new() -> Self {
        let mut names = Interner::default();
        let dims = Dims::new(&mut names);
        let fixed =
            FixedNames { nothing: names.intern(""), default_set: names.intern(group::DEFAULT_POD_SET) };
        Self {
            names,
            dims,
            nodes: IndexVec::new(),
            pods: IndexVec::new(),
            groups: IndexVec::new(),
            queues: IndexVec::new(),
            shapes: IndexVec::new(),
            classes: Classes::default(),
            terms: Terms::default(),
            storage: Storage::default(),
            devices: Devices::default(),
            topologies: Topologies::default(),
            budgets: BTreeMap::new(),
            carried_over: CarryOver::default(),
            config_maps: FxHashSet::default(),
            nodes_by_rank: Vec::new(),
            queues_by_rank: Vec::new(),
            figures: Figures::default(),
            last_version: 0,
            touched: Vec::new(),
            epoch: 0,
            touched_dropped: 0,
            node_by_name: FxHashMap::default(),
            pod_by_key: FxHashMap::default(),
            group_by_key: FxHashMap::default(),
            queue_by_name: FxHashMap::default(),
            shape_by_spec: FxHashMap::default(),
            fixed,
            free_pods: Vec::new(),
            terminating: BTreeSet::new(),
            with_claims: BTreeSet::new(),
            with_volumes: BTreeSet::new(),
            pending: BTreeSet::new(),
            stale: BTreeSet::new(),
            stuck_before: Timestamp(i64::MIN),
            refreshed_at: Timestamp(i64::MIN),
            pod_order: Vec::new(),
        }
    }

    /// Makes room for objects that are about to come, where their number is known.
    pub fn expect(&mut self, more: Expected) {
        // A name and a unique id each.
        self.names.reserve(more.nodes + 2 * (more.pods + more.groups));
        self.nodes.reserve(more.nodes);
        self.node_by_name.reserve(more.nodes);
        self.pods.reserve(more.pods);
        self.pod_by_key.reserve(more.pods);
        self.groups.reserve(more.groups);
        self.group_by_key.reserve(more.groups);
    }

    /// Remembers what the last cycle left for the next one.
    pub fn carry_over(&mut self, left: CarryOver) {
        self.carried_over = left;
    }

    /// Forgets what the last cycle took for a group, as far as these pods stay after all.
    pub fn forget_evictions<'a>(&mut self, taker: &Key, staying: impl IntoIterator<Item = &'a Key>) {
        self.carried_over.forget_evictions(taker, staying);
    }

    /// What the last cycle left.
    pub fn carried_over(&self) -> &CarryOver {
        &self.carried_over
    }

    /// The text of a symbol.
    pub fn text(&self, sym: Sym) -> &str {
        self.names.text(sym)
    }
    /// A pod's namespace and name.
    pub fn pod_key(&self, pod: PodIdx) -> Key {
        let pod = &self.pods[pod];
        Key::new(self.text(pod.namespace), self.text(pod.name))
    }
    /// A group's namespace and name.
    pub fn group_key(&self, group: GroupIdx) -> Key {
        let group = &self.groups[group];
        Key::new(self.text(group.namespace), self.text(group.name))
    }
    /// A node by name.
    pub fn node(&self, name: &str) -> Option<NodeIdx> {
        let node = *self.node_by_name.get(&self.names.find(name)?)?;
        self.nodes[node].present.then_some(node)
    }
    /// A pod by key.
    pub fn pod(&self, key: &Key) -> Option<PodIdx> {
        let pod = *self.pod_by_key.get(&(self.names.find(&key.namespace)?, self.names.find(&key.name)?))?;
        self.pods[pod].present.then_some(pod)
    }
    /// A group by key.
    pub fn group(&self, key: &Key) -> Option<GroupIdx> {
        let group =
            *self.group_by_key.get(&(self.names.find(&key.namespace)?, self.names.find(&key.name)?))?;
        self.groups[group].present.then_some(group)
    }
    /// A queue by name.
    pub fn queue(&self, name: &str) -> Option<QueueIdx> {
        let queue = *self.queue_by_name.get(&self.names.find(name)?)?;
        self.queues[queue].present.then_some(queue)
    }
    /// A pod's specification.
    pub fn shape(&self, pod: PodIdx) -> &Shape {
        &self.shapes[self.pods[pod].shape]
    }
    /// Pods in use, by slot.
    pub fn present_pods(&self) -> impl Iterator<Item = (PodIdx, &Pod)> {
        self.pods.enumerated().filter(|(_, p)| p.present)
    }
    /// Groups in use, by slot.
    pub fn present_groups(&self) -> impl Iterator<Item = (GroupIdx, &Group)> {
        self.groups.enumerated().filter(|(_, g)| g.present)
    }
    /// Groups that have pods without a place when the cycle begins: the only ones that a cycle can place or explain.
    pub fn pending_groups(&self) -> impl Iterator<Item = (GroupIdx, &Group)> {
        self.pending.iter().map(|g| (*g, &self.groups[*g]))
    }
    /// Groups that run below their minimum when the cycle begins, or were told to.
    pub fn stale_groups(&self) -> impl Iterator<Item = GroupIdx> {
        self.stale.iter().copied()
    }
    /// Queues in use, by slot.
    pub fn present_queues(&self) -> impl Iterator<Item = (QueueIdx, &Queue)> {
        self.queues.enumerated().filter(|(_, q)| q.present)
    }

    /// What a pod puts on a node with given GPU groups.
    pub fn load<'a>(&'a self, pod: PodIdx, groups: &'a GpuGroups) -> Load<'a> {
        load_of(&self.pods[pod], &self.shapes, &self.devices, groups)
    }

    /// A node by symbol.
    pub(crate) fn node_of(&self, name: Sym) -> Option<NodeIdx> {
        self.node_by_name.get(&name).copied().filter(|n| self.nodes[*n].present)
    }

    /// What a pod takes of its queue at a place: CPU, memory, GPUs.
    pub fn accepted(&self, pod: PodIdx, place: &Place) -> QueueAmounts {
        let p = &self.pods[pod];
        let shape = &self.shapes[p.shape];
        let memory = self.nodes[place.node].gpu_memory.mib;
        [
            shape.request.get(crate::resource::CPU),
            shape.request.get(crate::resource::MEMORY),
            shape.quota_on(memory) + p.claim_gpus,
        ]
    }

    /// What a pod asks of its queue before it has a node.
    pub fn queue_request(&self, pod: PodIdx, reference_memory: Option<i64>) -> QueueAmounts {
        let p = &self.pods[pod];
        let shape = &self.shapes[p.shape];
        [
            shape.request.get(crate::resource::CPU),
            shape.request.get(crate::resource::MEMORY),
            shape.quota_estimate(reference_memory) + p.claim_gpus,
        ]
    }

    /// Whether a resource that nodes do not have is served by a device class.
    pub fn is_device_backed(&self, resource: Sym) -> bool {
        self.devices.backs(resource)
    }

    /// Logs that a node's ledger changed.
    pub(crate) fn touch(&mut self, node: NodeIdx) {
        self.touched.push(node);
    }

    /// The end of the log of touched nodes.
    pub(crate) fn touched_end(&self) -> usize {
        self.touched_dropped + self.touched.len()
    }

    /// Nodes touched since a point of the log; none when the log does not reach back that far.
    pub(crate) fn touched_since(&self, cursor: usize) -> Option<&[NodeIdx]> {
        self.touched.get(cursor.checked_sub(self.touched_dropped)?..)
    }

    /// A fresh version number.
    pub(crate) fn fresh_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    /// The moment of the last cycle that was planned on the cluster.
    pub(crate) fn refreshed_at(&self) -> Timestamp {
        self.refreshed_at
    }

    /// The status that a pod had when the cycle began.
    pub fn observed_status(&self, pod: PodIdx) -> pod::Status {
        pod::Status::of_phase(self.pods[pod].phase, self.stuck_before)
    }

    /// Whether a pod got its place in this cycle: nothing that was placed in a cycle is evicted in it. (A pod that was
    /// moved is another matter: it has been evicted, and may only lose the place that it waits for.)
    pub fn is_fresh(&self, pod: PodIdx) -> bool {
        let state = &self.pods[pod].state;
        state.status.is_active_allocated()
            && state.releasing.is_none()
            && state.status != self.observed_status(pod)
    }

    /// A pod's labels and namespace.
    pub fn label_set(&self, pod: PodIdx) -> LabelSetIdx {
        self.pods[pod].label_set
    }
}

/// What a pod puts on a node at a place, from the parts of a cluster that tell.
pub(crate) fn load_at<'a>(
    pod: &Pod,
    shapes: &'a IndexVec<ShapeIdx, Shape>,
    devices: &Devices,
    place: &'a Place,
) -> Load<'a> {
    let mut load = load_of(pod, shapes, devices, &place.gpu_groups);
    if let Some(held) = &place.devices {
        load.devices = SmallVec::from_slice(held);
    }
    load
}

/// What a pod puts on a node, from the parts of a cluster that tell.
pub(crate) fn load_of<'a>(
    pod: &Pod,
    shapes: &'a IndexVec<ShapeIdx, Shape>,
    devices: &Devices,
    groups: &'a GpuGroups,
) -> Load<'a> {
    Load {
        shape: &shapes[pod.shape],
        claim_gpus: pod.claim_gpus,
        devices: if pod.claim_gpus > 0 { devices.gpu_devices(pod.uid) } else { SmallVec::new() },
        groups,
        reservation: pod.is_covered_reservation(),
    }
}

impl QueueTree for Cluster {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.queues[queue].parent
    }
    fn ledger(&self, queue: QueueIdx) -> &Ledger {
        &self.queues[queue].ledger
    }
}

impl MinRuntimes for Cluster {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.queues[queue].parent
    }
    fn before_preempt(&self, queue: QueueIdx) -> Option<Span> {
        self.queues[queue].preempt_min_runtime
    }
    fn before_reclaim(&self, queue: QueueIdx) -> Option<Span> {
        self.queues[queue].reclaim_min_runtime
    }
}

impl QueueTreeMut for Cluster {
    fn ledger_mut(&mut self, queue: QueueIdx) -> &mut Ledger {
        &mut self.queues[queue].ledger
    }
}
