//! Input values of the engine: one plain value per object, with exactly the fields that a rule reads.
//!
//! The cache (from Kubernetes objects), scenario files and tests build these values; `Cluster` interns and indexes
//! them. Names are strings here and nowhere deeper. Order carries no meaning: the receiver sorts lists that describe
//! sets.

mod claim;
mod group;
mod node;
mod pod;
mod queue;
mod storage;

pub use claim::{
    ClaimAllocation, ClaimConstraint, ClaimDevice, ClaimInput, ClaimRequest, CounterSet, Device,
    DeviceClassInput, DeviceId, DeviceTaint, RequestAlternative, RequestMode, SliceInput, SliceNodes,
};
pub use group::{
    Backoff, BackoffScope, GroupInput, LimitAction, SubGroupInput, TimeLimit, TopologyConstraint,
    TopologyInput,
};
pub use kai_units::Key;
pub use node::{
    GpuMemory, MigStrategy, NodeCondition, NodeInput, NumaPolicy, NumaScope, NumaTopology, NumaZone,
};
pub use node::{Taint, TaintEffect};
pub use pod::{
    AffinityTerm, ContainerRequest, GpuRequest, HostPort, LabelSelector, NodePreference, NodeTerm,
    NumaAmount, PodClaim, PodInput, PodPhase, PodVolume, Received, Requirement, RequirementOp, SelectorOp,
    SharedSpec, SpecInput, SpreadConstraint, TaskPriority, Toleration, TolerationOp, Utility, WeightedTerm,
};
pub use queue::{QueueInput, QueueShare};
pub use storage::{
    BudgetInput, CapacityInput, ClaimPhase, NodeDriverLimit, StorageClassInput, VolumeClaimInput, VolumeInput,
};

/// Amounts by resource name, in base units: cpu in millicores, memory and storage in bytes, `gpu` in millionths
/// of a device, `pods` in pods, everything else in thousandths. Names that map onto the GPU dimension arrive as
/// [`GPU`].
pub type AmountList = Vec<(String, i64)>;

/// Name of the CPU dimension.
pub const CPU: &str = "cpu";
/// Name of the memory dimension.
pub const MEMORY: &str = "memory";
/// Name of the GPU dimension; callers map `nvidia.com/gpu` and `amd.com/gpu` to it.
pub const GPU: &str = "gpu";
/// Name of the pod-slot dimension.
pub const PODS: &str = "pods";
/// One whole GPU in the GPU dimension's base unit.
pub const WHOLE_GPU: i64 = 1_000_000;

/// Sorted key-value pairs: labels.
pub type Labels = Vec<(String, String)>;
