//! Orders the groups that may be evicted, lowest in job order first.
//!
//! Candidates are listed and sorted once per leaf queue and kept between cycles ([`KnownCandidates`]): a cycle inserts only
//! groups again whose state has changed. Every probe of a search walks them with new cursors and evaluates the rules only for
//! the next groups. A group of which a part is selected is inserted again with its remaining pods.

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
    /// The leaf queue in which each group is listed. An unsorted list may contain others, too.
    listed: FxHashMap<GroupIdx, QueueIdx>,
    /// Groups that are listed with a state of this cycle, which ends with it.
    unsettled: Vec<GroupIdx>,
    /// The next cycle may continue with these lists.
    is_lasting: bool,
}

#[derive(Debug, Default)]
struct Leaf {
    /// In victim order once sorted; until then it may contain groups without evictable pods.
    groups: SortedList<GroupIdx>,
    is_sorted: bool,
    /// Allocation of each group and the sum of all, once sorted.
    held: FxHashMap<GroupIdx, QueueAmounts>,
    total: QueueAmounts,
}

impl Leaf {
    fn sorted(cluster: &Cluster, registry: &Registry, mut members: Vec<GroupIdx>) -> Self {
        let mut leaf = Self { is_sorted: true, ..Self::default() };
        groups::sort(cluster, registry, &mut members);
        members.reverse();
        leaf.held.reserve(members.len());
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
        self.total = sum(&self.total, &amounts);
        self.held.insert(group, amounts);
    }

    /// Inserts a group at its position in victim order.
    fn insert(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let after = |g: &GroupIdx| groups::compare(cluster, registry, group, *g).is_lt();
        let at = self.groups.remaining().partition_point(after);
        self.groups.insert(at, group);
        self.count(cluster, group);
    }

    /// Removes groups, which are sorted by index.
    fn remove(&mut self, groups: &[GroupIdx]) {
        let mut known = 0;
        for group in groups {
            if let Some(held) = self.held.remove(group) {
                self.total = difference(&self.total, &held);
                known += 1;
            }
        }
        self.groups.remove_matching(known, |group| groups.binary_search(group).is_ok());
    }

    /// Forgets the order: so much changes that sorting again is cheaper.
    fn unsort(&mut self) {
        let members = std::mem::take(self.groups.elements_mut());
        *self = Self::default();
        *self.groups.elements_mut() = members;
    }
}

/// The candidates of the last cycle, and the groups that have changed since. The order of two groups depends on their own
/// state alone, so that all others keep their relative order.
#[derive(Debug, Default)]
pub(crate) struct KnownCandidates {
    /// The group order plugins used for sorting.
    order: Vec<Discriminant<GroupOrder>>,
    candidates: Option<Candidates>,
    changed: Vec<GroupIdx>,
}

impl KnownCandidates {
    /// Notes groups whose state was derived again.
    pub(crate) fn note_changed(&mut self, groups: &[GroupIdx]) {
        let Some(candidates) = &self.candidates else { return };
        if self.changed.len() + groups.len() > candidates.listed.len() {
            *self = Self::default();
        } else {
            self.changed.extend(groups);
        }
    }

    /// The candidates in the present state of a cycle, in which some groups have changed so far.
    pub(crate) fn take(
        &mut self,
        cluster: &Cluster,
        registry: &Registry,
        changed_in_cycle: Vec<GroupIdx>,
    ) -> Candidates {
        let is_same_order = reusable_order(registry).is_some_and(|order| order == self.order);
        let Some(known) = self.candidates.as_ref().filter(|_| is_same_order) else {
            return Candidates { unsettled: changed_in_cycle, is_lasting: true, ..Candidates::new(cluster) };
        };
        // In a plan without the other groups nearly all have changed, until it ends.
        if changed_in_cycle.len() > known.listed.len() / MANY_CHANGED {
            return Candidates::new(cluster);
        }
        let Some(mut candidates) = self.candidates.take() else { return Candidates::new(cluster) };
        let mut changed = std::mem::take(&mut self.changed);
        changed.extend(&changed_in_cycle);
        changed.sort_unstable();
        changed.dedup();
        candidates.update(cluster, registry, &changed);
        candidates.unsettled = changed_in_cycle;
        candidates
    }

    /// Keeps the candidates for the next cycle.
    pub(crate) fn keep(&mut self, registry: &Registry, mut candidates: Candidates) {
        if let Some(order) = reusable_order(registry).filter(|_| candidates.is_lasting) {
            let changed = std::mem::take(&mut candidates.unsettled);
            *self = Self { order, candidates: Some(candidates), changed };
        }
    }
}

/// One in so many groups.
const MANY_CHANGED: usize = 8;

/// The order, if it depends on the groups' own state alone; a custom order may read anything.
fn reusable_order(registry: &Registry) -> Option<Vec<Discriminant<GroupOrder>>> {
    let rule = |order: &GroupOrder| match order {
        GroupOrder::Priority | GroupOrder::Elastic => Some(discriminant(order)),
        GroupOrder::Custom(_) => None,
    };
    registry.group_order.iter().map(rule).collect()
}

impl Candidates {
    /// Lists all groups with evictable pods.
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let mut candidates = Self::default();
        for (group, _) in cluster.present_groups() {
            if let Some(leaf) = leaf_of_candidate(cluster, group) {
                candidates.leaves.entry(leaf).or_default().groups.elements_mut().push(group);
                candidates.listed.insert(group, leaf);
            }
        }
        candidates
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueIdx> + '_ {
        self.leaves.keys().copied()
    }

    /// Sorts the candidates of a leaf queue.
    pub(crate) fn sort(&mut self, cluster: &Cluster, registry: &Registry, leaf: QueueIdx) {
        let Some(entry) = self.leaves.get_mut(&leaf).filter(|entry| !entry.is_sorted) else { return };
        let mut members = std::mem::take(entry.groups.elements_mut());
        members.sort_unstable();
        members.dedup();
        members.retain(|group| {
            let is_candidate = leaf_of_candidate(cluster, *group) == Some(leaf);
            if !is_candidate && self.listed.get(group) == Some(&leaf) {
                self.listed.remove(group);
            }
            is_candidate
        });
        *entry = Leaf::sorted(cluster, registry, members);
    }

    /// Allocation of all candidates of a sorted leaf queue.
    pub(crate) fn total_of(&self, leaf: QueueIdx) -> QueueAmounts {
        self.leaves.get(&leaf).map_or([0; 3], |entry| entry.total)
    }

    /// The candidates of a sorted leaf queue.
    pub(crate) fn of_leaf(&self, leaf: QueueIdx) -> &[GroupIdx] {
        self.leaves.get(&leaf).map_or(&[], |entry| entry.groups.remaining())
    }

    /// Lists groups anew that the cycle has changed.
    pub(crate) fn changed_by_cycle(&mut self, cluster: &Cluster, registry: &Registry, groups: &[GroupIdx]) {
        self.update(cluster, registry, groups);
        self.unsettled.extend(groups);
    }

    /// Lists changed groups anew, which are sorted by index. All of them are removed before one is inserted: changed groups are
    /// no longer at their position.
    fn update(&mut self, cluster: &Cluster, registry: &Registry, groups: &[GroupIdx]) {
        let (mut removed, mut inserted) = (ByLeaf::new(), ByLeaf::new());
        for &group in groups {
            let (before, now) = (self.listed.get(&group).copied(), leaf_of_candidate(cluster, group));
            let is_sorted = |leaf: &QueueIdx| self.leaves.get(leaf).is_some_and(|entry| entry.is_sorted);
            let was_sorted = before.filter(is_sorted);
            if let Some(leaf) = was_sorted {
                removed.entry(leaf).or_default().push(group);
                self.listed.remove(&group);
            }
            // An unsorted list still contains it, and is checked when it is sorted.
            if let Some(leaf) = now.filter(|leaf| was_sorted.is_some() || before != Some(*leaf)) {
                inserted.entry(leaf).or_default().push(group);
                self.listed.insert(group, leaf);
            }
        }
        for (leaf, groups) in removed {
            if let Some(entry) = self.leaves.get_mut(&leaf) {
                entry.remove(&groups);
            }
        }
        for (leaf, groups) in inserted {
            let entry = self.leaves.entry(leaf).or_default();
            if entry.is_sorted && groups.len() > 1 + entry.groups.remaining().len() / MANY_CHANGED {
                entry.unsort();
            }
            if !entry.is_sorted {
                entry.groups.elements_mut().extend(groups);
                continue;
            }
            for group in groups {
                entry.insert(cluster, registry, group);
            }
        }
    }
}

type ByLeaf = BTreeMap<QueueIdx, Vec<GroupIdx>>;

/// The leaf queue of a group with evictable pods.
fn leaf_of_candidate(cluster: &Cluster, group: GroupIdx) -> Option<QueueIdx> {
    leaf_of(cluster, group).filter(|_| has_evictable_pods(cluster, group))
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
