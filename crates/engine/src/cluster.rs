//! The cluster model: objects in dense vectors, names interned, derived values kept up to date.
//!
//! Deltas change it object by object in any order. Before a cycle a refresh resolves references and derives ledgers
//! for what changed. Within a cycle only a [`Plan`](crate::plan::Plan) changes it, and rolls its edits back at the
//! end. Slots (`NodeIdx`, `PodIdx` …) are reused and carry no order.
//! Invariant: a refreshed cluster is a function of the objects in it, not of the order in which they arrived.

mod apply;
mod apply_pod;
mod changes;
mod devices;
pub mod gpu_group;
pub mod group;
mod ledger_log;
pub mod node;
pub mod pod;
pub mod queue;
mod refresh;
pub mod shape;
pub mod tree;
mod volumes;

pub(crate) use changes::Changes;
pub(crate) use ledger_log::LedgerLog;
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

/// The objects of a cluster and the values derived from them.
pub struct Cluster {
    /// Interned strings.
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
    /// Scheduling classes: which node descriptions accept which specifications.
    pub classes: Classes,
    /// Pod affinity, anti-affinity and topology spread.
    pub terms: Terms,
    /// Volumes.
    pub storage: Storage,
    /// Devices and claims.
    pub devices: Devices,
    /// Topologies.
    pub topologies: Topologies,
    /// Disruption budgets.
    pub budgets: BTreeMap<Key, BudgetInput>,
    /// State of the last cycle: pipelined groups and past evictions.
    pub(crate) carried_over: CarryOver,
    /// Existing config maps, by namespace and name.
    pub config_maps: FxHashSet<(Sym, Sym)>,
    /// Present nodes in name order.
    pub nodes_by_rank: Vec<NodeIdx>,
    /// Queues whose ancestors all exist, in name order.
    pub queues_by_rank: Vec<QueueIdx>,
    /// Aggregates over all nodes.
    pub figures: Figures,
    /// The last version that was assigned.
    pub(crate) last_version: u64,
    /// Identifies the state of all node ledgers: equal epochs mean equal ledgers.
    pub(crate) epoch: u64,
    node_by_name: FxHashMap<Sym, NodeIdx>,
    pod_by_key: FxHashMap<(Sym, Sym), PodIdx>,
    group_by_key: FxHashMap<(Sym, Sym), GroupIdx>,
    queue_by_name: FxHashMap<Sym, QueueIdx>,
    shape_by_spec: FxHashMap<SharedSpec, ShapeIdx>,
    /// Names that every group uses.
    fixed: FixedNames,
    free_pods: Vec<PodIdx>,
    /// Terminating pods, by deletion time.
    terminating: BTreeSet<(Timestamp, PodIdx)>,
    /// Pods with device claims.
    with_claims: BTreeSet<PodIdx>,
    /// Pods with volume claims.
    with_volumes: BTreeSet<PodIdx>,
    /// Groups with unplaced pods when a cycle begins.
    pending: BTreeSet<GroupIdx>,
    stale: BTreeSet<GroupIdx>,
    /// Pods whose deletion began before this time are stuck.
    stuck_before: Timestamp,
    /// Time of the last cycle.
    refreshed_at: Timestamp,
    /// The pod order that the groups' pods are sorted by.
    pod_order: Vec<&'static str>,
}

/// Aggregates over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Smallest GPU memory of nodes that report more than 100 MiB.
    pub gpu_memory_min: Option<i64>,
    /// Smallest GPU memory of any node, reported or defaulted.
    pub gpu_memory_least: i64,
    /// Largest GPU memory of nodes that report more than 100 MiB.
    pub gpu_memory_max: Option<i64>,
    /// Largest allocatable amount per dimension over the nodes.
    pub largest: Amounts,
    /// Some node has a taint of the effect `PreferNoSchedule`.
    pub soft_taints: bool,
    /// Most NUMA zones of a node.
    pub numa_zones: usize,
}

/// Names that every group uses.
#[derive(Clone, Copy)]
struct FixedNames {
    /// The empty name.
    empty: Sym,
    /// The only pod set of a group without sub-groups.
    default_set: Sym,
}

/// Number of objects about to be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
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
        let fixed = FixedNames { empty: names.intern(""), default_set: names.intern(group::DEFAULT_POD_SET) };
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
            epoch: 0,
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

    /// Reserves capacity for objects about to be added.
    pub fn reserve(&mut self, more: ObjectCounts) {
        // Each has a name and a UID.
        self.names.reserve(more.nodes + 2 * (more.pods + more.groups));
        self.nodes.reserve(more.nodes);
        self.node_by_name.reserve(more.nodes);
        self.pods.reserve(more.pods);
        self.pod_by_key.reserve(more.pods);
        self.groups.reserve(more.groups);
        self.group_by_key.reserve(more.groups);
    }

    /// Stores the state that a cycle passes to the next one.
    pub fn carry_over(&mut self, carried: CarryOver) {
        self.carried_over = carried;
    }

    /// Drops evictions of the last cycle that were not carried out: these pods keep running.
    pub fn forget_evictions<'a>(&mut self, preemptor: &Key, kept: impl IntoIterator<Item = &'a Key>) {
        self.carried_over.forget_evictions(preemptor, kept);
    }

    /// The state that the last cycle passed on.
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
    /// The value of a pod's label.
    pub fn pod_label(&self, pod: PodIdx, key: &str) -> Option<&str> {
        let key = self.names.find(key)?;
        let labels = self.terms.labels(self.pods[pod].label_set);
        labels.iter().find(|(name, _)| *name == key).map(|(_, value)| self.text(*value))
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
    /// Groups with unplaced pods when the cycle begins: the only ones that a cycle places or gives a verdict.
    pub fn pending_groups(&self) -> impl Iterator<Item = (GroupIdx, &Group)> {
        self.pending.iter().map(|g| (*g, &self.groups[*g]))
    }
    /// Groups that run below their minimum when the cycle begins, or have a stale-since timestamp.
    pub fn stale_groups(&self) -> impl Iterator<Item = GroupIdx> {
        self.stale.iter().copied()
    }
    /// Queues in use, by slot.
    pub fn present_queues(&self) -> impl Iterator<Item = (QueueIdx, &Queue)> {
        self.queues.enumerated().filter(|(_, q)| q.present)
    }

    /// The load of a pod on a node with given GPU groups.
    pub fn load<'a>(&'a self, pod: PodIdx, groups: &'a GpuGroups) -> Load<'a> {
        load_of(&self.pods[pod], &self.shapes, &self.devices, groups)
    }

    /// A node by symbol.
    pub(crate) fn node_of(&self, name: Sym) -> Option<NodeIdx> {
        self.node_by_name.get(&name).copied().filter(|n| self.nodes[*n].present)
    }

    /// The amounts charged to a pod's queue for a place (KAI's accepted resources).
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

    /// The amounts a pod requests of its queue before it has a node.
    pub fn queue_request(&self, pod: PodIdx, reference_memory: Option<i64>) -> QueueAmounts {
        let p = &self.pods[pod];
        let shape = &self.shapes[p.shape];
        [
            shape.request.get(crate::resource::CPU),
            shape.request.get(crate::resource::MEMORY),
            shape.quota_estimate(reference_memory) + p.claim_gpus,
        ]
    }

    /// Whether a device class backs an extended resource.
    pub fn is_device_backed(&self, resource: Sym) -> bool {
        self.devices.backs(resource)
    }

    /// A new version number.
    pub(crate) fn fresh_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    /// Time of the last cycle planned on the cluster.
    pub(crate) fn refreshed_at(&self) -> Timestamp {
        self.refreshed_at
    }

    /// A pod's status when the cycle began.
    pub fn observed_status(&self, pod: PodIdx) -> pod::Status {
        pod::Status::of_phase(self.pods[pod].phase, self.stuck_before)
    }

    /// Whether a pod was placed in this cycle. Such pods are not evicted in the same cycle. A moved pod does not
    /// count: it was evicted, and can lose only its pipelined place.
    pub fn is_placed_this_cycle(&self, pod: PodIdx) -> bool {
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

/// The load of a pod at a place; takes parts of the cluster to allow split borrows.
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

/// The load of a pod with given GPU groups; takes parts of the cluster to allow split borrows.
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
