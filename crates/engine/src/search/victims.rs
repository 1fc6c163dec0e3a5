//! The groups that may have to give way, worst first.
//!
//! Candidates are sorted once per action and leaf queue, and mostly stand as they did in the last cycle ([`SortedCandidates`]).
//! Every probe of a search walks them with fresh cursors and asks the rules only about groups whose turn it is; a group
//! that gives up a part comes back with the rest.

use super::accumulate::freed_by;
use super::sorted_list::SortedList;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use crate::order::evict::EvictablePods;
use crate::order::groups;
use crate::order::queue_heap::{Leaves, Purpose, QueueHeap};
use crate::order::tree_walk::leaf_of;
use crate::plugin::{GroupOrder, Registry};
use crate::share::{QueueAmounts, difference, sum};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};

/// Preemptible groups with pods that may be evicted, by leaf queue.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    leaves: BTreeMap<QueueIdx, Leaf>,
}

#[derive(Debug, Default)]
struct Leaf {
    /// In victim order, once somebody asked; until then there may be some who have nothing left to give.
    groups: SortedList<GroupIdx>,
    is_sorted: bool,
    /// What each group holds, with the stamp of its pods, and all of them together, once sorted.
    held: FxHashMap<GroupIdx, (u64, QueueAmounts)>,
    total: QueueAmounts,
}

impl Leaf {
    /// All of these in victim order.
    fn sorted(cluster: &Cluster, registry: &Registry, members: impl Iterator<Item = GroupIdx>) -> Self {
        let mut leaf = Self { is_sorted: true, ..Self::default() };
        let mut members: Vec<GroupIdx> = members.collect();
        groups::sort(cluster, registry, &mut members);
        members.reverse();
        for &group in &members {
            leaf.count(cluster, group);
        }
        *leaf.groups.members_mut() = members;
        leaf
    }

    fn count(&mut self, cluster: &Cluster, group: GroupIdx) {
        let mut amounts = [0; 3];
        for &pod in &cluster.groups[group].pods {
            let p = &cluster.pods[pod];
            let Some(place) = p.state.place.as_ref().filter(|_| p.state.status.is_active_allocated()) else {
                continue;
            };
            let [cpu, memory, _] = cluster.accepted(pod, place);
            let gpus = freed_by(cluster, pod).map_or(0, |(_, gpus)| gpus);
            amounts = sum(&amounts, &[cpu, memory, gpus]);
        }
        self.note(group, cluster.groups[group].stamp, amounts);
    }

    fn note(&mut self, group: GroupIdx, stamp: u64, amounts: QueueAmounts) {
        self.total = sum(&self.total, &amounts);
        self.held.insert(group, (stamp, amounts));
    }

    /// Puts one in where the order says, among those that are sorted.
    fn insert(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let after = |g: &GroupIdx| groups::compare(cluster, registry, group, *g).is_lt();
        let at = self.groups.remaining().partition_point(after);
        self.groups.insert(at, group);
        self.count(cluster, group);
    }

    /// Takes those over who stand where they did; says who is left to be put in.
    fn recall(&mut self, cluster: &Cluster, line: &[CandidateEntry]) -> Vec<GroupIdx> {
        let members = std::mem::take(self.groups.members_mut());
        let mut recalled = Vec::with_capacity(line.len());
        self.held.reserve(line.len());
        for entry in line.iter().filter(|entry| cluster.groups[entry.group].stamp == entry.stamp) {
            self.groups.members_mut().push(entry.group);
            self.note(entry.group, entry.stamp, entry.held);
            recalled.push(entry.group);
        }
        recalled.sort_unstable();
        members.into_iter().filter(|group| recalled.binary_search(group).is_err()).collect()
    }
}

/// How the candidates of leaf queues entry when they were last sorted. The order of two groups follows from their own
/// state alone, so that those whose pods have the same stamp still stand in that order.
#[derive(Debug, Default)]
pub(crate) struct SortedCandidates {
    /// The rules by which they were sorted.
    order: Vec<Discriminant<GroupOrder>>,
    leaves: FxHashMap<QueueIdx, Vec<CandidateEntry>>,
}

/// One of a line.
#[derive(Clone, Copy, Debug)]
struct CandidateEntry {
    group: GroupIdx,
    stamp: u64,
    held: QueueAmounts,
}

impl SortedCandidates {
    /// The line of a leaf, if it was sorted by the same rules.
    fn of(&self, registry: &Registry, leaf: QueueIdx) -> Option<&[CandidateEntry]> {
        let same = lasting_order(registry).is_some_and(|order| order == self.order);
        if same { self.leaves.get(&leaf).map(Vec::as_slice) } else { None }
    }
}

/// The rules of an order that follows from the groups' own states; a user's rule may read anything.
fn lasting_order(registry: &Registry) -> Option<Vec<Discriminant<GroupOrder>>> {
    let rule = |order: &GroupOrder| match order {
        GroupOrder::Priority | GroupOrder::Elastic => Some(discriminant(order)),
        GroupOrder::Custom(_) => None,
    };
    registry.group_order.iter().map(rule).collect()
}

impl Candidates {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let mut candidates = Self::default();
        for (group, _) in cluster.present_groups() {
            if let Some(leaf) = leaf_of(cluster, group).filter(|_| has_evictable_pods(cluster, group)) {
                candidates.leaves.entry(leaf).or_default().groups.members_mut().push(group);
            }
        }
        candidates
    }

    /// The leaf queues that have candidates.
    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueIdx> + '_ {
        self.leaves.keys().copied()
    }

    /// Puts the candidates of a leaf in victim order; `remembers` says whether the last cycle's may be taken over.
    pub(crate) fn sort(&mut self, cluster: &Cluster, registry: &Registry, leaf: QueueIdx, remembers: bool) {
        if let Some(entry) = self.leaves.get_mut(&leaf)
            && !std::mem::replace(&mut entry.is_sorted, true)
        {
            entry.groups.members_mut().sort_unstable();
            entry.groups.members_mut().dedup();
            let mut new = match cluster.sorted_candidates.of(registry, leaf).filter(|_| remembers) {
                Some(line) => entry.recall(cluster, line),
                None => std::mem::take(entry.groups.members_mut()),
            };
            new.retain(|group| has_evictable_pods(cluster, *group));
            if new.len() > entry.groups.remaining().len() / 8 {
                *entry = Leaf::sorted(
                    cluster,
                    registry,
                    new.into_iter().chain(entry.groups.remaining().iter().copied()),
                );
                return;
            }
            for group in new {
                entry.insert(cluster, registry, group);
            }
        }
    }

    /// Remembers how the candidates stand, for the next cycle.
    pub(crate) fn remember(&self, registry: &Registry, lines: &mut SortedCandidates) {
        let Some(order) = lasting_order(registry) else { return };
        if lines.order != order {
            *lines = SortedCandidates { order, ..SortedCandidates::default() };
        }
        for (&leaf, entry) in self.leaves.iter().filter(|(_, entry)| entry.is_sorted) {
            let line = lines.leaves.entry(leaf).or_default();
            line.clear();
            line.extend(entry.groups.remaining().iter().map(|group| {
                let (stamp, held) = entry.held[group];
                CandidateEntry { group: *group, stamp, held }
            }));
        }
    }

    /// What the candidates of a leaf, which have been sorted, hold together.
    pub(crate) fn total_of(&self, leaf: QueueIdx) -> QueueAmounts {
        self.leaves.get(&leaf).map_or([0; 3], |entry| entry.total)
    }

    /// The candidates of a leaf, which have been sorted.
    pub(crate) fn of_leaf(&self, leaf: QueueIdx) -> &[GroupIdx] {
        self.leaves.get(&leaf).map_or(&[], |entry| entry.groups.remaining())
    }

    /// Takes groups out whose pods changed. All of them must be out before one is put back: those that changed no
    /// longer stand where the order says.
    pub(crate) fn remove(&mut self, cluster: &Cluster, groups: &[GroupIdx]) {
        for (leaf, changed) in by_leaf(cluster, groups) {
            let Some(entry) = self.leaves.get_mut(&leaf).filter(|entry| entry.is_sorted) else { continue };
            let mut known = 0;
            for group in &changed {
                if let Some((_, held)) = entry.held.remove(group) {
                    entry.total = difference(&entry.total, &held);
                    known += 1;
                }
            }
            entry.groups.remove_matching(known, |group| changed.binary_search(group).is_ok());
        }
    }

    /// Puts a group back that still has something to give.
    pub(crate) fn put_back(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let Some(leaf) = leaf_of(cluster, group).filter(|_| has_evictable_pods(cluster, group)) else {
            return;
        };
        let entry = self.leaves.entry(leaf).or_default();
        if !entry.is_sorted {
            entry.groups.members_mut().push(group);
            return;
        }
        entry.insert(cluster, registry, group);
    }
}

/// Whether a group has something that it could be made to give up.
fn has_evictable_pods(cluster: &Cluster, group: GroupIdx) -> bool {
    let g = &cluster.groups[group];
    g.preemptible && g.active_allocated() > 0
}

/// Groups by their leaf queues, each in the order of their numbers.
pub(crate) fn by_leaf(cluster: &Cluster, groups: &[GroupIdx]) -> BTreeMap<QueueIdx, Vec<GroupIdx>> {
    let mut by_leaf: BTreeMap<QueueIdx, Vec<GroupIdx>> = BTreeMap::new();
    for &group in groups {
        if let Some(leaf) = leaf_of(cluster, group) {
            by_leaf.entry(leaf).or_default().push(group);
        }
    }
    for groups in by_leaf.values_mut() {
        groups.sort_unstable();
    }
    by_leaf
}

/// A walk over the candidates of some leaf queues.
pub(crate) struct VictimWalk<'a> {
    registry: &'a Registry,
    /// How many more groups may have a turn.
    groups_left: u32,
    queues: QueueHeap<'a>,
    leaves: Cursors<'a>,
}

struct Cursors<'a> {
    leaves: BTreeMap<QueueIdx, Cursor<'a>>,
    registry: &'a Registry,
}

struct Cursor<'a> {
    sorted: &'a [GroupIdx],
    /// Behind the group that is listed next.
    at: usize,
    listed: Option<EvictablePods>,
    /// Groups that gave up a part already, with the rest; last in order first.
    rest: Vec<EvictablePods>,
    /// What the groups held whose turn is over.
    taken: QueueAmounts,
}

impl Cursor<'_> {
    /// Moves on to the next listed group that the rules allow.
    fn list_next(&mut self, cluster: &Cluster, may: &impl Fn(GroupIdx) -> bool) {
        self.listed = None;
        while let (None, Some(&group)) = (&self.listed, self.sorted.get(self.at)) {
            self.at += 1;
            if may(group) {
                self.listed = Some(EvictablePods::of(cluster, group));
            }
        }
    }

    fn next(&self, cluster: &Cluster, registry: &Registry) -> Option<&EvictablePods> {
        match (&self.listed, self.rest.last()) {
            (Some(listed), Some(rest)) if victim_order(cluster, registry, rest, listed).is_lt() => Some(rest),
            (Some(listed), _) => Some(listed),
            (None, rest) => rest,
        }
    }
}

impl Leaves for Cursors<'_> {
    fn is_empty(&self, leaf: QueueIdx) -> bool {
        self.leaves.get(&leaf).is_none_or(|cursor| cursor.listed.is_none() && cursor.rest.is_empty())
    }
    fn next_amounts(&self, cluster: &Cluster, leaf: QueueIdx) -> (QueueAmounts, QueueAmounts) {
        let cursor = &self.leaves[&leaf];
        let next = cursor.next(cluster, self.registry).map_or([0; 3], |held| held.amounts(cluster));
        ([0; 3], sum(&cursor.taken, &next))
    }
}

impl<'a> VictimWalk<'a> {
    /// A walk over the sorted candidates of some leaves, as far as the rules allow.
    pub(crate) fn new(
        cluster: &Cluster,
        registry: &'a Registry,
        total: QueueAmounts,
        leaves: impl IntoIterator<Item = (QueueIdx, &'a [GroupIdx])>,
        may: &impl Fn(GroupIdx) -> bool,
        most_groups: Option<u32>,
    ) -> Self {
        let mut cursors = Cursors { leaves: BTreeMap::new(), registry };
        for (leaf, sorted) in leaves {
            let mut cursor = Cursor { sorted, at: 0, listed: None, rest: Vec::new(), taken: [0; 3] };
            cursor.list_next(cluster, may);
            cursors.leaves.insert(leaf, cursor);
        }
        let queues: Vec<QueueIdx> = cursors.leaves.keys().copied().collect();
        let queues = QueueHeap::new(cluster, registry, Purpose::Evict, total, &cursors, queues, None);
        Self { registry, groups_left: most_groups.unwrap_or(u32::MAX), queues, leaves: cursors }
    }

    /// Whether nobody has anything to give.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Takes the group whose turn it is, with what it still holds.
    pub(crate) fn pop(
        &mut self,
        cluster: &Cluster,
        may: &impl Fn(GroupIdx) -> bool,
    ) -> Option<EvictablePods> {
        let leaf = self.queues.best_leaf(cluster, &self.leaves)?;
        let cursor = self.leaves.leaves.get_mut(&leaf).expect("the heap holds known leaves");
        let from_rest = match (&cursor.listed, cursor.rest.last()) {
            (Some(listed), Some(rest)) => victim_order(cluster, self.registry, rest, listed).is_lt(),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if !from_rest {
            self.groups_left = self.groups_left.checked_sub(1)?;
        }
        let held = if from_rest { cursor.rest.pop() } else { cursor.listed.take() };
        if !from_rest {
            cursor.list_next(cluster, may);
        }
        let held = held.expect("the heap holds leaves that are not empty");
        cursor.taken = sum(&cursor.taken, &held.amounts(cluster));
        self.queues.taken(cluster, &self.leaves, leaf);
        Some(held)
    }

    /// Puts the rest of a group back.
    pub(crate) fn push(&mut self, cluster: &Cluster, held: EvictablePods) {
        if held.is_empty() {
            return;
        }
        let Some(leaf) = leaf_of(cluster, held.group()) else { return };
        let cursor = self.leaves.leaves.get_mut(&leaf).expect("the group came from a known leaf");
        let before = |other: &EvictablePods| victim_order(cluster, self.registry, other, &held).is_gt();
        let at = cursor.rest.partition_point(before);
        cursor.rest.insert(at, held);
        self.queues.put(cluster, &self.leaves, leaf);
    }
}

/// The order of victims: `Less` goes first.
fn victim_order(
    cluster: &Cluster,
    registry: &Registry,
    left: &EvictablePods,
    right: &EvictablePods,
) -> Ordering {
    groups::compare_as(
        cluster,
        registry,
        (right.group(), || right.elastic_state(cluster)),
        (left.group(), || left.elastic_state(cluster)),
    )
}
