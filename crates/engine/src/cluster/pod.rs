//! A pod as the engine sees it: what it is, and where it is at this point of the cycle.

use crate::ids::{GroupIdx, LabelSetIdx, MemberIdx, NodeIdx, ShapeIdx, Sym};
use crate::input::{PodPhase, Received, TaskPriority, Utility};
use crate::numa::Placement;
use kai_units::Timestamp;
use smallvec::SmallVec;

/// Where a pod is in its life, including states that exist only inside a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Waiting for a node.
    Pending,
    /// Held back by scheduling gates.
    Gated,
    /// Given a node in this cycle, not committed.
    Allocated,
    /// Given a node in this cycle where it waits for room.
    Pipelined,
    /// A bind request is under way.
    Binding,
    /// Assigned to its node.
    Bound,
    /// Running.
    Running,
    /// Leaving its node.
    Releasing,
    /// Should have left its node long ago.
    Stuck,
    /// Finished well.
    Succeeded,
    /// Finished badly.
    Failed,
    /// Lost by its kubelet; still holds its node.
    Unknown,
}

impl Status {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// Occupies its node and counts for its gang.
    pub fn is_active_used(self) -> bool {
        self.is_active_allocated() || matches!(self, Self::Releasing | Self::Stuck)
    }
    /// Has its place, or will have it.
    pub fn is_active_allocated(self) -> bool {
        self.is_allocated() || self == Self::Pipelined
    }
    /// Counts as allocated in its queue when the cycle begins.
    pub fn is_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Binding | Self::Bound | Self::Running)
    }
    /// Runs, or may still come to run.
    pub fn is_alive(self) -> bool {
        self.is_active_allocated() || matches!(self, Self::Pending | Self::Gated)
    }
    /// Takes room on its node: everything in use, and pods the kubelet has lost sight of.
    pub fn holds_node(self) -> bool {
        self.is_active_used() || self == Self::Unknown
    }
    /// The statuses that satisfy a test, for summing counters.
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
    ];

    /// How a pod in this status takes room on its node.
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
            | Self::Unknown => Occupancy::Active,
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

/// How a pod takes room on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// It has its room.
    Active,
    /// It gives its room back.
    Releasing,
    /// It waits for room that others give back.
    Pipelined,
}

/// GPU groups of a pod: one for most, several for requests over several devices.
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
    /// GPU devices held through claims, where the books may tell otherwise by the time the pod is lifted.
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
    /// Where it is, or will be.
    pub place: Option<Place>,
    /// A place that it still occupies while it leaves, when it has been given another one.
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
    /// Its group.
    pub group: Option<GroupIdx>,
    /// Where it stands in its group's list of pods.
    pub group_slot: u32,
    /// Where and how it is counted in the affinity terms when a cycle begins.
    pub in_terms: Option<(NodeIdx, crate::terms::Presence)>,
    /// Name of its sub-group, as its label tells.
    pub sub_group: Option<Sym>,
    /// Its pod set in the group's tree; none when the label names no pod set.
    pub member: Option<MemberIdx>,
    /// Position in its pod set's task order.
    pub position: u32,
    /// What it wants.
    pub shape: ShapeIdx,
    /// Its labels and namespace.
    pub label_set: LabelSetIdx,
    /// Phase, as told.
    pub phase: PodPhase,
    /// When it was created.
    pub created: Timestamp,
    /// It belongs to this scheduler.
    pub ours: bool,
    /// A helper pod of the product.
    pub utility: Option<Utility>,
    /// A reservation pod whose GPU nobody shares any more: it holds the GPU until the binder deletes it.
    pub orphaned: bool,
    /// Order by label.
    pub task_priority: TaskPriority,
    /// Kubeflow leader.
    pub kubeflow_leader: bool,
    /// Ray head.
    pub ray_head: bool,
    /// Nominated node.
    pub nominated: Option<Sym>,
    /// What kind of GPU it received.
    pub received: Option<Received>,
    /// The node it is told to be on (it may not exist).
    pub observed_node: Option<NodeIdx>,
    /// GPU groups it is told to have.
    pub observed_gpu_groups: GpuGroups,
    /// The rest of what was told, for rules that few pods need.
    pub extra: Option<Box<PodExtra>>,
    /// GPUs counted from its device claims, in millionths.
    pub claim_gpus: i64,
    /// Where it is at this point of the cycle.
    pub state: PodState,
}

impl Pod {
    /// Its GPU is accounted by the pods that share it.
    pub fn is_covered_reservation(&self) -> bool {
        self.utility == Some(Utility::Reservation) && !self.orphaned
    }
    /// It asks for devices through claims or resources that a class backs.
    pub fn has_claims(&self) -> bool {
        self.claim_gpus > 0 || self.extra.as_ref().is_some_and(|e| !e.claims.is_empty())
    }
}

/// What only some pods have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodExtra {
    /// NUMA zones it holds, as told.
    pub numa: Vec<crate::input::NumaAmount>,
    /// Device claims.
    pub claims: Vec<crate::input::PodClaim>,
    /// Devices that a bind request under way has chosen for extended resources.
    pub extended_devices: Vec<crate::input::DeviceId>,
    /// Volume claims, by name in its namespace.
    pub volumes: Vec<Sym>,
    /// Config maps it needs, by name in its namespace.
    pub config_maps: Vec<Sym>,
}
