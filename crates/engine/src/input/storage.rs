//! What the engine reads of storage, and of disruption budgets.

use super::{Key, LabelSelector, NodeTerm};

/// A persistent volume claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeClaimInput {
    /// Namespace and name.
    pub key: Key,
    /// Where it is in its life.
    pub phase: ClaimPhase,
    /// Storage class name; empty means none.
    pub class: String,
    /// Bytes wanted.
    pub bytes: i64,
    /// The volume it is bound to.
    pub volume: Option<String>,
    /// Its only owner, when that is a pod, by uid.
    pub owner_pod: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
    /// The node chosen for it (annotation), where there is one.
    pub selected_node: Option<String>,
}

/// Where a volume claim is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClaimPhase {
    /// Not bound to a volume.
    #[default]
    Pending,
    /// Bound to a volume.
    Bound,
    /// Its volume is gone.
    Lost,
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeInput {
    /// Its name.
    pub name: String,
    /// Storage class name.
    pub class: String,
    /// Bytes it holds.
    pub bytes: i64,
    /// The claim it is bound or reserved to.
    pub claim: Option<Key>,
    /// It is available for a claim.
    pub available: bool,
    /// Nodes it can be used from (required node affinity); an empty list means all.
    pub node_terms: Vec<NodeTerm>,
    /// Zone and region labels that its node must match: key and allowed values.
    pub zones: Vec<(String, Vec<String>)>,
    /// CSI driver, where it has one.
    pub driver: Option<String>,
}

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StorageClassInput {
    /// Its name.
    pub name: String,
    /// Provisioner (driver) name.
    pub provisioner: String,
    /// Volumes are bound when a pod is scheduled, not before.
    pub wait_for_consumer: bool,
    /// The provisioner is a known CSI driver that tracks capacity.
    pub tracks_capacity: bool,
    /// The provisioner cannot make volumes (static provisioning only).
    pub no_provisioner: bool,
    /// Nodes that volumes can be made for: any of these terms; an empty list means all.
    pub allowed: Vec<NodeTerm>,
}

/// Free capacity of one storage class in one part of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CapacityInput {
    /// Object key.
    pub key: Key,
    /// Storage class name.
    pub class: String,
    /// Bytes free.
    pub bytes: i64,
    /// Nodes it belongs to; `None` means all.
    pub nodes: Option<LabelSelector>,
}

/// How many volumes of a driver a node can attach.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeDriverLimit {
    /// CSI driver name.
    pub driver: String,
    /// Most volumes.
    pub most: u32,
}

/// A disruption budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BudgetInput {
    /// Namespace and name.
    pub key: Key,
    /// Pods it covers, in its namespace.
    pub selector: LabelSelector,
    /// Evictions it still allows.
    pub disruptions_allowed: i32,
}
