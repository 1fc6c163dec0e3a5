//! Orders the groups that may be evicted, lowest in job order first.
//!
//! Candidates are sorted once per action and leaf queue; most keep their position from the last cycle
//! ([`SortedCandidates`]). Every probe of a search walks them with new cursors and evaluates the rules only for the
//! next groups. A group of which a part is selected is inserted again with its remaining pods.

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

#[derive(Debug, Default)]
pub(crate) struct Candidates {
    leaves: BTreeMap<QueueIdx, Leaf>,
}

#[derive(Debug, Default)]
struct Leaf {
    /// In victim order once sorted; until then it may contain groups without evictable pods.
    groups: SortedList<GroupIdx>,
    is_sorted: bool,
    /// Allocation of each group, with the version of its pods, and the sum of all, once sorted.
    held: FxHashMap<GroupIdx, (u64, QueueAmounts)>,
    total: QueueAmounts,
}

impl Leaf {
    fn sorted(cluster: &Cluster, registry: &Registry, members: impl Iterator<Item = GroupIdx>) -> Self {
        let mut leaf = Self { is_sorted: true, ..Self::default() };
        let mut members: Vec<GroupIdx> = members.collect();
        groups::sort(cluster, registry, &mut members);
        members.reverse();
        for &group in &members {
            leaf.count(cluster, group);
        }
        *leaf.groups.elements_mut() = members;
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

    /// Inserts a group at its position in victim order.
    fn insert(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let after = |g: &GroupIdx| groups::compare(cluster, registry, group, *g).is_lt();
        let at = self.groups.remaining().partition_point(after);
        self.groups.insert(at, group);
        self.count(cluster, group);
    }

    /// Keeps the unchanged entries of the last cycle; returns the groups that must be inserted.
    fn keep_unchanged(&mut self, cluster: &Cluster, sorted: &[CandidateEntry]) -> Vec<GroupIdx> {
        let members = std::mem::take(self.groups.elements_mut());
        let mut kept = Vec::with_capacity(sorted.len());
        self.held.reserve(sorted.len());
        for entry in sorted.iter().filter(|entry| cluster.groups[entry.group].stamp == entry.stamp) {
            self.groups.elements_mut().push(entry.group);
            self.note(entry.group, entry.stamp, entry.held);
            kept.push(entry.group);
        }
        kept.sort_unstable();
        members.into_iter().filter(|group| kept.binary_search(group).is_err()).collect()
    }
}

/// Sorted candidates of the last cycle. The order of two groups depends on their own state alone, so that groups with
/// an unchanged stamp keep their relative order.
#[derive(Debug, Default)]
pub(crate) struct SortedCandidates {
    /// The group order plugins used for sorting.
    order: Vec<Discriminant<GroupOrder>>,
    leaves: FxHashMap<QueueIdx, Vec<CandidateEntry>>,
}

#[derive(Clone, Copy, Debug)]
struct CandidateEntry {
    group: GroupIdx,
    stamp: u64,
    held: QueueAmounts,
}

impl SortedCandidates {
    /// The candidates of a leaf queue, if the same order applies.
    fn of(&self, registry: &Registry, leaf: QueueIdx) -> Option<&[CandidateEntry]> {
        let same = reusable_order(registry).is_some_and(|order| order == self.order);
        if same { self.leaves.get(&leaf).map(Vec::as_slice) } else { None }
    }
}

/// The order, if it depends on the groups' own state alone; a custom order may read anything.
fn reusable_order(registry: &Registry) -> Option<Vec<Discriminant<GroupOrder>>> {
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
                candidates.leaves.entry(leaf).or_default().groups.elements_mut().push(group);
            }
        }
        candidates
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueIdx> + '_ {
        self.leaves.keys().copied()
    }

    /// Sorts the candidates of a leaf queue; `sorted_before` is the order of the last cycle, if it may be reused.
    pub(crate) fn sort(
        &mut self,
        cluster: &Cluster,
        registry: &Registry,
        leaf: QueueIdx,
        sorted_before: Option<&SortedCandidates>,
    ) {
        if let Some(entry) = self.leaves.get_mut(&leaf)
            && !std::mem::replace(&mut entry.is_sorted, true)
        {
            entry.groups.elements_mut().sort_unstable();
            entry.groups.elements_mut().dedup();
            let mut new = match sorted_before.and_then(|sorted| sorted.of(registry, leaf)) {
                Some(sorted) => entry.keep_unchanged(cluster, sorted),
                None => std::mem::take(entry.groups.elements_mut()),
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

    /// Stores the sorted candidates for the next cycle.
    pub(crate) fn store(&self, registry: &Registry, sorted_candidates: &mut SortedCandidates) {
        let Some(order) = reusable_order(registry) else { return };
        if sorted_candidates.order != order {
            *sorted_candidates = SortedCandidates { order, ..SortedCandidates::default() };
        }
        for (&leaf, entry) in self.leaves.iter().filter(|(_, entry)| entry.is_sorted) {
            let sorted = sorted_candidates.leaves.entry(leaf).or_default();
            sorted.clear();
            sorted.extend(entry.groups.remaining().iter().map(|group| {
                let (stamp, held) = entry.held[group];
                CandidateEntry { group: *group, stamp, held }
            }));
        }
    }

    /// Allocation of all candidates of a sorted leaf queue.
    pub(crate) fn total_of(&self, leaf: QueueIdx) -> QueueAmounts {
        self.leaves.get(&leaf).map_or([0; 3], |entry| entry.total)
    }

    /// The candidates of a sorted leaf queue.
    pub(crate) fn of_leaf(&self, leaf: QueueIdx) -> &[GroupIdx] {
        self.leaves.get(&leaf).map_or(&[], |entry| entry.groups.remaining())
    }

    /// Removes groups whose pods changed. All of them must be removed before one is inserted again: changed groups are
    /// no longer at their position.
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

    /// Inserts a group again that still has evictable pods.
    pub(crate) fn insert_again(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let Some(leaf) = leaf_of(cluster, group).filter(|_| has_evictable_pods(cluster, group)) else {
            return;
        };
        let entry = self.leaves.entry(leaf).or_default();
        if !entry.is_sorted {
            entry.groups.elements_mut().push(group);
            return;
        }
        entry.insert(cluster, registry, group);
    }
}

fn has_evictable_pods(cluster: &Cluster, group: GroupIdx) -> bool {
    let g = &cluster.groups[group];
    g.preemptible && g.active_allocated() > 0
}

/// Groups by leaf queue, each sorted by index.
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

/// Iterates over the candidates of some leaf queues in victim order.
pub(crate) struct VictimWalk<'a> {
    registry: &'a Registry,
    /// How many more groups may be selected.
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
    /// Position after the listed group.
    at: usize,
    listed: Option<EvictablePods>,
    /// Partly selected groups with their remaining pods; last in order first.
    rest: Vec<EvictablePods>,
    /// Allocation of the groups selected so far.
    selected: QueueAmounts,
}

impl Cursor<'_> {
    /// Advances to the next group that the rules allow.
    fn list_next(&mut self, cluster: &Cluster, is_allowed: &impl Fn(GroupIdx) -> bool) {
        self.listed = None;
        while let (None, Some(&group)) = (&self.listed, self.sorted.get(self.at)) {
            self.at += 1;
            if is_allowed(group) {
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
        ([0; 3], sum(&cursor.selected, &next))
    }
}

impl<'a> VictimWalk<'a> {
    pub(crate) fn new(
        cluster: &Cluster,
        registry: &'a Registry,
        total: QueueAmounts,
        leaves: impl IntoIterator<Item = (QueueIdx, &'a [GroupIdx])>,
        is_allowed: &impl Fn(GroupIdx) -> bool,
        most_groups: Option<u32>,
    ) -> Self {
        let mut cursors = Cursors { leaves: BTreeMap::new(), registry };
        for (leaf, sorted) in leaves {
            let mut cursor = Cursor { sorted, at: 0, listed: None, rest: Vec::new(), selected: [0; 3] };
            cursor.list_next(cluster, is_allowed);
            cursors.leaves.insert(leaf, cursor);
        }
        let queues: Vec<QueueIdx> = cursors.leaves.keys().copied().collect();
        let queues = QueueHeap::new(cluster, registry, Purpose::Evict, total, &cursors, queues, None);
        Self { registry, groups_left: most_groups.unwrap_or(u32::MAX), queues, leaves: cursors }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Removes the next group with its remaining pods.
    pub(crate) fn pop(
        &mut self,
        cluster: &Cluster,
        is_allowed: &impl Fn(GroupIdx) -> bool,
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
            cursor.list_next(cluster, is_allowed);
        }
        let held = held.expect("the heap holds leaves that are not empty");
        cursor.selected = sum(&cursor.selected, &held.amounts(cluster));
        self.queues.group_removed(cluster, &self.leaves, leaf);
        Some(held)
    }

    /// Inserts a group again with its remaining pods.
    pub(crate) fn push(&mut self, cluster: &Cluster, held: EvictablePods) {
        if held.is_empty() {
            return;
        }
        let Some(leaf) = leaf_of(cluster, held.group()) else { return };
        let cursor = self.leaves.leaves.get_mut(&leaf).expect("the group came from a known leaf");
        let before = |other: &EvictablePods| victim_order(cluster, self.registry, other, &held).is_gt();
        let at = cursor.rest.partition_point(before);
        cursor.rest.insert(at, held);
        self.queues.group_added(cluster, &self.leaves, leaf);
    }
}

/// Compares victims: `Less` is evicted first.
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
