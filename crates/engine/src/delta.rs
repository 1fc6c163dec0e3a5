//! Changes to the cluster, one object at a time.

use crate::input::{
    BudgetInput, CapacityInput, ClaimInput, DeviceClassInput, GroupInput, Key, NodeInput, PodInput,
    QueueInput, SliceInput, StorageClassInput, TopologyInput, VolumeClaimInput, VolumeInput,
};

/// One change. Objects refer to each other by name and arrive in any order; a reference to a missing object is
/// resolved when the object arrives.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is its object, set or gone")]
pub enum Delta {
    Node(Box<NodeInput>),
    NodeGone(String),
    Pod(Box<PodInput>),
    PodGone(Key),
    Group(Box<GroupInput>),
    GroupGone(Key),
    Queue(Box<QueueInput>),
    QueueGone(String),
    Topology(TopologyInput),
    TopologyGone(String),
    ConfigMap(Key),
    ConfigMapGone(Key),
    VolumeClaim(VolumeClaimInput),
    VolumeClaimGone(Key),
    Volume(VolumeInput),
    VolumeGone(String),
    StorageClass(StorageClassInput),
    StorageClassGone(String),
    Capacity(CapacityInput),
    CapacityGone(Key),
    Slice(SliceInput),
    SliceGone(String),
    DeviceClass(DeviceClassInput),
    DeviceClassGone(String),
    Claim(Box<ClaimInput>),
    ClaimGone(Key),
    Budget(BudgetInput),
    BudgetGone(Key),
}
