//! Iterates over groups in the order of the queue tree (KAI: `JobsOrderByQueues`).

use super::heap::Heap;
use super::member::{Selection, pods_to_place};
use super::queue_heap::{Leaves, QueueHeap};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use crate::plugin::Registry;
use crate::share::{QueueAmounts, sum};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

pub use super::queue_heap::Purpose;

/// An iteration over groups.
pub struct TreeWalk<'p> {
    queues: QueueHeap<'p>,
    leaves: LeafGroups<'p>,
}

/// Groups by leaf queue.
struct LeafGroups<'p> {
    registry: &'p Registry,
    purpose: Purpose,
    lists: FxHashMap<QueueIdx, GroupList>,
    /// Allocation of the groups removed from each leaf queue.
    removed: FxHashMap<QueueIdx, QueueAmounts>,
    /// Cached request of a group's next step, with the version of its pods.
    requests: RefCell<FxHashMap<GroupIdx, (u64, QueueAmounts)>>,
}

/// The groups of a leaf queue. The initial groups are sorted once instead of kept in a heap.
#[derive(Default)]
struct GroupList {
    /// In reverse order.
    sorted: Vec<GroupIdx>,
    /// Groups pushed later.
    pushed: Heap<GroupIdx>,
}

impl GroupList {
    fn len(&self) -> usize {
        self.sorted.len() + self.pushed.len()
    }
}

impl Leaves for LeafGroups<'_> {
    fn is_empty(&self, leaf: QueueIdx) -> bool {
        self.lists.get(&leaf).is_none_or(|list| list.len() == 0)
    }
    fn next_amounts(&self, cluster: &Cluster, leaf: QueueIdx) -> (QueueAmounts, QueueAmounts) {
        let list = self.lists.get(&leaf);
        let next = list.and_then(|list| self.next(cluster, list)).expect("empty leaves are pruned").0;
        match self.purpose {
            Purpose::Place => (self.request_of(cluster, next), [0; 3]),
            Purpose::Evict => {
                let removed = self.removed.get(&leaf).copied().unwrap_or_default();
                ([0; 3], sum(&removed, &allocated_to(cluster, next)))
            }
        }
    }
}

impl LeafGroups<'_> {
    fn before(&self, cluster: &Cluster, a: GroupIdx, b: GroupIdx) -> bool {
        self.purpose.directed(super::groups::compare(cluster, self.registry, a, b)).is_lt()
    }

    /// The first group of a leaf queue, and whether it was pushed later.
    fn next(&self, cluster: &Cluster, list: &GroupList) -> Option<(GroupIdx, bool)> {
        match (list.sorted.last().copied(), list.pushed.peek()) {
            (Some(sorted), Some(pushed)) if self.before(cluster, pushed, sorted) => Some((pushed, true)),
            (Some(sorted), _) => Some((sorted, false)),
            (None, pushed) => pushed.map(|group| (group, true)),
        }
    }

    fn push(&mut self, cluster: &Cluster, leaf: QueueIdx, group: GroupIdx) {
        let mut list = self.lists.remove(&leaf).unwrap_or_default();
        list.pushed.push(group, |a, b| self.before(cluster, a, b));
        self.lists.insert(leaf, list);
    }

    fn pop(&mut self, cluster: &Cluster, leaf: QueueIdx) -> Option<GroupIdx> {
        let mut list = self.lists.remove(&leaf)?;
        let group = match self.next(cluster, &list) {
            Some((_, true)) => list.pushed.pop(|a, b| self.before(cluster, a, b)),
            Some((_, false)) => list.sorted.pop(),
            None => None,
        };
        self.lists.insert(leaf, list);
        if let (Purpose::Evict, Some(group)) = (self.purpose, group) {
            let removed = self.removed.entry(leaf).or_default();
            *removed = sum(removed, &allocated_to(cluster, group));
        }
        group
    }

    fn request_of(&self, cluster: &Cluster, group: GroupIdx) -> QueueAmounts {
        let stamp = cluster.groups[group].stamp;
        if let Some((seen, requests)) = self.requests.borrow().get(&group)
            && *seen == stamp
        {
            return *requests;
        }
        let requests = next_request(cluster, self.registry, group);
        self.requests.borrow_mut().insert(group, (stamp, requests));
        requests
    }
}

impl<'p> TreeWalk<'p> {
    /// Iterates over some groups, at most the first `depth` of each leaf queue. Groups whose queue is missing or is no
    /// leaf are skipped.
    pub fn new(
        cluster: &Cluster,
        registry: &'p Registry,
        purpose: Purpose,
        total: QueueAmounts,
        groups: impl IntoIterator<Item = GroupIdx>,
        depth: Option<usize>,
    ) -> Self {
        let (lists, removed, requests) = (FxHashMap::default(), FxHashMap::default(), RefCell::default());
        let mut leaves = LeafGroups { registry, purpose, lists, removed, requests };
        let mut by_leaf: Vec<(u32, QueueIdx, GroupIdx)> = groups
            .into_iter()
            .filter_map(|g| leaf_of(cluster, g).map(|q| (cluster.queues[q].rank, q, g)))
            .collect();
        by_leaf.sort_unstable_by_key(|(rank, _, _)| *rank);
        let mut queues = Vec::new();
        for leaf in by_leaf.chunk_by(|a, b| a.1 == b.1) {
            let mut groups: Vec<GroupIdx> = leaf.iter().map(|(_, _, g)| *g).collect();
            super::groups::sort(cluster, registry, &mut groups);
            if purpose == Purpose::Evict {
                groups.reverse();
            }
            groups.truncate(depth.unwrap_or(usize::MAX));
            groups.reverse();
            leaves.lists.insert(leaf[0].1, GroupList { sorted: groups, pushed: Heap::new() });
            queues.push(leaf[0].1);
        }
        let queues = QueueHeap::new(cluster, registry, purpose, total, &leaves, queues, None);
        Self { queues, leaves }
    }

    /// Number of remaining groups.
    pub fn len(&self) -> usize {
        self.leaves.lists.values().map(GroupList::len).sum()
    }
    /// Whether no group remains.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Removes the next group.
    pub fn pop(&mut self, cluster: &Cluster) -> Option<GroupIdx> {
        let leaf = self.queues.best_leaf(cluster, &self.leaves)?;
        let group = self.leaves.pop(cluster, leaf);
        self.queues.group_removed(cluster, &self.leaves, leaf);
        group
    }

    /// Adds a group, or adds it again.
    pub fn push(&mut self, cluster: &Cluster, group: GroupIdx) {
        if let Some(leaf) = leaf_of(cluster, group) {
            self.leaves.push(cluster, leaf, group);
            self.queues.group_added(cluster, &self.leaves, leaf);
        }
    }
}

/// The queue of a group, if it is a leaf.
pub fn leaf_of(cluster: &Cluster, group: GroupIdx) -> Option<QueueIdx> {
    cluster.groups[group].queue.filter(|q| cluster.queues[*q].children.is_empty())
}

/// Queue resources that a group's next step requests.
pub fn next_request(cluster: &Cluster, registry: &Registry, group: GroupIdx) -> QueueAmounts {
    let pods = pods_to_place(cluster, registry, group, Selection::Simulated);
    pods.iter()
        .fold([0; 3], |all, pod| sum(&all, &cluster.queue_request(*pod, cluster.figures.gpu_memory_min)))
}

/// Queue resources that a group holds.
pub fn allocated_to(cluster: &Cluster, group: GroupIdx) -> QueueAmounts {
    let mut allocated = [0; 3];
    for &pod in &cluster.groups[group].pods {
        let state = &cluster.pods[pod].state;
        if let (true, Some(place)) = (state.status.is_allocated(), &state.place) {
            allocated = sum(&allocated, &cluster.accepted(pod, place));
        }
    }
    allocated
}
