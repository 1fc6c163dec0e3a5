//! Input of a node: the fields that scheduling rules read.

use super::{AmountList, Labels};

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeInput {
    /// The node's name.
    pub name: String,
    /// Labels, sorted by key.
    pub labels: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
    /// The node is cordoned.
    pub unschedulable: bool,
    /// Conditions that make it unschedulable: `NotReady`, or a pressure condition that is not False.
    pub bad_conditions: Vec<NodeCondition>,
    /// `status.allocatable`; device-plugin GPUs as `gpu`, DRA devices not included.
    pub allocatable: AmountList,
    /// Memory of each GPU.
    pub gpu_memory: GpuMemory,
    /// Number of GPUs by label, if present.
    pub gpu_count: Option<u32>,
    /// The value of the MIG strategy label.
    pub mig_strategy: MigStrategy,
    /// The MIG label, if present; without it the presence of MIG resources decides.
    pub mig_enabled: Option<bool>,
    /// The node has the gpu-worker role (read under `restrict_nodes`).
    pub gpu_worker: bool,
    /// The node has the cpu-worker role (read under `restrict_nodes`).
    pub cpu_worker: bool,
    /// NUMA zones of its `NodeResourceTopology`, if any.
    pub numa: Option<NumaTopology>,
    /// Attach limits per CSI driver.
    pub attach_limits: Vec<super::NodeDriverLimit>,
}

/// A node taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value, possibly empty.
    pub value: String,
    /// Taint effect.
    pub effect: TaintEffect,
}

/// Taint effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// `NoSchedule`.
    NoSchedule,
    /// `PreferNoSchedule`.
    PreferNoSchedule,
    /// `NoExecute`.
    NoExecute,
}

/// A node condition that prevents scheduling, named as in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeCondition {
    /// Ready is reported and not True.
    NotReady,
    /// Memory pressure.
    MemoryPressure,
    /// Disk pressure.
    DiskPressure,
    /// Process-id pressure.
    PidPressure,
    /// Network unavailable.
    NetworkUnavailable,
}

/// Memory of each GPU of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuMemory {
    /// MiB per GPU, a multiple of 100.
    pub mib: i64,
    /// False without a label; `mib` is then a default and requests by memory are rejected.
    pub known: bool,
}

impl Default for GpuMemory {
    fn default() -> Self {
        Self { mib: 100, known: false }
    }
}

/// MIG strategy of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MigStrategy {
    /// No MIG.
    #[default]
    None,
    /// `single`: equal slices exposed as plain GPUs.
    Single,
    /// `mixed`: slices exposed under their profile's name.
    Mixed,
}

/// The NUMA zones of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumaTopology {
    /// The kubelet's topology manager policy.
    pub policy: NumaPolicy,
    /// The kubelet's topology manager scope.
    pub scope: NumaScope,
    /// Zones ordered by the trailing number of their name.
    pub zones: Vec<NumaZone>,
}

/// The kubelet's topology manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NumaPolicy {
    /// No alignment.
    #[default]
    None,
    /// Align if possible.
    BestEffort,
    /// Reject pods that cannot have the narrowest alignment.
    Restricted,
    /// Reject pods that do not fit one zone.
    SingleNumaNode,
}

/// Topology manager scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NumaScope {
    /// Each container individually.
    #[default]
    Container,
    /// The whole pod.
    Pod,
}

/// One NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumaZone {
    /// Zone name, for example `node-0`.
    pub name: String,
    /// Allocatable amounts.
    pub allocatable: AmountList,
    /// Reported free amounts.
    pub available: AmountList,
}
