//! What the engine reads of a pod group, and of a topology.

use super::Key;
use kai_units::{Span, Timestamp};

/// One pod group: pods that are scheduled together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupInput {
    /// Namespace and name.
    pub key: Key,
    /// Unique id, for effects.
    pub uid: String,
    /// The queue it wants to run in.
    pub queue: String,
    /// Resolved priority value.
    pub priority: i32,
    /// May its pods be evicted for others.
    pub preemptible: bool,
    /// When it was created.
    pub created: Timestamp,
    /// `spec.minMember`; read only when there are no sub-groups.
    pub min_member: Option<u32>,
    /// How many top-level sub-groups are required; all when absent.
    pub min_sub_group: Option<u32>,
    /// Constraint of the whole group; level names are node label keys.
    pub topology: Option<TopologyConstraint>,
    /// The sub-group tree, flat. An invalid tree has been refused before it gets here.
    pub sub_groups: Vec<SubGroupInput>,
    /// Why the group cannot be scheduled at all although it exists (an invalid tree), in words.
    pub broken: Option<String>,
    /// When it last started to run.
    pub last_start: Option<Timestamp>,
    /// When a pod of it was last evicted.
    pub last_eviction: Option<Timestamp>,
    /// Since when it runs below its minimum.
    pub stale_since: Option<Timestamp>,
    /// How long it may run below its minimum; negative means for ever; absent means the process default.
    pub staleness_grace: Option<Span>,
    /// How long it waits before it may cause evictions.
    pub preemption_delay: Option<Span>,
    /// Whether its pods get an unschedulable condition.
    pub mark_unschedulable: bool,
    /// The node pool its own label names, for conditions.
    pub node_pool: String,
    /// `schedulingBackoff` is 1: messages carry the pool's name.
    pub single_attempt: bool,
}

/// One sub-group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubGroupInput {
    /// Unique in its group.
    pub name: String,
    /// Parent sub-group; none for a top-level one.
    pub parent: Option<String>,
    /// Minimum pods of a leaf.
    pub min_member: Option<u32>,
    /// Minimum children of an inner sub-group; all when absent.
    pub min_sub_group: Option<u32>,
    /// Constraint of this sub-group.
    pub topology: Option<TopologyConstraint>,
}

/// Where the pods of a (sub-)group must or should be together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyConstraint {
    /// Name of the topology.
    pub topology: String,
    /// Node label key of the level that must hold all pods.
    pub required: Option<String>,
    /// Node label key of the level that should hold all pods.
    pub preferred: Option<String>,
}

/// A topology: node label keys from the outermost level to the innermost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyInput {
    /// Its name.
    pub name: String,
    /// Node label keys, outermost first.
    pub levels: Vec<String>,
}
