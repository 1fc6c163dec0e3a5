//! Verdicts: why a group is pending.
//!
//! One leading verdict and further ones, as a closed set of variants with numbers. Conditions, events, tables and
//! metrics are derived from them; `explain` renders the messages.

use crate::input::{AmountList, Key};
use crate::outcome::Cause;
use crate::resource::PerResource;
pub use crate::resource::QueueResource;

/// The verdict of a pending group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupVerdict {
    /// The group.
    pub group: Key,
    /// Its queue.
    pub queue: String,
    /// Pods that are not placed.
    pub pending: u32,
    /// The main reason.
    pub leading: Verdict,
    /// Further reasons.
    pub further: Vec<Verdict>,
}

/// Why pods of a group were not placed in this cycle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All its pods are placed or pipelined.
    Placed,
    /// No action of this cycle attempted it.
    NotAttempted,
    /// Its queue does not exist.
    QueueMissing,
    /// Its queue has children: only leaf queues run groups.
    QueueNotLeaf,
    /// The group is invalid.
    InvalidGroup(String),
    /// Fewer pods exist and are ungated than the group requires.
    NotReady {
        /// Sub-group; empty for the group itself.
        sub_group: String,
        /// Ready pods (or sub-groups).
        ready: u32,
        /// Required pods (or sub-groups).
        needed: u32,
    },
    /// A queue limit would be exceeded.
    OverLimit(QueueExcess),
    /// A non-preemptible group would exceed a queue's quota.
    NonPreemptibleOverQuota(QueueExcess),
    /// Other groups of its queue come first within the queue depth.
    BeyondQueueDepth {
        /// The configured depth.
        depth: u32,
    },
    /// Fewer pods of a gang fit than its minimum.
    GangNotSatisfied {
        /// Sub-group; empty for the default one.
        sub_group: String,
        /// Pods that fit.
        found: u32,
        /// Required pods.
        needed: u32,
        /// Why the next pod fits on no node.
        fit: NodeFit,
    },
    /// A pod fits on no node.
    NoNode(NodeFit),
    /// A topology constraint is not satisfied.
    Topology(TopologyRejection),
    /// A pod is unschedulable on any node.
    PodUnschedulable {
        /// The pod.
        pod: Key,
        /// Why it is unschedulable.
        reason: PodRejection,
        /// Its gang, where fewer pods fit than its minimum.
        gang: Option<Box<GangGap>>,
    },
    /// The preemption delay has not elapsed.
    PreemptionDelay {
        /// Length of the delay in microseconds.
        delay: i64,
        /// End of the delay in microseconds since the epoch.
        until: i64,
    },
    /// Evictions for it were refused, and it causes none until the backoff ends.
    EvictionBackoff {
        /// Why the last one was refused.
        cause: String,
        /// Consecutive failures.
        failures: u32,
        /// End of the backoff, in microseconds since the epoch.
        until: i64,
    },
    /// No pod was evicted or moved for it.
    NoVictims(Box<EvictionFailure>),
    /// Its pods are pipelined until releasing pods terminate.
    WaitingForVictims {
        /// Pipelined pods.
        waiting: u32,
    },
    /// It is in backoff after decisions for it could not be carried out: no placement was attempted.
    InBackoff {
        /// What failed last.
        cause: String,
        /// Consecutive failures.
        failures: u32,
        /// Time of the next attempt, in microseconds since the epoch.
        until: i64,
    },
    /// It ran for its maximum run time and has ended; it is not placed again.
    TimeLimitReached {
        /// When it ended, in microseconds since the epoch.
        ended: i64,
    },
    /// Planning this group failed with an internal error; the cycle skips it.
    Quarantined(String),
}

/// Why an action evicted or moved no pod for a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EvictionFailure {
    /// The action.
    pub cause: Cause,
    /// Why it failed.
    pub reason: EvictionFailureReason,
}

/// Why an eviction action failed, with its numbers (cpu in millicores, memory in bytes, GPUs in millionths).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EvictionFailureReason {
    /// Reclaim: with the group its queue would exceed its fair share.
    BeyondFairShare {
        /// The queue.
        queue: String,
        /// The resource.
        resource: QueueResource,
        /// Fair share of the queue.
        fair_share: i64,
        /// Allocation of the queue.
        used: i64,
        /// Request of the group.
        requested: i64,
    },
    /// A non-preemptible group would exceed its queue's quota.
    BeyondQuota(QueueExcess),
    /// No running group may be evicted for it, by queue, priority, preemptibility or minimum run time.
    NoCandidates,
    /// Evicting all candidates would not free enough.
    InsufficientEvictable {
        /// The resource.
        resource: QueueResource,
        /// Request of the group.
        requested: i64,
        /// Idle and releasing amount.
        free: i64,
        /// Evictable amount.
        evictable: i64,
        /// Number of queues with evictable groups.
        queues: u32,
    },
    /// With all candidates evicted, too few pods would fit, by their GPUs, on the nodes that they may use.
    NodesTooSmall {
        /// Pods of the step.
        pods: u32,
        /// Upper bound on the pods that fit.
        fitting: u32,
        /// GPUs of the smallest pod.
        gpus: i64,
    },
    /// Evicting all candidates would not free enough of a resource that queues do not account for.
    InsufficientEvictableOther {
        /// Resource name.
        resource: String,
        /// Request of the group.
        requested: i64,
        /// Idle and releasing amount.
        free: i64,
        /// Evictable amount.
        evictable: i64,
    },
    /// With all candidates evicted, no topology domain could hold all pods that require one.
    DomainTooSmall {
        /// The required level: a label key.
        level: String,
        /// The domain with the largest fraction of its scarcest resource.
        domain: String,
        /// That resource.
        resource: String,
        /// Request of the pods.
        requested: i64,
        /// Amount available in the domain.
        most: i64,
    },
    /// Consolidation: the free amount is insufficient.
    InsufficientFree {
        /// The resource.
        resource: QueueResource,
        /// Request of the group.
        requested: i64,
        /// Idle and releasing amount.
        free: i64,
    },
    /// The search failed for this group, which has the same scheduling signature and is not harder to schedule.
    EquivalentGroupFailed(Key),
    /// This group would be a victim, but one of the two groups was evicted for the other before, and demand, quotas and
    /// capacity are unchanged.
    RepeatedEviction(Key),
    /// Scenarios were simulated, and none is valid.
    NoValidScenario {
        /// Number of scenarios.
        tried: u32,
        /// Every set of victims was simulated.
        all: bool,
        /// The rule that rejected the last scenario whose pods were placed.
        refused: Option<ScenarioRejection>,
    },
    /// The search budget was exhausted.
    BudgetExhausted {
        /// Number of scenarios.
        tried: u32,
        /// Node evaluations and plan edits.
        steps: u64,
    },
    /// A pod is unschedulable on any node.
    Unschedulable(PodRejection),
}

/// The rule that rejected a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScenarioRejection {
    /// A queue would lose what it is entitled to.
    Unfair,
    /// The minimum run time of this group has not elapsed.
    MinRuntime(Key),
    /// A pod that must be moved fits on no other node.
    NotMoved,
    /// A pod placed in this cycle would lose its node.
    PlacedThisCycle,
    /// More groups would be moved than configured.
    TooManyMoved,
    /// A disruption budget would be violated.
    DisruptionBudget(Key),
    /// A user's validator rejected it, with its message.
    Plugin(String),
}

/// How many pods of a gang fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GangGap {
    /// Sub-group; empty for the default one.
    pub sub_group: String,
    /// Pods that fit.
    pub found: u32,
    /// Required pods.
    pub needed: u32,
}

/// A queue bound that would be exceeded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueExcess {
    /// The queue with the bound: the group's own or an ancestor.
    pub queue: String,
    /// The resource.
    pub resource: QueueResource,
    /// Value of the bound.
    pub bound: i64,
    /// Amount that counts against the bound.
    pub used: i64,
    /// Request of the group.
    pub requested: i64,
    /// Further numbers of the queue, where the whole group was checked.
    pub numbers: Option<Box<QueueNumbers>>,
}

/// Numbers of a queue when its bound was exceeded (cpu in millicores, memory in bytes, GPUs in millionths).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueNumbers {
    /// Object name of the queue.
    pub name: String,
    /// Allocated and pending.
    pub requested: PerResource<i64>,
    /// Guaranteed; `None` is unlimited.
    pub quota: PerResource<Option<i64>>,
    /// Allocated.
    pub allocated: PerResource<i64>,
    /// Allocated to non-preemptible groups.
    pub allocated_non_preemptible: PerResource<i64>,
    /// Maximum; `None` is unlimited.
    pub limit: PerResource<Option<i64>>,
    /// Request of the group.
    pub group_requested: PerResource<i64>,
    /// Request of the group if it is non-preemptible, else zero.
    pub group_requested_non_preemptible: PerResource<i64>,
}

/// Why a pod fits on no node: the number of nodes per reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeFit {
    /// The pod.
    pub pod: Key,
    /// Evaluated nodes.
    pub nodes: u32,
    /// Number of nodes per reason, sorted by reason.
    pub reasons: Vec<(NodeRejection, u32)>,
}

/// Why a node rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRejection {
    /// Insufficient GPUs.
    Gpus,
    /// Its GPUs have less memory than requested.
    GpuMemory,
    /// Insufficient free memory on its GPUs.
    GpuMemoryFree,
    /// Insufficient CPU.
    Cpu,
    /// Insufficient memory.
    Memory,
    /// Insufficient amount of another resource, by name.
    Resource(String),
    /// Insufficient instances of a MIG profile, by name.
    Mig(String),
    /// Insufficient resources, which would be sufficient without this pod overhead.
    Overhead(Box<NodeRejection>, AmountList),
    /// Too many pods.
    PodSlots,
    /// Too many pods for the reservation pod of a shared GPU.
    ReservationSlot,
    /// Cordoned.
    Cordoned,
    /// An unhealthy node condition.
    Condition(crate::input::NodeCondition),
    /// An untolerated taint: key and value.
    Taint(String, String),
    /// Node selector or node affinity mismatch.
    NodeAffinity,
    /// Host port conflict.
    Ports,
    /// Pod affinity mismatch.
    PodAffinity,
    /// Pod anti-affinity mismatch.
    PodAntiAffinity,
    /// Anti-affinity mismatch of an existing pod.
    ExistingAntiAffinity,
    /// Pod topology spread mismatch.
    Spread,
    /// A volume cannot be attached or provisioned.
    Volume(VolumeRejection),
    /// Insufficient free capacity of a storage class, by name.
    StorageCapacity(String),
    /// No capacity of a storage class, by name, reaches the node.
    StorageUnreachable(String),
    /// The node's kind of GPU does not match the request.
    GpuKind(GpuKindMismatch),
    /// The worker role is missing.
    Role,
    /// A queue bound would be exceeded on this node.
    OverCapacity(Box<QueueExcess>, CapacityRule),
    /// Device claims cannot be satisfied.
    Claims(ClaimRejection),
    /// No NUMA alignment is possible.
    Numa,
    /// Outside the topology domain, or not part of the topology.
    OutsideDomain,
    /// A user's plugin rejected it, with its message.
    Plugin(String),
}

/// The bound of a capacity check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityRule {
    /// The limit.
    Limit,
    /// The quota, for non-preemptible groups.
    NonPreemptibleQuota,
}

/// Why the kind of GPU of a node does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuKindMismatch {
    /// MIG requests by annotation are not supported.
    LegacyMig,
    /// The node runs pods with MIG requests by annotation.
    NodeHasLegacyMig,
    /// A MIG request on a node without MIG.
    NoMig,
    /// MIG strategy `single` supports whole devices only.
    MigSingle,
    /// MIG strategy `mixed` supports MIG requests only.
    MigMixed,
    /// GPUs of a DRA driver cannot be shared.
    SharedOnDra,
    /// The GPU memory of the node is unknown.
    MemoryUnknown,
}

/// Why a volume excludes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeRejection {
    /// The node affinity of the volume does not match.
    NodeConflict,
    /// The volume is in another zone.
    Zone,
    /// No volume matches or can be provisioned.
    Unbound,
    /// Insufficient free storage.
    Capacity,
    /// The attach limit of a driver is exceeded.
    AttachLimit,
}

/// Why device claims cannot be satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimRejection {
    /// An allocated claim is not available on the node.
    ElsewhereAllocated,
    /// No set of free devices satisfies the claims.
    NoDevices,
}

/// Why a pod is unschedulable on any node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodRejection {
    /// Its label names a sub-group that does not exist.
    UnknownSubGroup(String),
    /// Config maps are missing.
    ConfigMaps(Vec<String>),
    /// A volume claim cannot be used.
    VolumeClaim(String, VolumeClaimProblem),
    /// A volume claim with immediate binding is not bound.
    UnboundImmediate(String),
    /// No node of the pool is large enough.
    PoolTooSmall(Box<PoolGap>),
    /// Dynamic resource allocation is not available in the cluster: the pod's own names of its claims.
    ClaimsUnavailable(Vec<String>),
    /// A device claim is missing.
    ClaimMissing(String),
    /// No device claim was made from the template that the pod names: the pod's own name of the claim.
    ClaimUnmade(String),
    /// A device claim has reached its maximum number of consumers.
    ClaimFull(String),
    /// A shared GPU claim without the label of its queue: the claim, and its label.
    ClaimQueueLabel(String, Option<String>),
    /// A claim's device class is missing.
    DeviceClassMissing {
        /// The class.
        class: String,
        /// The claim.
        claim: String,
        /// The request of the claim that names the class.
        request: String,
    },
    /// A user's plugin failed for this pod.
    Plugin(String),
}

/// Why a volume claim cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeClaimProblem {
    /// It does not exist.
    Missing,
    /// Its volume, by name, does not exist any more.
    Lost(String),
    /// It is being deleted.
    Deleting,
}

/// A request that is larger than every node of its pool, in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolGap {
    /// The first resource that is insufficient.
    pub resource: String,
    /// Requested amount.
    pub wanted: i64,
    /// Largest amount of a node.
    pub largest: i64,
    /// The node pool.
    pub pool: String,
    /// GPU quota that the pod requests, in millionths.
    pub gpus: i64,
    /// All other requests.
    pub request: AmountList,
}

/// A topology constraint that is not satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyRejection {
    /// The topology.
    pub topology: String,
    /// Sub-group; empty for the group itself.
    pub sub_group: String,
    /// The requested level; empty when the topology itself is invalid.
    pub level: String,
    /// Why it is not satisfied.
    pub reason: TopologyReason,
}

/// Why a topology constraint is not satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopologyReason {
    /// The topology does not exist.
    #[default]
    Unknown,
    /// The constraint has no level, or one that is not in the topology.
    BadLevel,
    /// No domain is large enough.
    TooSmall {
        /// The domain that fits most pods.
        domain: String,
        /// Pods that fit in it, where they were counted.
        pods: Option<u32>,
        /// Required pods.
        wanted: u32,
        /// The domains that were evaluated; empty in simulations.
        measured: Measured,
    },
}

/// The domains that were evaluated for a topology constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Measured {
    /// All candidate nodes: this domain, or all nodes when empty.
    Whole(String),
    /// None: no node has the label of this level, or of all levels when empty, and such nodes are not part of it.
    Unlabelled(String),
    /// The first domains of the required level, by id.
    Each(Vec<DomainCapacity>),
}

impl Default for Measured {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

/// Capacity of one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DomainCapacity {
    /// Domain id.
    pub domain: String,
    /// Pods that fit in it, where they were counted.
    pub pods: Option<u32>,
    /// Insufficient resources, where pods were not counted: name, requested, free.
    pub lacks: Vec<(String, i64, i64)>,
}
