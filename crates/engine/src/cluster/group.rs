//! A pod group: a tree of sub-groups whose leaves are pod sets, and the gang rules over it.
//!
//! Leaves keep pod counts per status; inner sets are evaluated on demand, since trees are small and pods are many.

use super::pod::Status;
use crate::ids::{Idx, IndexVec, MemberIdx, PodIdx, QueueIdx, Sym};
use crate::input::{Backoff, BackoffScope, TimeLimit};
use crate::share::QueueAmounts;
use kai_units::{Span, Timestamp};

/// Name of the only pod set of a group without sub-groups.
pub const DEFAULT_POD_SET: &str = "default";

/// One pod group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The object exists; a name that is only referenced has a slot too.
    pub present: bool,
    /// Namespace.
    pub namespace: Sym,
    /// Name.
    pub name: Sym,
    /// Unique id.
    pub uid: Sym,
    /// Name of its queue.
    pub queue_name: Sym,
    /// Its queue, if the queue and all of its ancestors exist.
    pub queue: Option<QueueIdx>,
    /// Priority value.
    pub priority: i32,
    /// Pods may be evicted for other groups, by its priority class or `preemptibility`.
    pub declared_preemptible: bool,
    /// Pods may be evicted for other groups: as declared, or since it exceeds its maximum run time.
    pub preemptible: bool,
    /// It runs, and the grace period of a maximum run time has ended.
    pub exceeds_time_limit: bool,
    /// When it was created.
    pub created: Timestamp,
    /// When it last started.
    pub last_start: Option<Timestamp>,
    /// When one of its pods was last evicted.
    pub last_eviction: Option<Timestamp>,
    /// Since when it runs below its minimum.
    pub stale_since: Option<Timestamp>,
    /// How long it may run below its minimum.
    pub staleness_grace: Option<Span>,
    /// Delay before it may cause evictions.
    pub preemption_delay: Option<Span>,
    /// Its pods get a `PodScheduled=False` condition.
    pub mark_unschedulable: bool,
    /// Why it cannot be scheduled (an invalid tree).
    pub invalid_reason: Option<String>,
    /// Its backoff, while it lasts.
    pub backoff: Option<Box<Backoff>>,
    /// Its own maximum run time.
    pub time_limit: Option<TimeLimit>,
    /// When its users were last warned of a time limit.
    pub limit_warned: Option<Timestamp>,
    /// When it reached a time limit that ends it.
    pub ended: Option<Timestamp>,
    /// The tree; the first member is the root.
    pub members: IndexVec<MemberIdx, Member>,
    /// Pods of the group, invalid ones included; in no particular order.
    pub pods: Vec<PodIdx>,
    /// Pods whose label names no pod set of the tree.
    pub invalid: u32,
    /// Version of the pods' statuses; equal stamps mean equal statuses.
    pub stamp: u64,
    /// Its part of its queue's ledger.
    pub counted: Counted,
}

/// A group's part of its queue's ledger when a cycle begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The queue that was charged.
    pub queue: Option<QueueIdx>,
    /// Allocated.
    pub allocated: QueueAmounts,
    /// Allocated, if the group is non-preemptible.
    pub allocated_np: QueueAmounts,
    /// Allocated and pending.
    pub request: QueueAmounts,
}

/// A member of the tree.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name; empty for the root.
    pub name: Sym,
    /// Parent set; none for the root.
    pub parent: Option<MemberIdx>,
    /// A set or a pod set.
    pub kind: MemberKind,
    /// Topology constraint of its pods.
    pub topology: Option<Constraint>,
}

/// A set of members, or a set of pods.
#[derive(Clone, Debug)]
pub enum MemberKind {
    /// An inner set.
    Set {
        /// Its members, in name order.
        children: Vec<MemberIdx>,
        /// Minimum of members (`minSubGroup`); all when absent.
        min: Option<u32>,
    },
    /// A leaf.
    Pods(PodSet),
}

/// A leaf of the tree.
#[derive(Clone, Debug)]
pub struct PodSet {
    /// Minimum of pods (`minMember`).
    pub min: u32,
    /// Its pods in task order.
    pub pods: Vec<PodIdx>,
    /// Pods per status.
    pub counts: [u32; Status::COUNT],
    /// No pod before this position may be chosen for allocation.
    pub first_pending: u32,
}

/// A topology constraint with resolved names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constraint {
    /// The topology's name.
    pub topology: Sym,
    /// Label key of the required level.
    pub required: Option<Sym>,
    /// Label key of the preferred level.
    pub preferred: Option<Sym>,
}

impl PodSet {
    /// An empty pod set.
    pub fn new(min: u32) -> Self {
        Self { min, pods: Vec::new(), counts: [0; Status::COUNT], first_pending: 0 }
    }
    /// Pods in one status.
    pub fn count(&self, status: Status) -> u32 {
        self.counts[status as usize]
    }
    fn sum(&self, test: fn(Status) -> bool) -> u32 {
        Status::ALL.iter().filter(|s| test(**s)).map(|s| self.counts[*s as usize]).sum()
    }
    /// Allocated or pipelined pods.
    pub fn active_allocated(&self) -> u32 {
        self.sum(Status::is_active_allocated)
    }
    /// Pods that occupy a node, releasing ones included.
    pub fn active_used(&self) -> u32 {
        self.sum(Status::is_active_used)
    }
    /// Pods that are neither terminal nor terminating.
    pub fn alive(&self) -> u32 {
        self.sum(Status::is_alive)
    }
    /// Pods that run or may be placed now: gated ones and those in backoff are not counted.
    pub fn ready_pods(&self) -> u32 {
        self.alive() - self.count(Status::Gated) - self.count(Status::InBackoff)
    }
    /// Its minimum is allocated.
    pub fn is_satisfied(&self) -> bool {
        self.active_allocated() >= self.min
    }
    /// Its minimum of pods exists.
    pub fn is_ready(&self) -> bool {
        self.ready_pods() >= self.min
    }
    /// It has more pods than its minimum.
    pub fn is_elastic(&self) -> bool {
        self.pods.len() > self.min as usize
    }
}

impl Member {
    /// The pods of a leaf.
    pub fn pod_set(&self) -> Option<&PodSet> {
        match &self.kind {
            MemberKind::Pods(set) => Some(set),
            MemberKind::Set { .. } => None,
        }
    }
    /// The pods of a leaf, mutably.
    pub fn pod_set_mut(&mut self) -> Option<&mut PodSet> {
        match &mut self.kind {
            MemberKind::Pods(set) => Some(set),
            MemberKind::Set { .. } => None,
        }
    }
    /// The members of a set; none for a leaf.
    pub fn children(&self) -> &[MemberIdx] {
        match &self.kind {
            MemberKind::Set { children, .. } => children,
            MemberKind::Pods(_) => &[],
        }
    }
}

impl Group {
    /// Its pending pods are not placed.
    pub fn is_excluded_from_placement(&self) -> bool {
        self.ended.is_some()
            || self.backoff.as_deref().is_some_and(|backoff| backoff.scope == BackoffScope::Placement)
    }
    /// The root of the tree.
    pub fn root() -> MemberIdx {
        MemberIdx::new(0)
    }
    /// All leaves.
    pub fn pod_sets(&self) -> impl Iterator<Item = (MemberIdx, &PodSet)> {
        self.members.enumerated().filter_map(|(i, m)| m.pod_set().map(|p| (i, p)))
    }
    /// Minimum of members of a set.
    pub fn needed(&self, set: MemberIdx) -> u32 {
        match &self.members[set].kind {
            MemberKind::Set { children, min } => min.unwrap_or(children.len() as u32),
            MemberKind::Pods(pods) => pods.min,
        }
    }
    /// Satisfied members of a set, or allocated pods of a pod set.
    pub fn satisfied_count(&self, member: MemberIdx) -> u32 {
        match &self.members[member].kind {
            MemberKind::Set { children, .. } => {
                children.iter().filter(|c| self.is_satisfied(**c)).count() as u32
            }
            MemberKind::Pods(pods) => pods.active_allocated(),
        }
    }
    /// The minimum of the member is allocated.
    pub fn is_satisfied(&self, member: MemberIdx) -> bool {
        self.satisfied_count(member) >= self.needed(member)
    }
    /// Enough members have their minimum of ungated pods.
    pub fn is_member_ready(&self, member: MemberIdx) -> bool {
        match &self.members[member].kind {
            MemberKind::Set { children, .. } => {
                let ready = children.iter().filter(|c| self.is_member_ready(**c)).count() as u32;
                ready >= self.needed(member)
            }
            MemberKind::Pods(pods) => pods.is_ready(),
        }
    }
    /// Enough pods exist to schedule the group.
    pub fn is_ready(&self) -> bool {
        self.is_member_ready(Self::root())
    }
    /// Pods in one status.
    pub fn count(&self, status: Status) -> u32 {
        self.pod_sets().map(|(_, p)| p.count(status)).sum()
    }
    /// Pending pods.
    pub fn pending(&self) -> u32 {
        self.count(Status::Pending)
    }
    /// Allocated or pipelined pods.
    pub fn active_allocated(&self) -> u32 {
        self.pod_sets().map(|(_, p)| p.active_allocated()).sum()
    }
    /// Pods that occupy a node, releasing ones included.
    pub fn active_used(&self) -> u32 {
        self.pod_sets().map(|(_, p)| p.active_used()).sum()
    }
    /// Some pod set has more pods than its minimum.
    pub fn is_elastic(&self) -> bool {
        self.pod_sets().any(|(_, p)| p.is_elastic())
    }
    /// The gang's minimum occupies nodes, in enough members of every required set.
    pub fn is_gang_satisfied(&self) -> bool {
        self.member_gang_satisfied(Self::root())
    }
    fn member_gang_satisfied(&self, member: MemberIdx) -> bool {
        match &self.members[member].kind {
            MemberKind::Set { children, .. } => {
                let count = children.iter().filter(|c| self.member_gang_satisfied(**c)).count() as u32;
                count >= self.needed(member)
            }
            MemberKind::Pods(pods) => pods.active_used() >= pods.min,
        }
    }
    /// It runs below its minimum (KAI's stale gang).
    pub fn is_stale(&self) -> bool {
        self.count(Status::Succeeded) == 0 && self.active_used() > 0 && !self.is_gang_satisfied()
    }
    /// Its allocation relative to its minimum, for KAI's `elastic` order.
    pub fn elastic_state(&self) -> ElasticState {
        let mut state = ElasticState::AtMinimum;
        for (_, pods) in self.pod_sets() {
            let has = pods.active_allocated();
            if has < pods.min {
                return ElasticState::BelowMinimum;
            }
            if has > pods.min {
                state = ElasticState::AboveMinimum;
            }
        }
        state
    }
    /// A gang: some pod set has a minimum above one.
    pub fn is_gang(&self) -> bool {
        self.pod_sets().any(|(_, p)| p.min > 1)
    }
}

/// A group's allocation relative to its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElasticState {
    /// Some pod set is below its minimum.
    BelowMinimum,
    /// Every pod set is exactly at its minimum.
    AtMinimum,
    /// Some pod set is above its minimum, none below.
    AboveMinimum,
}
