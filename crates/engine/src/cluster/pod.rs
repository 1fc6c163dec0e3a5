//! A pod: its observed object, and its state at this point of the cycle.

use crate::ids::{GroupIdx, LabelSetIdx, MemberIdx, NodeIdx, ShapeIdx, Sym};
use crate::input::{PodPhase, Received, TaskPriority, Utility};
use crate::numa::Placement;
use kai_units::Timestamp;
use smallvec::SmallVec;

/// Pod status as in KAI, including states that exist only within a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Without a node.
    Pending,
    /// Held back by scheduling gates.
    Gated,
    /// Placed on idle resources in this cycle, not committed.
    Allocated,
    /// Placed in this cycle on resources that are being released.
    Pipelined,
    /// A bind request is in flight.
    Binding,
    /// Assigned to its node.
    Bound,
    /// Running.
    Running,
    /// Terminating.
    Releasing,
    /// Terminating for longer than the stuck threshold.
    Stuck,
    /// Completed.
    Succeeded,
    /// Failed.
    Failed,
    /// Phase `Unknown`: the kubelet does not report it; still occupies its node.
    Unknown,
    /// Pending in a group that is in backoff.
    InBackoff,
}

impl Status {
    /// Number of statuses.
    pub const COUNT: usize = 13;

    /// Occupies its node and counts for its gang, terminating pods included.
    pub fn is_active_used(self) -> bool {
        self.is_active_allocated() || matches!(self, Self::Releasing | Self::Stuck)
    }
    /// Allocated or pipelined.
    pub fn is_active_allocated(self) -> bool {
        self.is_allocated() || self == Self::Pipelined
    }
    /// Counts as allocated in its queue when the cycle begins.
    pub fn is_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Binding | Self::Bound | Self::Running)
    }
    /// Runs or can run.
    pub fn is_alive(self) -> bool {
        self.is_active_allocated() || matches!(self, Self::Pending | Self::Gated | Self::InBackoff)
    }
    /// Occupies its node: active used pods, and pods in phase `Unknown`.
    pub fn holds_node(self) -> bool {
        self.is_active_used() || self == Self::Unknown
    }
    /// All statuses in declaration order.
    pub const ALL: [Status; Self::COUNT] = [
        Self::Pending,
        Self::Gated,
        Self::Allocated,
        Self::Pipelined,
        Self::Binding,
        Self::Bound,
        Self::Running,
        Self::Releasing,
        Self::Stuck,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::InBackoff,
    ];

    /// How a pod in this status occupies its node.
    pub fn occupancy(self) -> Occupancy {
        match self {
            Self::Releasing => Occupancy::Releasing,
            Self::Pipelined => Occupancy::Pipelined,
            Self::Pending
            | Self::Gated
            | Self::Allocated
            | Self::Binding
            | Self::Bound
            | Self::Running
            | Self::Stuck
            | Self::Succeeded
            | Self::Failed
            | Self::Unknown
            | Self::InBackoff => Occupancy::Active,
        }
    }

    /// The status that a phase gives a pod at a moment.
    pub fn of_phase(phase: PodPhase, stuck_before: Timestamp) -> Self {
        match phase {
            PodPhase::Pending => Self::Pending,
            PodPhase::Gated => Self::Gated,
            PodPhase::Waiting => Self::Pipelined,
            PodPhase::Binding => Self::Binding,
            PodPhase::Bound => Self::Bound,
            PodPhase::Running => Self::Running,
            PodPhase::Releasing(since) if since < stuck_before => Self::Stuck,
            PodPhase::Releasing(_) | PodPhase::ReleasingUnstarted => Self::Releasing,
            PodPhase::Succeeded => Self::Succeeded,
            PodPhase::Failed => Self::Failed,
            PodPhase::Unknown => Self::Unknown,
        }
    }
}

/// How a pod occupies a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// Holds its resources.
    Active,
    /// Releases its resources.
    Releasing,
    /// Is placed on resources that other pods release.
    Pipelined,
}

/// GPU groups of a pod: one per device.
pub type GpuGroups = SmallVec<[Sym; 1]>;

/// A place on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: NodeIdx,
    /// Shared GPUs, one per device.
    pub gpu_groups: GpuGroups,
    /// NUMA zones charged.
    pub numa: Option<Box<Placement>>,
    /// GPU devices held through claims, recorded here since claims can change before the pod is removed.
    pub devices: Option<Box<[Sym]>>,
}

impl Place {
    /// A place without GPU groups or NUMA zones.
    pub fn on(node: NodeIdx) -> Self {
        Self { node, gpu_groups: GpuGroups::new(), numa: None, devices: None }
    }
}

/// The part of a pod that changes inside a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    /// Its status.
    pub status: Status,
    /// Its place, current or pipelined.
    pub place: Option<Place>,
    /// The place that a moved pod still occupies until it has terminated.
    pub releasing: Option<Place>,
    /// The status was given in this cycle and is not committed.
    pub is_virtual: bool,
}

impl PodState {
    /// A pod without a place.
    pub fn unplaced(status: Status) -> Self {
        Self { status, place: None, releasing: None, is_virtual: false }
    }
    /// The node, if it has one.
    pub fn node(&self) -> Option<NodeIdx> {
        self.place.as_ref().map(|p| p.node)
    }
}

/// One pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// The object exists (slots are reused).
    pub present: bool,
    /// Namespace.
    pub namespace: Sym,
    /// Name.
    pub name: Sym,
    /// Unique id.
    pub uid: Sym,
    /// Pod group.
    pub group: Option<GroupIdx>,
    /// Position in its group's list of pods.
    pub group_slot: u32,
    /// Node and presence under which the affinity terms count it when a cycle begins.
    pub in_terms: Option<(NodeIdx, crate::terms::Presence)>,
    /// Name of its sub-group, from its label.
    pub sub_group: Option<Sym>,
    /// Its pod set in the group's tree; none when the label names no pod set.
    pub member: Option<MemberIdx>,
    /// Position in its pod set's task order.
    pub position: u32,
    /// Interned specification.
    pub shape: ShapeIdx,
    /// Its labels and namespace.
    pub label_set: LabelSetIdx,
    /// Observed phase.
    pub phase: PodPhase,
    /// When it was created.
    pub created: Timestamp,
    /// It belongs to this scheduler.
    pub ours: bool,
    /// Set for reservation and scaling pods.
    pub utility: Option<Utility>,
    /// A reservation pod whose GPU no other pod shares: it holds the GPU until the binder deletes it.
    pub orphaned: bool,
    /// Task priority label.
    pub task_priority: TaskPriority,
    /// Kubeflow leader.
    pub kubeflow_leader: bool,
    /// Ray head.
    pub ray_head: bool,
    /// Nominated node.
    pub nominated: Option<Sym>,
    /// Kind of GPU received.
    pub received: Option<Received>,
    /// `spec.nodeName`, or the node of its bind request; the node may not exist.
    pub observed_node: Option<NodeIdx>,
    /// Observed GPU groups.
    pub observed_gpu_groups: GpuGroups,
    /// Rarely used parts of the object.
    pub extra: Option<Box<PodExtra>>,
    /// GPUs of its device claims, in millionths.
    pub claim_gpus: i64,
    /// State at this point of the cycle.
    pub state: PodState,
}

impl Pod {
    /// A reservation pod whose GPU is accounted for by the pods that share it.
    pub fn is_covered_reservation(&self) -> bool {
        self.utility == Some(Utility::Reservation) && !self.orphaned
    }
    /// It requests devices through claims.
    pub fn has_claims(&self) -> bool {
        self.claim_gpus > 0 || self.extra.as_ref().is_some_and(|e| !e.claims.is_empty())
    }
}

/// Rarely used parts of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodExtra {
    /// Observed NUMA placement.
    pub numa: Vec<crate::input::NumaAmount>,
    /// Device claims.
    pub claims: Vec<crate::input::PodClaim>,
    /// Devices that an in-flight bind request assigns to extended resources.
    pub extended_devices: Vec<crate::input::DeviceId>,
    /// Volume claims, by name in its namespace.
    pub volumes: Vec<Sym>,
    /// Config maps it needs, by name in its namespace.
    pub config_maps: Vec<Sym>,
    /// Those of its GPU groups that have lost their reservation.
    pub drained_gpus: Vec<Sym>,
}
