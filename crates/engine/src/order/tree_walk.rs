//! The walk over the queue tree: which group comes next.

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

/// A walk in progress.
pub struct TreeWalk<'p> {
    queues: QueueHeap<'p>,
    leaves: GroupLines<'p>,
}

/// Leaves and their groups.
struct GroupLines<'p> {
    registry: &'p Registry,
    purpose: Purpose,
    lines: FxHashMap<QueueIdx, GroupLine>,
    /// Resources of groups already taken from a leaf.
    taken: FxHashMap<QueueIdx, QueueAmounts>,
    /// What a group's next step asks for, remembered while its pods stay as they are.
    asks: RefCell<FxHashMap<GroupIdx, (u64, QueueAmounts)>>,
}

/// The groups of a leaf. Those that were there from the beginning keep the order that they had then; finding their
/// places in a heap again and again is what would cost.
#[derive(Default)]
struct GroupLine {
    /// Last in order first.
    sorted: Vec<GroupIdx>,
    /// Groups that were put back or in since.
    put_in: Heap<GroupIdx>,
}

impl GroupLine {
    fn len(&self) -> usize {
        self.sorted.len() + self.put_in.len()
    }
}

impl Leaves for GroupLines<'_> {
    fn is_empty(&self, leaf: QueueIdx) -> bool {
        self.lines.get(&leaf).is_none_or(|line| line.len() == 0)
    }
    fn next_amounts(&self, cluster: &Cluster, leaf: QueueIdx) -> (QueueAmounts, QueueAmounts) {
        let line = self.lines.get(&leaf);
        let next = line.and_then(|line| self.next(cluster, line)).expect("empty leaves are pruned").0;
        match self.purpose {
            Purpose::Place => (self.asked_by(cluster, next), [0; 3]),
            Purpose::Evict => {
                let taken = self.taken.get(&leaf).copied().unwrap_or_default();
                ([0; 3], sum(&taken, &allocated_to(cluster, next)))
            }
        }
    }
}

impl GroupLines<'_> {
    fn before(&self, cluster: &Cluster, a: GroupIdx, b: GroupIdx) -> bool {
        self.purpose.directed(super::groups::compare(cluster, self.registry, a, b)).is_lt()
    }

    /// The first group of a line, and whether it was put in.
    fn next(&self, cluster: &Cluster, line: &GroupLine) -> Option<(GroupIdx, bool)> {
        match (line.sorted.last().copied(), line.put_in.peek()) {
            (Some(sorted), Some(put_in)) if self.before(cluster, put_in, sorted) => Some((put_in, true)),
            (Some(sorted), _) => Some((sorted, false)),
            (None, put_in) => put_in.map(|group| (group, true)),
        }
    }

    fn push(&mut self, cluster: &Cluster, leaf: QueueIdx, group: GroupIdx) {
        let mut line = self.lines.remove(&leaf).unwrap_or_default();
        line.put_in.push(group, |a, b| self.before(cluster, a, b));
        self.lines.insert(leaf, line);
    }

    fn pop(&mut self, cluster: &Cluster, leaf: QueueIdx) -> Option<GroupIdx> {
        let mut line = self.lines.remove(&leaf)?;
        let group = match self.next(cluster, &line) {
            Some((_, true)) => line.put_in.pop(|a, b| self.before(cluster, a, b)),
            Some((_, false)) => line.sorted.pop(),
            None => None,
        };
        self.lines.insert(leaf, line);
        if let (Purpose::Evict, Some(group)) = (self.purpose, group) {
            let taken = self.taken.entry(leaf).or_default();
            *taken = sum(taken, &allocated_to(cluster, group));
        }
        group
    }

    fn asked_by(&self, cluster: &Cluster, group: GroupIdx) -> QueueAmounts {
        let stamp = cluster.groups[group].stamp;
        if let Some((seen, asks)) = self.asks.borrow().get(&group)
            && *seen == stamp
        {
            return *asks;
        }
        let asks = next_request(cluster, self.registry, group);
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
        total: QueueAmounts,
        groups: impl IntoIterator<Item = GroupIdx>,
        depth: Option<usize>,
    ) -> Self {
        let (lines, taken, asks) = (FxHashMap::default(), FxHashMap::default(), RefCell::default());
        let mut leaves = GroupLines { registry, purpose, lines, taken, asks };
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
            leaves.lines.insert(leaf[0].1, GroupLine { sorted: groups, put_in: Heap::new() });
            queues.push(leaf[0].1);
        }
        let queues = QueueHeap::new(cluster, registry, purpose, total, &leaves, queues, None);
        Self { queues, leaves }
    }

    /// How many groups are left.
    pub fn len(&self) -> usize {
        self.leaves.lines.values().map(GroupLine::len).sum()
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
pub fn next_request(cluster: &Cluster, registry: &Registry, group: GroupIdx) -> QueueAmounts {
    let pods = pods_to_place(cluster, registry, group, Selection::Simulated);
    pods.iter().fold([0; 3], |all, pod| sum(&all, &cluster.asked(*pod, cluster.figures.gpu_memory_min)))
}

/// What a group holds of its queue.
pub fn allocated_to(cluster: &Cluster, group: GroupIdx) -> QueueAmounts {
    let mut held = [0; 3];
    for &pod in &cluster.groups[group].pods {
        let state = &cluster.pods[pod].state;
        if let (true, Some(place)) = (state.status.is_allocated(), &state.place) {
            held = sum(&held, &cluster.accepted(pod, place));
        }
    }
    held
}
