//! What the engine reads of a node.

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
    /// Conditions that keep pods away: `NotReady`, or a pressure condition that is not False.
    pub bad_conditions: Vec<NodeCondition>,
    /// What may be handed out (`status.allocatable`); device-plugin GPUs as `gpu`, DRA devices not included.
    pub allocatable: AmountList,
    /// Memory of each GPU.
    pub gpu_memory: GpuMemory,
    /// Number of GPUs the node says it has (label), where it says so.
    pub gpu_count: Option<u32>,
    /// The value of the MIG strategy label.
    pub mig_strategy: MigStrategy,
    /// The MIG role label, where present; without it a MIG resource decides.
    pub mig_enabled: Option<bool>,
    /// The node has the gpu-worker role (read under `restrict_nodes`).
    pub gpu_worker: bool,
    /// The node has the cpu-worker role (read under `restrict_nodes`).
    pub cpu_worker: bool,
    /// NUMA zones, where a `NodeResourceTopology` describes them.
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
    /// What the taint does.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// Keeps new pods away.
    NoSchedule,
    /// Prefers that new pods stay away.
    PreferNoSchedule,
    /// Keeps new pods away and drives running ones out.
    NoExecute,
}

/// A reason why a node takes no pods, named as in messages.
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
    /// False when the node does not tell; `mib` is then a stand-in and requests by memory are refused.
    pub known: bool,
}

impl Default for GpuMemory {
    fn default() -> Self {
        Self { mib: 100, known: false }
    }
}

/// How a node offers MIG slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MigStrategy {
    /// No MIG.
    #[default]
    None,
    /// All slices are alike and offered as plain GPUs.
    Single,
    /// Slices are offered under their profile's name.
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
    /// Refuse pods that cannot have the narrowest alignment.
    Restricted,
    /// Refuse pods that do not fit one zone.
    SingleNumaNode,
}

/// What is aligned together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NumaScope {
    /// Each container by itself.
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
    /// What the zone has.
    pub allocatable: AmountList,
    /// What the zone reports as free.
    pub available: AmountList,
}
