//! Input of a pod: the fields that scheduling rules read.

use super::{AmountList, DeviceId, Key, Labels};
use kai_units::Timestamp;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodInput {
    /// Namespace and name.
    pub key: Key,
    /// Unique id.
    pub uid: String,
    /// Name of its group, in the pod's own namespace.
    pub group: Option<String>,
    /// Name of its sub-group; absent means the default one.
    pub sub_group: Option<String>,
    /// Phase.
    pub phase: PodPhase,
    /// `spec.nodeName`, or the node of its bind request.
    pub node: Option<String>,
    /// When it was created.
    pub created: Timestamp,
    /// Labels, sorted by key.
    pub labels: Labels,
    /// Its `spec.schedulerName` is this scheduler.
    pub ours: bool,
    /// Set for reservation and scaling pods.
    pub utility: Option<Utility>,
    /// Task priority label.
    pub task_priority: TaskPriority,
    /// Kubeflow master or launcher: placed first.
    pub kubeflow_leader: bool,
    /// Ray head: placed first.
    pub ray_head: bool,
    /// Node named by `status.nominatedNodeName`.
    pub nominated_node: Option<String>,
    /// GPU groups it uses.
    pub gpu_groups: Vec<String>,
    /// Those of its GPU groups that have lost their reservation: no other pod may share these GPUs.
    pub drained_gpus: Vec<String>,
    /// Kind of GPU received, once bound.
    pub received: Option<Received>,
    /// NUMA placement, observed or predicted.
    pub numa_placement: Vec<NumaAmount>,
    /// Device claims it uses.
    pub claims: Vec<PodClaim>,
    /// Devices that an in-flight bind request assigns to its extended resources.
    pub extended_devices: Vec<DeviceId>,
    /// Volumes backed by claims.
    pub volumes: Vec<PodVolume>,
    /// Non-optional config maps it needs, by name, in its namespace.
    pub config_maps: Vec<String>,
    /// Specification.
    pub spec: SharedSpec,
}

/// Phase of a pod as observed; states within a cycle are internal to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Pending.
    #[default]
    Pending,
    /// Held back by scheduling gates.
    Gated,
    /// Pipelined to releasing resources. Occurs only in recorded sessions, not in stored objects.
    Waiting,
    /// A bind request is in flight.
    Binding,
    /// Assigned to its node, not running yet.
    Bound,
    /// Running.
    Running,
    /// Terminating since the deletion timestamp, grace period included.
    Releasing(Timestamp),
    /// Terminating before it ever ran; never counts as stuck.
    ReleasingUnstarted,
    /// Completed.
    Succeeded,
    /// Failed.
    Failed,
    /// Phase `Unknown`; it still occupies its node.
    Unknown,
}

/// Pods that KAI creates itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Utility {
    /// Reservation pod: holds a shared GPU.
    Reservation,
    /// Scaling pod: triggers the cluster autoscaler.
    Scaling,
}

/// Value of the task-priority label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskPriority {
    /// No label.
    #[default]
    Absent,
    /// A label that is not an integer.
    Invalid,
    /// A label with this value; larger comes first.
    Value(i64),
}

/// Kind of GPU that a bound pod received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Received {
    /// Whole GPUs or none.
    Regular,
    /// A share of one or more GPUs.
    Fraction,
    /// MIG instances.
    Mig,
}

/// Amounts held in one NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumaAmount {
    /// Zone name.
    pub zone: String,
    /// Amounts in that zone.
    pub amounts: AmountList,
}

/// A device claim as the pod refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodClaim {
    /// The pod's own name for it.
    pub name: String,
    /// Name of the claim object in the pod's namespace; absent until it is created from its template.
    pub claim: Option<String>,
    /// Created from a template for this pod.
    pub from_template: bool,
    /// Devices that an in-flight bind request assigns to it.
    pub chosen: Vec<DeviceId>,
}

/// A volume backed by a claim object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodVolume {
    /// Name of the volume claim in the pod's namespace.
    pub claim: String,
}

/// A specification shared by pods with equal ones. Copy-on-write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedSpec(Arc<SpecInput>);

impl SharedSpec {
    /// Whether both are the same allocation; cheaper than equality.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl From<SpecInput> for SharedSpec {
    fn from(spec: SpecInput) -> Self {
        Self(Arc::new(spec))
    }
}
impl Deref for SharedSpec {
    type Target = SpecInput;
    fn deref(&self) -> &SpecInput {
        &self.0
    }
}
impl DerefMut for SharedSpec {
    fn deref_mut(&mut self) -> &mut SpecInput {
        Arc::make_mut(&mut self.0)
    }
}

/// Pod specification. Pods with equal ones are interchangeable to every filter and score.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpecInput {
    /// Total request (containers, sidecars, init containers, overhead); whole GPUs as `gpu`; shared GPUs, MIG quota
    /// and claims not included. The engine adds `pods`.
    pub request: AmountList,
    /// The part of `request` that is pod overhead, for explanations.
    pub overhead: AmountList,
    /// GPU request.
    pub gpu: GpuRequest,
    /// A request in the deprecated MIG annotation form; such pods are never placed.
    pub legacy_mig: bool,
    /// The quality-of-service class is Guaranteed.
    pub guaranteed: bool,
    /// Containers, for NUMA alignment and device-class-backed resources.
    pub containers: Vec<ContainerRequest>,
    /// `nodeSelector`, sorted.
    pub node_selector: Labels,
    /// Required node affinity: any of these terms; an empty list means no such rule.
    pub node_terms: Vec<NodeTerm>,
    /// Preferred node affinity.
    pub node_preferences: Vec<NodePreference>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// Required pod affinity.
    pub affinity: Vec<AffinityTerm>,
    /// Required pod anti-affinity.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Preferred pod affinity (positive weight) and anti-affinity (negative weight).
    pub preferred_affinity: Vec<WeightedTerm>,
    /// Pod topology spread.
    pub spread: Vec<SpreadConstraint>,
    /// Priority class name and value: part of the scheduling signature.
    pub priority_class: (String, i32),
}

/// GPU request of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GpuRequest {
    /// No GPU is mentioned.
    #[default]
    None,
    /// Whole devices (an explicit 0 is still a regular request).
    Whole(u32),
    /// A share of each of some devices, in hundredths.
    Fraction {
        /// Hundredths of a device, 1 to 100.
        hundredths: u32,
        /// Number of devices.
        devices: u32,
    },
    /// Memory on each of some devices.
    Memory {
        /// MiB on each device.
        mib: i64,
        /// Number of devices.
        devices: u32,
    },
    /// MIG instances; the profiles are in `request`.
    Mig,
}

/// Request of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContainerRequest {
    /// Container name.
    pub name: String,
    /// Its request; cpu in millicores and so on.
    pub request: AmountList,
    /// An init container.
    pub init: bool,
    /// An init container that keeps running (sidecar).
    pub sidecar: bool,
}

/// One term of node affinity: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    /// On node labels.
    pub labels: Vec<Requirement>,
    /// On `metadata.name`.
    pub names: Vec<Requirement>,
}

/// A weighted node affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodePreference {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: NodeTerm,
}

/// A requirement on one label of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// The test.
    pub op: RequirementOp,
}

/// A test on a node label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequirementOp {
    /// The value is one of these.
    In(Vec<String>),
    /// The value is none of these, or the label is missing.
    NotIn(Vec<String>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The value is an integer above this.
    Gt(i64),
    /// The value is an integer below this.
    Lt(i64),
    /// Never matches (malformed in the object).
    Never,
}

/// A toleration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Key; empty with `Exists` tolerates every key.
    pub key: String,
    /// How the value is compared.
    pub op: TolerationOp,
    /// Effect; absent tolerates every effect.
    pub effect: Option<super::TaintEffect>,
}

/// How a toleration compares values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOp {
    /// Any value.
    Exists,
    /// This value.
    Equal(String),
    /// The taint's value is an integer above this.
    Gt(i64),
    /// The taint's value is an integer below this.
    Lt(i64),
}

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Address; `0.0.0.0` means all.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port number.
    pub port: u16,
}

/// A selector over pod labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// All must hold; an empty list selects everything.
    pub requirements: Vec<(String, SelectorOp)>,
}

/// A test on a pod label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SelectorOp {
    /// The value is one of these.
    In(Vec<String>),
    /// The value is none of these, or the label is missing.
    NotIn(Vec<String>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// A pod affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// Which pods; absent selects nothing.
    pub selector: Option<LabelSelector>,
    /// Namespaces, resolved; absent means every namespace.
    pub namespaces: Option<Vec<String>>,
    /// Topology key.
    pub topology_key: String,
}

/// A weighted affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WeightedTerm {
    /// 1 to 100, negative for anti-affinity.
    pub weight: i32,
    /// The term.
    pub term: AffinityTerm,
}

/// One pod topology spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// Largest allowed difference between domains.
    pub max_skew: i32,
    /// Node label that names the domain.
    pub topology_key: String,
    /// `DoNotSchedule`: a filter; otherwise a preference.
    pub hard: bool,
    /// Which pods count.
    pub selector: LabelSelector,
    /// The pod's own namespace: only pods in it count.
    pub namespace: String,
    /// Treat the smallest domain as empty while there are fewer domains than this.
    pub min_domains: Option<u32>,
    /// Nodes that the pod's node affinity excludes do not count (default true).
    pub honor_affinity: bool,
    /// Nodes whose taints the pod does not tolerate do not count (default false).
    pub honor_taints: bool,
}
