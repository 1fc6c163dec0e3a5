//! Input of dynamic resource allocation: slices, classes and claims.
//!
//! The caller evaluates CEL selectors; the engine receives, for each selector, the set of devices that it selects.

use super::{Key, Labels, NodeTerm};

/// A device of a driver's pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// Driver name.
    pub driver: String,
    /// Pool name.
    pub pool: String,
    /// Device name in the pool.
    pub device: String,
}

/// A resource slice: devices of one pool, and where they can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SliceInput {
    /// Object name.
    pub name: String,
    /// Driver name.
    pub driver: String,
    /// Pool name.
    pub pool: String,
    /// Pool generation: only slices of the newest generation count.
    pub generation: i64,
    /// Number of slices of the pool; an incomplete pool cannot serve `All` requests.
    pub slice_count: i64,
    /// Where the devices are.
    pub nodes: SliceNodes,
    /// Shared counters that devices draw from.
    pub counters: Vec<CounterSet>,
    /// The devices.
    pub devices: Vec<Device>,
}

/// Where the devices of a slice can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SliceNodes {
    /// On one node.
    Node(String),
    /// On nodes that match any of these terms.
    Selector(Vec<NodeTerm>),
    /// Everywhere.
    #[default]
    All,
    /// Specified per device.
    PerDevice,
}

/// A named set of shared counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CounterSet {
    /// Name of the set.
    pub name: String,
    /// Counter name and amount, in thousandths.
    pub counters: Vec<(String, i64)>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Name in the pool.
    pub name: String,
    /// Attributes as text, fully qualified, sorted, for `matchAttribute` and `distinctAttribute`.
    pub attributes: Labels,
    /// Location, when the slice specifies it per device.
    pub nodes: Option<SliceNodes>,
    /// Counters it draws while allocated.
    pub consumes: Vec<CounterSet>,
    /// Taints.
    pub taints: Vec<DeviceTaint>,
    /// May serve several claims at once.
    pub allow_multiple: bool,
    /// Capacities (name, amount in thousandths), read with `allow_multiple`.
    pub capacity: Vec<(String, i64)>,
}

/// A taint on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceTaint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// `NoSchedule` or `NoExecute`; `None` does nothing.
    pub effect: Option<super::TaintEffect>,
}

/// A device class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceClassInput {
    /// Name.
    pub name: String,
    /// The extended resource it backs, if any.
    pub extended_resource: Option<String>,
    /// Devices that its selectors accept, sorted; computed over all slices.
    pub accepts: Vec<DeviceId>,
    /// Its selectors accept every device.
    pub accepts_all: bool,
}

/// A resource claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimInput {
    /// Namespace and name.
    pub key: Key,
    /// Unique id.
    pub uid: String,
    /// Value of the queue label, if any.
    pub queue_label: Option<String>,
    /// UID of the pod that owns it, if it was created from a template.
    pub owner_pod: Option<String>,
    /// The binder created it for extended resources of one pod.
    pub synthetic: bool,
    /// Requests.
    pub requests: Vec<ClaimRequest>,
    /// Constraints across requests.
    pub constraints: Vec<ClaimConstraint>,
    /// Allocation.
    pub allocation: Option<ClaimAllocation>,
    /// UIDs of the pods it is reserved for.
    pub reserved_for: Vec<String>,
    /// Number of reservations for other objects than pods; they count as consumers.
    pub other_consumers: u32,
    /// All its consumers are pods that are terminating, or gone: its devices become free without an eviction.
    pub releasing: bool,
}

/// One request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// Name.
    pub name: String,
    /// Alternatives in order of preference; a plain request has exactly one, with an empty name.
    pub alternatives: Vec<RequestAlternative>,
}

/// One alternative of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestAlternative {
    /// Sub-request name; empty for a plain request.
    pub name: String,
    /// Device class.
    pub class: String,
    /// How many devices.
    pub mode: RequestMode,
    /// Devices that all its own selectors accept, sorted; `None` when it has no selector.
    pub accepts: Option<Vec<DeviceId>>,
    /// Admin access: does not consume the device.
    pub admin_access: bool,
    /// Device taints it tolerates.
    pub tolerations: Vec<super::Toleration>,
}

/// Number of devices that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestMode {
    /// Exactly this many.
    Exactly(u64),
    /// Every matching device.
    All,
    /// An unknown mode.
    Unknown,
}

impl Default for RequestMode {
    fn default() -> Self {
        Self::Exactly(1)
    }
}

/// A constraint over the devices of some requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimConstraint {
    /// All have the same value of this attribute. Requests by name; empty means all.
    Match {
        /// Which requests.
        requests: Vec<String>,
        /// Fully qualified attribute name.
        attribute: String,
    },
    /// All have different values of this attribute.
    Distinct {
        /// Which requests.
        requests: Vec<String>,
        /// Fully qualified attribute name.
        attribute: String,
    },
}

/// Allocation of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimAllocation {
    /// Devices with their requests.
    pub devices: Vec<ClaimDevice>,
    /// Where the claim can be used; an empty list means everywhere.
    pub node_terms: Vec<NodeTerm>,
}

/// A device allocated to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimDevice {
    /// Request, or `request/alternative`.
    pub request: String,
    /// The device.
    pub device: DeviceId,
    /// Admin access.
    pub admin_access: bool,
}
