//! The walk over the queue tree: which group comes next.

use super::heap::Heap;
use super::member::{Selection, pods_to_place};
use super::queue_heap::{Leaves, QueueHeap};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use crate::plugin::Registry;
use crate::share::{Triple, sum};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

pub use super::queue_heap::Purpose;

/// A walk in progress.
pub struct TreeWalk<'p> {
    queues: QueueHeap<'p>,
    leaves: GroupHeaps<'p>,
}

/// Leaves as heaps of groups.
struct GroupHeaps<'p> {
    registry: &'p Registry,
    purpose: Purpose,
    heaps: FxHashMap<QueueIdx, Heap<GroupIdx>>,
    /// Resources of groups already taken from a leaf.
    taken: FxHashMap<QueueIdx, Triple>,
    /// What a group's next step asks for, remembered while its pods stay as they are.
    asks: RefCell<FxHashMap<GroupIdx, (u64, Triple)>>,
}

impl Leaves for GroupHeaps<'_> {
    fn is_empty(&self, leaf: QueueIdx) -> bool {
        self.heaps.get(&leaf).is_none_or(Heap::is_empty)
    }
    fn stake(&self, cluster: &Cluster, leaf: QueueIdx) -> (Triple, Triple) {
        let next = self.heaps.get(&leaf).and_then(Heap::peek).expect("empty leaves are pruned");
        match self.purpose {
            Purpose::Place => (self.asked_by(cluster, next), [0; 3]),
            Purpose::Evict => {
                let taken = self.taken.get(&leaf).copied().unwrap_or_default();
                ([0; 3], sum(&taken, &held_by(cluster, next)))
            }
        }
    }
}

impl GroupHeaps<'_> {
    fn before(&self, cluster: &Cluster, a: GroupIdx, b: GroupIdx) -> bool {
        self.purpose.directed(super::groups::compare(cluster, self.registry, a, b)).is_lt()
    }

    fn push(&mut self, cluster: &Cluster, leaf: QueueIdx, group: GroupIdx) {
        let mut heap = self.heaps.remove(&leaf).unwrap_or_default();
        heap.push(group, |a, b| self.before(cluster, a, b));
        self.heaps.insert(leaf, heap);
    }

    fn pop(&mut self, cluster: &Cluster, leaf: QueueIdx) -> Option<GroupIdx> {
        let mut heap = self.heaps.remove(&leaf)?;
        let group = heap.pop(|a, b| self.before(cluster, a, b));
        self.heaps.insert(leaf, heap);
        if let (Purpose::Evict, Some(group)) = (self.purpose, group) {
            let taken = self.taken.entry(leaf).or_default();
            *taken = sum(taken, &held_by(cluster, group));
        }
        group
    }

    fn asked_by(&self, cluster: &Cluster, group: GroupIdx) -> Triple {
        let stamp = cluster.groups[group].stamp;
        if let Some((seen, asks)) = self.asks.borrow().get(&group)
            && *seen == stamp
        {
            return *asks;
        }
        let asks = asks_of(cluster, self.registry, group);
        self.asks.borrow_mut().insert(group, (stamp, asks));
        asks
    }
}

impl<'p> TreeWalk<'p> {
    /// A walk over some groups; of each leaf only the best `depth` take part. Groups whose queue is missing or has
    /// children are left out.
    pub fn new(
        cluster: &Cluster,
        registry: &'p Registry,
        purpose: Purpose,
        total: Triple,
        groups: impl IntoIterator<Item = GroupIdx>,
        depth: Option<usize>,
    ) -> Self {
        let (heaps, taken, asks) = (FxHashMap::default(), FxHashMap::default(), RefCell::default());
        let mut leaves = GroupHeaps { registry, purpose, heaps, taken, asks };
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
            for group in groups {
                leaves.push(cluster, leaf[0].1, group);
            }
            queues.push(leaf[0].1);
        }
        let queues = QueueHeap::new(cluster, registry, purpose, total, &leaves, queues, None);
        Self { queues, leaves }
    }

    /// How many groups are left.
    pub fn len(&self) -> usize {
        self.leaves.heaps.values().map(Heap::len).sum()
    }
    /// Whether no group is left.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Takes the next group.
    pub fn pop(&mut self, cluster: &Cluster) -> Option<GroupIdx> {
        let leaf = self.queues.best_leaf(cluster, &self.leaves)?;
        let group = self.leaves.pop(cluster, leaf);
        self.queues.taken(cluster, &self.leaves, leaf);
        group
    }

    /// Puts a group back, or in.
    pub fn push(&mut self, cluster: &Cluster, group: GroupIdx) {
        if let Some(leaf) = leaf_of(cluster, group) {
            self.leaves.push(cluster, leaf, group);
            self.queues.put(cluster, &self.leaves, leaf);
        }
    }
}

/// The leaf queue of a group, if it is one.
pub fn leaf_of(cluster: &Cluster, group: GroupIdx) -> Option<QueueIdx> {
    cluster.groups[group].queue.filter(|q| cluster.queues[*q].children.is_empty())
}

/// What a group's next step asks of its queue.
pub fn asks_of(cluster: &Cluster, registry: &Registry, group: GroupIdx) -> Triple {
    let pods = pods_to_place(cluster, registry, group, Selection::Simulated);
    pods.iter().fold([0; 3], |all, pod| sum(&all, &cluster.asked(*pod, cluster.figures.gpu_memory_min)))
}

/// What a group holds of its queue.
pub fn held_by(cluster: &Cluster, group: GroupIdx) -> Triple {
    let mut held = [0; 3];
    for &pod in &cluster.groups[group].pods {
        let state = &cluster.pods[pod].state;
        if let (true, Some(place)) = (state.status.is_allocated(), &state.place) {
            held = sum(&held, &cluster.accepted(pod, place));
        }
    }
    held
}
