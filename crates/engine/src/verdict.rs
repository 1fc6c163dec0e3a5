//! Why a pending group is pending: one leading verdict and everything else that stood in the way.
//!
//! A closed set with numbers. Conditions, events, tables and metrics all read this record; texts are rendered
//! from it elsewhere.

use crate::input::{AmountList, Key};
use crate::outcome::Cause;
use crate::resource::PerResource;
pub use crate::resource::QueueResource;

/// A pending group with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupVerdict {
    /// The group.
    pub group: Key,
    /// Its queue.
    pub queue: String,
    /// Pods still without a place.
    pub pending: u32,
    /// What stands in the way first.
    pub leading: Verdict,
    /// What else was found.
    pub further: Vec<Verdict>,
}

/// Why a group, or some of its pods, got no place in this cycle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All its pods got a place, or a place to wait for.
    Placed,
    /// No action of this cycle looked at it.
    NotAttempted,
    /// Its queue does not exist.
    QueueMissing,
    /// Its queue has children: only leaf queues run groups.
    QueueNotLeaf,
    /// The group itself is malformed.
    InvalidGroup(String),
    /// Fewer pods are there, or ungated, than the group needs.
    NotReady {
        /// Sub-group; empty for the group itself.
        sub_group: String,
        /// Pods (or sub-groups) that are ready.
        ready: u32,
        /// Pods (or sub-groups) needed.
        needed: u32,
    },
    /// A queue's limit.
    OverLimit(QueueExcess),
    /// A non-preemptible group beyond a queue's quota.
    NonPreemptibleOverQuota(QueueExcess),
    /// Other groups of its queue come first within the configured depth.
    BeyondQueueDepth {
        /// The depth.
        depth: u32,
    },
    /// Not enough pods of a gang found a node.
    GangNotSatisfied {
        /// Sub-group; empty for the default one.
        sub_group: String,
        /// Pods that found a node.
        found: u32,
        /// Pods needed.
        needed: u32,
        /// Why the next pod found none.
        fit: NodeFit,
    },
    /// A pod found no node.
    NoNode(NodeFit),
    /// A topology constraint.
    Topology(TopologyRejection),
    /// A pod can never be placed as it is.
    PodUnschedulable {
        /// The pod.
        pod: Key,
        /// Why.
        reason: PodRejection,
        /// Its gang, where the pods that found a node are fewer than needed.
        gang: Option<Box<GangGap>>,
    },
    /// It may not cause evictions yet.
    PreemptionDelay {
        /// Microseconds that the group must wait from its creation.
        delay: i64,
        /// Microseconds since the epoch.
        until: i64,
    },
    /// Nobody was evicted or moved for it.
    NoVictims(Box<EvictionFailure>),
    /// It waits on its nodes for room that is being freed.
    WaitingForVictims {
        /// Pods that wait.
        waiting: u32,
    },
    /// What was decided for it could not be carried out, so it is left out for a while. The engine does not say this;
    /// whoever carries decisions out does.
    InBackoff {
        /// What failed, in words.
        why: String,
        /// How often in a row.
        failures: u32,
        /// Until when, in microseconds since the epoch.
        until: i64,
    },
    /// Planning this group failed inside the engine; it is set aside.
    Quarantined(String),
}

/// Why nobody was evicted or moved for a group by one action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EvictionFailure {
    /// The action.
    pub cause: Cause,
    /// What made the refusal.
    pub reason: EvictionFailureReason,
}

/// What made a refusal to evict, with its numbers (cpu in millicores, memory in bytes, GPUs in millionths).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EvictionFailureReason {
    /// Reclaim: with the group its queue would hold more than its fair share, so that it may not take from others.
    BeyondFairShare {
        /// The queue.
        queue: String,
        /// Which resource.
        resource: QueueResource,
        /// Its fair share.
        fair_share: i64,
        /// What it holds.
        used: i64,
        /// What the group asks for.
        requested: i64,
    },
    /// A non-preemptible group beyond its queue's quota.
    BeyondQuota(QueueExcess),
    /// No running group may be evicted for it: by queue, priority, preemptibility or minimum run time.
    NoCandidates,
    /// Even if all that may be evicted were gone there would be too little.
    InsufficientEvictable {
        /// Which resource.
        resource: QueueResource,
        /// What the group asks for.
        requested: i64,
        /// What is free or being freed.
        free: i64,
        /// What could be evicted, in all.
        evictable: i64,
        /// In how many queues.
        queues: u32,
    },
    /// Even if all that may be evicted were gone, too few of its pods would find a node with enough GPUs.
    NodesTooSmall {
        /// Pods of the step.
        pods: u32,
        /// How many would fit at most.
        fitting: u32,
        /// GPUs that the smallest of them needs.
        gpus: i64,
    },
    /// Even if all that may be evicted were gone there would be too little of a resource that queues do not account for.
    InsufficientEvictableOther {
        /// Its name.
        resource: String,
        /// What the group asks for.
        requested: i64,
        /// What is free or being freed.
        free: i64,
        /// What could be evicted, in all.
        evictable: i64,
    },
    /// Its pods must be together, and even if all that may be evicted were gone no domain would have enough.
    DomainTooSmall {
        /// The required level: a label key.
        level: String,
        /// The domain that would have most of what it lacks most.
        domain: String,
        /// What that is, by name.
        resource: String,
        /// What the pods ask for.
        requested: i64,
        /// What the domain would have.
        most: i64,
    },
    /// Consolidation: all that is free is too little.
    InsufficientFree {
        /// Which resource.
        resource: QueueResource,
        /// What the group asks for.
        requested: i64,
        /// What is free or being freed.
        free: i64,
    },
    /// A group that looks like it and is no harder found nothing in this cycle.
    EquivalentGroupFailed(Key),
    /// This group would be asked to give way, but a pod of it has been evicted for the pending one before, or the pending one
    /// for it, and nothing has changed since.
    RepeatedEviction(Key),
    /// Scenarios were tried, and none worked.
    NoValidScenario {
        /// How many.
        tried: u32,
        /// Every set of victims was among them.
        all: bool,
        /// The rule that the last otherwise good one broke.
        refused: Option<ScenarioRejection>,
    },
    /// The search's budget ran out.
    BudgetExhausted {
        /// Scenarios tried.
        tried: u32,
        /// Steps spent: node evaluations and edits.
        steps: u64,
    },
    /// No eviction would help a pod of it.
    Unschedulable(PodRejection),
}

/// The rule that a plan with evictions broke.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScenarioRejection {
    /// It would take from a queue what that queue is entitled to.
    Unfair,
    /// This group's minimum run time is not over.
    MinRuntime(Key),
    /// A group that must be moved has nowhere to go.
    NotMoved,
    /// A pod placed in this cycle would lose its place.
    PlacedThisCycle,
    /// More groups than may be moved.
    TooManyMoved,
    /// A disruption budget.
    DisruptionBudget(Key),
    /// A user's validator, in its own words.
    Plugin(String),
}

/// How far a gang got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GangGap {
    /// Sub-group; empty for the default one.
    pub sub_group: String,
    /// Pods that found a node.
    pub found: u32,
    /// Pods needed.
    pub needed: u32,
}

/// A queue's bound that would be passed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueExcess {
    /// The queue that says no: the group's own or an ancestor.
    pub queue: String,
    /// Which resource.
    pub resource: QueueResource,
    /// The bound.
    pub bound: i64,
    /// What counts against it now.
    pub used: i64,
    /// What the group asks for.
    pub requested: i64,
    /// Everything else about the queue, where the whole group was measured.
    pub numbers: Option<Box<QueueNumbers>>,
}

/// A queue at the moment it said no (cpu in millicores, memory in bytes, GPUs in millionths).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueNumbers {
    /// Object name of the queue.
    pub name: String,
    /// Held plus pending.
    pub requested: PerResource<i64>,
    /// Guaranteed; `None` is unlimited.
    pub quota: PerResource<Option<i64>>,
    /// Held.
    pub allocated: PerResource<i64>,
    /// Held by non-preemptible groups.
    pub allocated_non_preemptible: PerResource<i64>,
    /// Ceiling; `None` is unlimited.
    pub limit: PerResource<Option<i64>>,
    /// What the group asks for.
    pub group_requested: PerResource<i64>,
    /// The same when the group is non-preemptible, else nothing.
    pub group_requested_non_preemptible: PerResource<i64>,
}

/// Why a pod found no node: a count of nodes per reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeFit {
    /// The pod.
    pub pod: Key,
    /// Nodes looked at.
    pub nodes: u32,
    /// Nodes per reason, by reason.
    pub reasons: Vec<(NodeRejection, u32)>,
}

/// Why one node does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRejection {
    /// Not enough GPUs.
    Gpus,
    /// Its GPUs have less memory than wanted.
    GpuMemory,
    /// Not enough memory is left on its GPUs.
    GpuMemoryFree,
    /// Not enough CPU.
    Cpu,
    /// Not enough memory.
    Memory,
    /// Not enough of another resource, by name.
    Resource(String),
    /// Not enough of a MIG profile, by name.
    Mig(String),
    /// Not enough of something, and the pod would fit without this overhead.
    Overhead(Box<NodeRejection>, AmountList),
    /// No pod slot.
    PodSlots,
    /// No second pod slot, for the pod that would reserve the GPU it shares.
    ReservationSlot,
    /// Cordoned.
    Cordoned,
    /// A bad condition.
    Condition(crate::input::NodeCondition),
    /// A taint that is not tolerated: key and value.
    Taint(String, String),
    /// Node selector or node affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// Required pod affinity.
    PodAffinity,
    /// Required anti-affinity of the pod.
    PodAntiAffinity,
    /// Anti-affinity of a pod that is there.
    ExistingAntiAffinity,
    /// Pod topology spread.
    Spread,
    /// A volume cannot be used or made there.
    Volume(VolumeRejection),
    /// The node's kind of GPU does not match the request.
    GpuKind(GpuKindMismatch),
    /// A worker role is missing.
    Role,
    /// A queue's bound would be passed there.
    OverCapacity(Box<QueueExcess>, CapacityRule),
    /// Device claims cannot be met.
    Claims(ClaimRejection),
    /// NUMA zones cannot be aligned.
    Numa,
    /// Outside the topology domain, or not part of the topology.
    OutsideDomain,
    /// A user's plugin, with its own words.
    Plugin(String),
}

/// Which bound a capacity check hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityRule {
    /// The limit.
    Limit,
    /// The quota, for non-preemptible groups.
    NonPreemptibleQuota,
}

/// Why a node's kind of GPU does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuKindMismatch {
    /// Old-style MIG requests are never placed.
    LegacyMig,
    /// The node runs old-style MIG pods.
    NodeHasLegacyMig,
    /// A MIG request on a node without MIG.
    NoMig,
    /// The strategy `single` takes regular requests only.
    MigSingle,
    /// The strategy `mixed` takes MIG requests only.
    MigMixed,
    /// Shared GPUs cannot be had from devices of a DRA driver.
    SharedOnDra,
    /// The node does not tell its GPU memory.
    MemoryUnknown,
}

/// Why a volume keeps a pod from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeRejection {
    /// The volume cannot be used from there.
    NodeConflict,
    /// The volume is in another zone.
    Zone,
    /// No volume can be found or made.
    Unbound,
    /// Not enough free storage.
    Capacity,
    /// Too many volumes of a driver.
    AttachLimit,
}

/// Why device claims cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimRejection {
    /// An allocated claim cannot be used from there.
    ElsewhereAllocated,
    /// No set of free devices satisfies the claims.
    NoDevices,
}

/// Why a pod can never be placed as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodRejection {
    /// Its label names a sub-group that does not exist.
    UnknownSubGroup(String),
    /// A config map is missing.
    ConfigMap(String),
    /// A volume claim is missing, lost or being deleted.
    VolumeClaim(String),
    /// A volume claim that must be bound before scheduling is not.
    UnboundImmediate(String),
    /// No node of the pool is large enough.
    PoolTooSmall(Box<PoolGap>),
    /// Device claims are used but not served by the cluster.
    ClaimsUnavailable,
    /// A device claim is missing.
    ClaimMissing(String),
    /// A device claim has as many consumers as it can have.
    ClaimFull(String),
    /// A shared GPU claim without its queue's label: the claim, and the label it has.
    ClaimQueueLabel(String, Option<String>),
    /// A claim's device class is missing.
    DeviceClassMissing(String),
    /// Planning this pod failed in a user's plugin.
    Plugin(String),
}

/// A request that is larger than every node of its pool, in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolGap {
    /// The first resource of which there is too little.
    pub resource: String,
    /// What the pod wants of it.
    pub wanted: i64,
    /// The most that one node has of it.
    pub largest: i64,
    /// The node pool.
    pub pool: String,
    /// GPUs of quota that the pod wants in all, in millionths.
    pub gpus: i64,
    /// Everything else it wants.
    pub request: AmountList,
}

/// A topology constraint that could not be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyRejection {
    /// The topology.
    pub topology: String,
    /// Sub-group; empty for the group itself.
    pub sub_group: String,
    /// The level asked for; empty when the topology itself is at fault.
    pub level: String,
    /// Why, per domain (or for the topology as a whole).
    pub reason: TopologyReason,
}

/// Why a topology constraint could not be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopologyReason {
    /// There is no such topology.
    #[default]
    Unknown,
    /// The constraint names no level, or one that the topology lacks.
    BadLevel,
    /// No domain is large enough: the best one holds this many of the wanted pods.
    TooSmall {
        /// Domain id.
        domain: String,
        /// Pods it can hold, where that was counted.
        pods: Option<u32>,
        /// Pods wanted.
        wanted: u32,
        /// What was measured besides; left out in simulations.
        measured: Measured,
    },
}

/// What was found too small for a topology constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Measured {
    /// Everything at hand together: this domain, or all nodes when empty.
    Whole(String),
    /// Each domain of the required level, by id; the first few of them.
    Each(Vec<DomainCapacity>),
}

impl Default for Measured {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

/// The room in one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DomainCapacity {
    /// Domain id.
    pub domain: String,
    /// Pods it can hold, where that was counted.
    pub pods: Option<u32>,
    /// Resources of which it has too little, where pods were not counted: name, wanted, free.
    pub lacks: Vec<(String, i64, i64)>,
}
