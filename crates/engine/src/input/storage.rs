//! Input of storage objects and disruption budgets.

use super::{Key, LabelSelector, NodeTerm};

/// A persistent volume claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeClaimInput {
    /// Namespace and name.
    pub key: Key,
    /// Phase.
    pub phase: ClaimPhase,
    /// Storage class name; empty means none.
    pub class: String,
    /// Requested bytes.
    pub bytes: i64,
    /// The volume it is bound to.
    pub volume: Option<String>,
    /// UID of its only owner, if that is a pod.
    pub owner_pod: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
    /// `volume.kubernetes.io/selected-node`, if set.
    pub selected_node: Option<String>,
}

/// Phase of a volume claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClaimPhase {
    /// Not bound to a volume.
    #[default]
    Pending,
    /// Bound to a volume.
    Bound,
    /// `Lost`: its volume is gone.
    Lost,
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeInput {
    /// Name.
    pub name: String,
    /// Storage class name.
    pub class: String,
    /// Capacity in bytes.
    pub bytes: i64,
    /// The claim it is bound or reserved to.
    pub claim: Option<Key>,
    /// Phase `Available`.
    pub available: bool,
    /// Nodes it can be used from (required node affinity); an empty list means all.
    pub node_terms: Vec<NodeTerm>,
    /// Zone and region labels that its node must match: key and allowed values.
    pub zones: Vec<(String, Vec<String>)>,
    /// CSI driver, if any.
    pub driver: Option<String>,
}

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StorageClassInput {
    /// Name.
    pub name: String,
    /// Provisioner (driver) name.
    pub provisioner: String,
    /// `WaitForFirstConsumer`.
    pub wait_for_consumer: bool,
    /// The provisioner is a known CSI driver that tracks capacity.
    pub tracks_capacity: bool,
    /// Static provisioning only.
    pub no_provisioner: bool,
    /// Allowed topologies: any of these terms; an empty list means all nodes.
    pub allowed: Vec<NodeTerm>,
}

/// A `CSIStorageCapacity`: free capacity of a storage class in a topology segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CapacityInput {
    /// Object key.
    pub key: Key,
    /// Storage class name.
    pub class: String,
    /// Bytes free.
    pub bytes: i64,
    /// Node topology selector; `None` means all.
    pub nodes: Option<LabelSelector>,
}

/// Attach limit of a CSI driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeDriverLimit {
    /// CSI driver name.
    pub driver: String,
    /// Maximum of volumes.
    pub most: u32,
}

/// A pod disruption budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BudgetInput {
    /// Namespace and name.
    pub key: Key,
    /// Pods it covers, in its namespace.
    pub selector: LabelSelector,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
}
