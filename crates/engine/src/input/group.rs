//! Input of pod groups and topologies.

use super::Key;
use kai_units::{Span, Timestamp};

/// One pod group: pods that are scheduled together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupInput {
    /// Namespace and name.
    pub key: Key,
    /// UID.
    pub uid: String,
    /// Queue name.
    pub queue: String,
    /// Resolved priority value.
    pub priority: i32,
    /// Its pods may be evicted for other groups.
    pub preemptible: bool,
    /// When it was created.
    pub created: Timestamp,
    /// `spec.minMember`; read only when there are no sub-groups.
    pub min_member: Option<u32>,
    /// Minimum of top-level sub-groups; all when absent.
    pub min_sub_group: Option<u32>,
    /// Constraint of the whole group; level names are node label keys.
    pub topology: Option<TopologyConstraint>,
    /// The sub-group tree as a flat list.
    pub sub_groups: Vec<SubGroupInput>,
    /// Why the group cannot be scheduled (an invalid tree).
    pub invalid_reason: Option<String>,
    /// When it last started.
    pub last_start: Option<Timestamp>,
    /// When one of its pods was last evicted.
    pub last_eviction: Option<Timestamp>,
    /// Since when it runs below its minimum.
    pub stale_since: Option<Timestamp>,
    /// Grace period below its minimum; negative is unlimited; absent is the process default.
    pub staleness_grace: Option<Span>,
    /// Delay before it may cause evictions.
    pub preemption_delay: Option<Span>,
    /// Whether its pods get a `PodScheduled=False` condition.
    pub mark_unschedulable: bool,
    /// Node pool label, for conditions.
    pub node_pool: String,
    /// `schedulingBackoff` is 1: messages carry the pool's name.
    pub single_attempt: bool,
    /// Set while the group is in backoff.
    pub backoff: Option<Backoff>,
    /// Its own maximum run time; its queue may have another one.
    pub time_limit: Option<TimeLimit>,
    /// When its users were last warned of a time limit.
    pub limit_warned: Option<Timestamp>,
    /// When it reached a time limit that ends it: its pods are evicted and not placed again.
    pub ended: Option<Timestamp>,
}

/// Maximum run time of a group, or of the groups of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeLimit {
    /// Maximum time since the last start.
    pub limit: Span,
    /// Time after the limit until the action.
    pub grace: Span,
    /// What happens then.
    pub action: LimitAction,
}

/// What happens to a group that has reached its maximum run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitAction {
    /// It is preemptible, whatever its priority class says, and no minimum run time protects it.
    #[default]
    Preemptible,
    /// All its pods are evicted, and it is not placed again.
    End,
}

/// A group's backoff after decisions for it could not be carried out.
///
/// The caller owns the clock of the backoff: it sets the field and clears it at `until`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// What failed last.
    pub cause: String,
    /// Consecutive failures.
    pub failures: u32,
    /// Time of the next attempt.
    pub until: Timestamp,
    /// What the group is excluded from.
    pub scope: BackoffScope,
}

/// What a group in backoff is excluded from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackoffScope {
    /// It causes no evictions, but its pods are placed on free capacity.
    Evictions,
    /// Its pending pods are not placed and do not count as demand of its queue.
    #[default]
    Placement,
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

/// Topology constraint of a group or sub-group.
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
    /// Name.
    pub name: String,
    /// Node label keys, outermost first.
    pub levels: Vec<String>,
}
