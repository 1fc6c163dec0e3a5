//! Orders the involved groups of a simulation.
//!
//! The queue tree with every pending group decides in which order victims and preemptor are placed. Pending groups that
//! are not involved influence the order and are skipped. Pending groups are sorted once per action; a simulation walks
//! them with cursors and merges the involved groups.

use super::sorted_list::SortedList;
use super::victims::by_leaf;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use crate::order::groups;
use crate::order::queue_heap::{Leaves, Purpose, QueueHeap};
use crate::order::tree_walk::{leaf_of, next_request};
use crate::plugin::Registry;
use crate::share::{QueueAmounts, root_path};
use std::collections::BTreeMap;

/// The pending groups of each leaf queue in order, with the request of their next step.
#[derive(Debug, Default)]
pub(crate) struct PendingGroups {
    leaves: BTreeMap<QueueIdx, SortedList<(GroupIdx, QueueAmounts)>>,
}

impl PendingGroups {
    pub(crate) fn new(cluster: &Cluster, registry: &Registry) -> Self {
        let mut pending = Self::default();
        for (group, g) in cluster.pending_groups() {
            if let (true, Some(leaf)) = (g.pending() > 0, leaf_of(cluster, group)) {
                let list = pending.leaves.entry(leaf).or_default();
                list.elements_mut().push((group, next_request(cluster, registry, group)));
            }
        }
        for list in pending.leaves.values_mut() {
            list.elements_mut().sort_by(|a, b| groups::compare(cluster, registry, a.0, b.0));
        }
        pending
    }

    /// Removes groups whose pods changed. All of them must be removed before one is inserted again.
    pub(crate) fn remove(&mut self, cluster: &Cluster, groups: &[GroupIdx]) {
        for (leaf, changed) in by_leaf(cluster, groups) {
            let Some(list) = self.leaves.get_mut(&leaf) else { continue };
            list.remove_matching(changed.len(), |(group, _)| changed.binary_search(group).is_ok());
            if list.remaining().is_empty() {
                self.leaves.remove(&leaf);
            }
        }
    }

    /// Inserts a group again that still has pending pods.
    pub(crate) fn insert_again(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let Some(leaf) = leaf_of(cluster, group).filter(|_| cluster.groups[group].pending() > 0) else {
            return;
        };
        let list = self.leaves.entry(leaf).or_default();
        let before =
            |(g, _): &(GroupIdx, QueueAmounts)| groups::compare(cluster, registry, *g, group).is_lt();
        let at = list.remaining().partition_point(before);
        list.insert(at, (group, next_request(cluster, registry, group)));
    }
}

/// The order of one simulation.
pub(crate) struct SimulationOrder<'a> {
    queues: QueueHeap<'a>,
    leaves: Cursors<'a>,
}

struct Cursors<'a> {
    leaves: BTreeMap<QueueIdx, Cursor<'a>>,
    /// Remaining involved groups below each branch: a child of the lowest common ancestor of the involved groups.
    left_below: BTreeMap<QueueIdx, usize>,
}

/// Position in one leaf queue.
struct Cursor<'a> {
    pending: &'a [(GroupIdx, QueueAmounts)],
    at: usize,
    /// Involved groups of the leaf queue, last in order first.
    involved: Vec<InvolvedGroup>,
    branch: QueueIdx,
}

/// An involved group.
#[derive(Clone, Copy)]
struct InvolvedGroup {
    group: GroupIdx,
    request: QueueAmounts,
    /// It comes before this position of the pending groups.
    before: usize,
}

impl Cursor<'_> {
    /// The involved group that is next, unless a pending group comes before it.
    fn involved_next(&self) -> Option<InvolvedGroup> {
        self.involved.last().copied().filter(|involved| involved.before <= self.at)
    }
    fn is_empty(&self) -> bool {
        self.involved.is_empty() && self.at >= self.pending.len()
    }
    fn next_request_amounts(&self) -> QueueAmounts {
        self.involved_next().map_or_else(|| self.pending[self.at].1, |involved| involved.request)
    }
    /// Skips pending groups with the same request: they leave the order unchanged.
    fn skip_equal_requests(&mut self, is_involved: impl Fn(GroupIdx) -> bool) {
        let request = self.pending[self.at].1;
        let stop = self.involved.last().map_or(self.pending.len(), |involved| involved.before);
        while self.at < stop && (self.pending[self.at].1 == request || is_involved(self.pending[self.at].0)) {
            self.at += 1;
        }
    }
    /// Involved groups are handled separately.
    fn skip_involved(&mut self, is_involved: impl Fn(GroupIdx) -> bool) {
        while self.pending.get(self.at).is_some_and(|(group, _)| is_involved(*group)) {
            self.at += 1;
        }
    }
}

impl Leaves for Cursors<'_> {
    fn is_empty(&self, leaf: QueueIdx) -> bool {
        // A branch without involved groups no longer influences the others.
        self.leaves.get(&leaf).is_none_or(|cursor| self.left_below[&cursor.branch] == 0 || cursor.is_empty())
    }
    fn next_amounts(&self, _: &Cluster, leaf: QueueIdx) -> (QueueAmounts, QueueAmounts) {
        (self.leaves[&leaf].next_request_amounts(), [0; 3])
    }
}

impl<'a> SimulationOrder<'a> {
    /// Orders groups, each with the request of its next step. Among queues that are equal in everything, creation time
    /// included, the preemptor's comes first: otherwise victims would be placed again where they were evicted.
    pub(crate) fn new(
        cluster: &Cluster,
        registry: &'a Registry,
        total: QueueAmounts,
        pending: &'a PendingGroups,
        involved: &BTreeMap<GroupIdx, QueueAmounts>,
        preemptor: GroupIdx,
    ) -> Self {
        let mut by_leaf: BTreeMap<QueueIdx, Vec<InvolvedGroup>> = BTreeMap::new();
        for (&group, &request) in involved {
            if let Some(leaf) = leaf_of(cluster, group) {
                by_leaf.entry(leaf).or_default().push(InvolvedGroup { group, request, before: 0 });
            }
        }
        let common = common_queue(cluster, by_leaf.keys().copied());
        let mut left_below: BTreeMap<QueueIdx, usize> = BTreeMap::new();
        for (&leaf, members) in &by_leaf {
            *left_below.entry(branch_of(cluster, leaf, common)).or_default() += members.len();
        }
        let mut leaves = BTreeMap::new();
        let known = pending.leaves.keys().chain(by_leaf.keys()).copied();
        for leaf in known.collect::<std::collections::BTreeSet<_>>() {
            let branch = branch_of(cluster, leaf, common);
            if !left_below.contains_key(&branch) {
                continue;
            }
            let list = pending.leaves.get(&leaf).map_or(&[][..], SortedList::remaining);
            let mut members = by_leaf.remove(&leaf).unwrap_or_default();
            for member in &mut members {
                member.before = position(list, involved, |other| {
                    groups::compare(cluster, registry, other, member.group).is_lt()
                });
            }
            members.sort_by(|a, b| groups::compare(cluster, registry, b.group, a.group));
            let mut cursor = Cursor { pending: list, at: 0, involved: members, branch };
            cursor.skip_involved(|g| involved.contains_key(&g));
            leaves.insert(leaf, cursor);
        }
        let queues: Vec<QueueIdx> = leaves.keys().copied().collect();
        let leaves = Cursors { leaves, left_below };
        let queues = QueueHeap::new(
            cluster,
            registry,
            Purpose::Place,
            total,
            &leaves,
            queues,
            leaf_of(cluster, preemptor),
        );
        Self { queues, leaves }
    }

    pub(crate) fn next(
        &mut self,
        cluster: &Cluster,
        involved: &BTreeMap<GroupIdx, QueueAmounts>,
    ) -> Option<GroupIdx> {
        loop {
            let leaf = self.queues.best_leaf(cluster, &self.leaves)?;
            let cursor = self.leaves.leaves.get_mut(&leaf).expect("the heap holds known leaves");
            let next = cursor.involved_next();
            if next.is_some() {
                cursor.involved.pop();
                let left = self.leaves.left_below.get_mut(&cursor.branch).expect("every branch is counted");
                *left -= 1;
            } else {
                cursor.skip_equal_requests(|g| involved.contains_key(&g));
            }
            cursor.skip_involved(|g| involved.contains_key(&g));
            self.queues.group_removed(cluster, &self.leaves, leaf);
            if let Some(next) = next {
                return Some(next.group);
            }
        }
    }
}

/// Position of a group in a sorted list; the involved groups in it are out of order and ignored.
fn position(
    list: &[(GroupIdx, QueueAmounts)],
    involved: &BTreeMap<GroupIdx, QueueAmounts>,
    is_before: impl Fn(GroupIdx) -> bool,
) -> usize {
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match (middle..high).find(|at| !involved.contains_key(&list[*at].0)) {
            Some(at) if is_before(list[at].0) => low = at + 1,
            Some(_) | None => high = middle,
        }
    }
    low
}

/// The lowest common ancestor of the leaf queues, or the only leaf; `None` for the root.
fn common_queue(cluster: &Cluster, leaves: impl Iterator<Item = QueueIdx>) -> Option<QueueIdx> {
    let mut common: Option<Vec<QueueIdx>> = None;
    for leaf in leaves {
        let path: Vec<QueueIdx> = root_path(cluster, leaf).collect();
        common = Some(match common {
            None => path,
            Some(old) => old.into_iter().filter(|queue| path.contains(queue)).collect(),
        });
    }
    common?.first().copied()
}

/// The child of the common ancestor on the path to a leaf queue; the leaf itself where there is none.
fn branch_of(cluster: &Cluster, leaf: QueueIdx, common: Option<QueueIdx>) -> QueueIdx {
    root_path(cluster, leaf).take_while(|queue| Some(*queue) != common).last().unwrap_or(leaf)
}
