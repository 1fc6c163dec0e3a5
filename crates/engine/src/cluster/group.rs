//! A pod group: a tree of sets whose leaves hold pods, and the gang rules over it.
//!
//! Pod counts per status are kept in the leaves; everything about sets derives from them on demand, since trees are
//! small and pods are many.

use super::pod::Status;
use crate::ids::{Idx, IndexVec, MemberIdx, PodIdx, QueueIdx, Sym};
use crate::share::QueueAmounts;
use kai_units::{Span, Timestamp};

/// Name of the only pod set of a group without sub-groups.
pub const DEFAULT_POD_SET: &str = "default";

/// One pod group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The object exists; a name that is only referred to has a slot too.
    pub present: bool,
    /// Namespace.
    pub namespace: Sym,
    /// Name.
    pub name: Sym,
    /// Unique id.
    pub uid: Sym,
    /// Name of its queue.
    pub queue_name: Sym,
    /// Its queue, when that exists and its chain of parents is complete.
    pub queue: Option<QueueIdx>,
    /// Priority value.
    pub priority: i32,
    /// Pods may be evicted for others.
    pub preemptible: bool,
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
    /// How long it waits before it causes evictions.
    pub preemption_delay: Option<Span>,
    /// Its pods get an unschedulable condition.
    pub mark_unschedulable: bool,
    /// Why it cannot be scheduled at all.
    pub broken: Option<String>,
    /// The tree; the first member is the root.
    pub members: IndexVec<MemberIdx, Member>,
    /// Pods of the group, invalid ones included; in no particular order.
    pub pods: Vec<PodIdx>,
    /// Pods whose label names no pod set of the tree.
    pub invalid: u32,
    /// Counts changes to the pods' statuses; equal stamps mean equal statuses.
    pub stamp: u64,
    /// What it adds to its queue's ledger: allocated and requested.
    pub counted: Counted,
}

/// A group's part of its queue's ledger when a cycle begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The queue that carries it.
    pub queue: Option<QueueIdx>,
    /// Held.
    pub allocated: QueueAmounts,
    /// Held, if the group is not preemptible.
    pub allocated_np: QueueAmounts,
    /// Held and wanted.
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
    /// Where its pods belong together.
    pub topology: Option<Constraint>,
}

/// A set of members, or a set of pods.
#[derive(Clone, Debug)]
pub enum MemberKind {
    /// Has members.
    Set {
        /// Its members, in name order.
        children: Vec<MemberIdx>,
        /// How many it needs; all when absent.
        min: Option<u32>,
    },
    /// Has pods.
    Pods(PodSet),
}

/// A leaf of the tree.
#[derive(Clone, Debug)]
pub struct PodSet {
    /// How many pods it needs.
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
    /// Pods that have a place or will have it.
    pub fn active_allocated(&self) -> u32 {
        self.sum(Status::is_active_allocated)
    }
    /// Pods that occupy a node.
    pub fn active_used(&self) -> u32 {
        self.sum(Status::is_active_used)
    }
    /// Pods that run or may still run, gated ones not counted.
    pub fn ready_pods(&self) -> u32 {
        self.sum(Status::is_alive) - self.count(Status::Gated)
    }
    /// Its minimum has a place.
    pub fn is_satisfied(&self) -> bool {
        self.active_allocated() >= self.min
    }
    /// Enough pods are there.
    pub fn is_ready(&self) -> bool {
        self.ready_pods() >= self.min
    }
    /// More pods than its minimum.
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
    /// The root of the tree.
    pub fn root() -> MemberIdx {
        MemberIdx::new(0)
    }
    /// All leaves.
    pub fn pod_sets(&self) -> impl Iterator<Item = (MemberIdx, &PodSet)> {
        self.members.enumerated().filter_map(|(i, m)| m.pod_set().map(|p| (i, p)))
    }
    /// How many members a set needs.
    pub fn needed(&self, set: MemberIdx) -> u32 {
        match &self.members[set].kind {
            MemberKind::Set { children, min } => min.unwrap_or(children.len() as u32),
            MemberKind::Pods(pods) => pods.min,
        }
    }
    /// Members of a set (or pods of a pod set) that have what they need.
    pub fn satisfied_count(&self, member: MemberIdx) -> u32 {
        match &self.members[member].kind {
            MemberKind::Set { children, .. } => {
                children.iter().filter(|c| self.is_satisfied(**c)).count() as u32
            }
            MemberKind::Pods(pods) => pods.active_allocated(),
        }
    }
    /// The member has what it needs.
    pub fn is_satisfied(&self, member: MemberIdx) -> bool {
        self.satisfied_count(member) >= self.needed(member)
    }
    /// Enough pods are there, and ungated, in enough members.
    pub fn is_member_ready(&self, member: MemberIdx) -> bool {
        match &self.members[member].kind {
            MemberKind::Set { children, .. } => {
                let ready = children.iter().filter(|c| self.is_member_ready(**c)).count() as u32;
                ready >= self.needed(member)
            }
            MemberKind::Pods(pods) => pods.is_ready(),
        }
    }
    /// Enough pods are there to schedule it.
    pub fn is_ready(&self) -> bool {
        self.is_member_ready(Self::root())
    }
    /// Pods in one status.
    pub fn count(&self, status: Status) -> u32 {
        self.pod_sets().map(|(_, p)| p.count(status)).sum()
    }
    /// Pods waiting for a node.
    pub fn pending(&self) -> u32 {
        self.count(Status::Pending)
    }
    /// Pods that have a place or will have it.
    pub fn active_allocated(&self) -> u32 {
        self.pod_sets().map(|(_, p)| p.active_allocated()).sum()
    }
    /// Pods that occupy a node.
    pub fn active_used(&self) -> u32 {
        self.pod_sets().map(|(_, p)| p.active_used()).sum()
    }
    /// Some pod set has more pods than it needs.
    pub fn is_elastic(&self) -> bool {
        self.pod_sets().any(|(_, p)| p.is_elastic())
    }
    /// The gang's minimum is in use: enough members of every set that is needed.
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
    /// It runs below its minimum.
    pub fn is_stale(&self) -> bool {
        self.count(Status::Succeeded) == 0 && self.active_used() > 0 && !self.is_gang_satisfied()
    }
    /// Where it stands against its minimum, for the elastic order.
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
    /// A gang: some pod set needs more than one pod.
    pub fn is_gang(&self) -> bool {
        self.pod_sets().any(|(_, p)| p.min > 1)
    }
}

/// Where a group stands against its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElasticState {
    /// Some pod set has less than it needs.
    BelowMinimum,
    /// Every pod set has exactly what it needs.
    AtMinimum,
    /// Some pod set has more than it needs, none has less.
    AboveMinimum,
}
