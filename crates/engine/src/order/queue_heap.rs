//! A tree of heaps over the queues that have groups left.
//!
//! Every inner queue is a heap of its children. Two queues are compared by the next group of the best leaf below each.
//! Removing a group flags its path, and a flagged queue is reordered when it reaches the top of its heap, as in KAI's
//! `JobsOrderByQueues`. The caller provides the groups of a leaf and their order ([`Leaves`]).

use super::heap::Heap;
use crate::cluster::Cluster;
use crate::ids::QueueIdx;
use crate::plugin::{QueueOrder, Registry};
use crate::share::order::{QueueOrderKey, TieBreak};
use crate::share::{QueueAmounts, QueueTree, root_path};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// What the heaps order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Pending groups, first in order first.
    Place,
    /// Victims, last in order first.
    Evict,
}

impl Purpose {
    /// Reverses an order for victims.
    pub fn directed(self, order: Ordering) -> Ordering {
        match self {
            Self::Place => order,
            Self::Evict => order.reverse(),
        }
    }
}

/// The groups of the leaf queues.
pub trait Leaves {
    /// Whether a leaf queue has no groups left.
    fn is_empty(&self, leaf: QueueIdx) -> bool;
    /// The request of the next group of a leaf queue, and the allocation of its victims.
    fn next_amounts(&self, cluster: &Cluster, leaf: QueueIdx) -> (QueueAmounts, QueueAmounts);
}

/// The tree of heaps.
pub struct QueueHeap<'p> {
    registry: &'p Registry,
    purpose: Purpose,
    total: QueueAmounts,
    nodes: Vec<QueueNode>,
    roots: Heap<usize>,
    node_of: FxHashMap<QueueIdx, usize>,
    /// Queues that come first among queues of the same creation time.
    preferred: SmallVec<[QueueIdx; 4]>,
}

struct QueueNode {
    queue: QueueIdx,
    parent: Option<usize>,
    /// `None` for a leaf queue.
    children: Option<Heap<usize>>,
    flagged: bool,
}

impl<'p> QueueHeap<'p> {
    /// Builds heaps over the leaf queues that have groups, in rank order. Among queues of the same creation time the
    /// ancestors of the preferred leaf come first.
    pub fn new(
        cluster: &Cluster,
        registry: &'p Registry,
        purpose: Purpose,
        total: QueueAmounts,
        leaves: &impl Leaves,
        queues: impl IntoIterator<Item = QueueIdx>,
        preferred: Option<QueueIdx>,
    ) -> Self {
        let mut heap = Self {
            registry,
            purpose,
            total,
            nodes: Vec::new(),
            roots: Heap::new(),
            node_of: FxHashMap::default(),
            preferred: preferred.into_iter().flat_map(|leaf| root_path(cluster, leaf)).collect(),
        };
        let mut queues: Vec<QueueIdx> = queues.into_iter().filter(|q| !leaves.is_empty(*q)).collect();
        queues.sort_unstable_by_key(|q| cluster.queues[*q].rank);
        for &queue in &queues {
            let leaf = heap.add(queue, None);
            heap.add_ancestors(cluster, leaf);
        }
        let mut order: Vec<(usize, u32, usize)> = (0..heap.nodes.len())
            .map(|n| (heap.depth(n), cluster.queues[heap.nodes[n].queue].rank, n))
            .collect();
        order.sort_unstable_by_key(|(depth, rank, _)| (std::cmp::Reverse(*depth), *rank));
        for (_, _, node) in order {
            heap.push_node(cluster, leaves, node);
        }
        heap
    }

    fn add(&mut self, queue: QueueIdx, children: Option<Heap<usize>>) -> usize {
        self.node_of.insert(queue, self.nodes.len());
        self.nodes.push(QueueNode { queue, parent: None, children, flagged: false });
        self.nodes.len() - 1
    }

    /// Adds the missing ancestors of a node; returns them, lowest first.
    fn add_ancestors(&mut self, cluster: &Cluster, node: usize) -> Vec<usize> {
        let mut added = Vec::new();
        let mut at = node;
        while let Some(parent) = cluster.parent(self.nodes[at].queue) {
            let known = self.node_of.get(&parent).copied();
            let up = known.unwrap_or_else(|| self.add(parent, Some(Heap::new())));
            self.nodes[at].parent = Some(up);
            if known.is_some() {
                break;
            }
            added.push(up);
            at = up;
        }
        added
    }

    fn depth(&self, mut at: usize) -> usize {
        let mut depth = 0;
        while let Some(parent) = self.nodes[at].parent {
            (at, depth) = (parent, depth + 1);
        }
        depth
    }

    fn push_node(&mut self, cluster: &Cluster, leaves: &impl Leaves, node: usize) {
        let parent = self.nodes[node].parent;
        self.edit(cluster, leaves, parent, |heap, before| heap.push(node, before));
    }

    fn edit<R>(
        &mut self,
        cluster: &Cluster,
        leaves: &impl Leaves,
        parent: Option<usize>,
        change: impl FnOnce(&mut Heap<usize>, &dyn Fn(usize, usize) -> bool) -> R,
    ) -> R {
        let mut heap = std::mem::take(self.heap_mut(parent));
        let result = change(&mut heap, &|a, b| self.compare(cluster, leaves, a, b).is_lt());
        *self.heap_mut(parent) = heap;
        result
    }

    fn heap_mut(&mut self, parent: Option<usize>) -> &mut Heap<usize> {
        match parent {
            Some(parent) => self.nodes[parent].children.as_mut().expect("a parent has children"),
            None => &mut self.roots,
        }
    }

    fn heap(&self, parent: Option<usize>) -> &Heap<usize> {
        match parent {
            Some(parent) => self.nodes[parent].children.as_ref().expect("a parent has children"),
            None => &self.roots,
        }
    }

    /// Whether no leaf queue has groups left.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The leaf queue of the next group.
    pub fn best_leaf(&mut self, cluster: &Cluster, leaves: &impl Leaves) -> Option<QueueIdx> {
        let mut parent = None;
        loop {
            let top = self.heap(parent).peek()?;
            if std::mem::take(&mut self.nodes[top].flagged) {
                self.edit(cluster, leaves, parent, |heap, before| heap.fix_top(before));
            } else if self.nodes[top].children.is_none() {
                return Some(self.nodes[top].queue);
            } else {
                parent = Some(top);
            }
        }
    }

    /// Updates the path of the best leaf queue after a group was removed: prunes empty queues and flags the others.
    pub fn group_removed(&mut self, cluster: &Cluster, leaves: &impl Leaves, leaf: QueueIdx) {
        let mut at = self.node_of.get(&leaf).copied();
        while let Some(node) = at.filter(|n| self.is_exhausted(leaves, *n)) {
            let parent = self.nodes[node].parent;
            // The node was reached from the top, so that it is the first of its parent's heap.
            self.edit(cluster, leaves, parent, |heap, before| heap.pop(before));
            self.node_of.remove(&self.nodes[node].queue);
            at = parent;
        }
        self.flag(at);
    }

    fn is_exhausted(&self, leaves: &impl Leaves, node: usize) -> bool {
        match &self.nodes[node].children {
            Some(children) => children.is_empty(),
            None => leaves.is_empty(self.nodes[node].queue),
        }
    }

    fn flag(&mut self, mut at: Option<usize>) {
        while let Some(node) = at {
            self.nodes[node].flagged = true;
            at = self.nodes[node].parent;
        }
    }

    /// Updates the path of a leaf queue after a group was added.
    pub fn group_added(&mut self, cluster: &Cluster, leaves: &impl Leaves, leaf: QueueIdx) {
        if let Some(&node) = self.node_of.get(&leaf) {
            self.flag(Some(node));
            return;
        }
        let node = self.add(leaf, None);
        let above = self.add_ancestors(cluster, node);
        self.push_node(cluster, leaves, node);
        for up in above {
            self.push_node(cluster, leaves, up);
        }
        self.flag(Some(node));
    }

    fn compare(&self, cluster: &Cluster, leaves: &impl Leaves, a: usize, b: usize) -> Ordering {
        let (qa, qb) = (self.nodes[a].queue, self.nodes[b].queue);
        for entry in &self.registry.queue_order {
            let order = match entry {
                QueueOrder::Proportion => crate::share::order::compare(
                    &self.order_key(cluster, leaves, a),
                    &self.order_key(cluster, leaves, b),
                    &self.total,
                ),
                QueueOrder::Custom(order) => order.compare(cluster, qa, qb),
            };
            if order.is_ne() {
                return self.purpose.directed(order);
            }
        }
        self.purpose.directed(self.tie_break(cluster, qa).cmp(&self.tie_break(cluster, qb)))
    }

    fn order_key<'c>(&self, cluster: &'c Cluster, leaves: &impl Leaves, node: usize) -> QueueOrderKey<'c> {
        let (request, victims) = leaves.next_amounts(cluster, self.nodes[self.best_below(node)].queue);
        let queue = self.nodes[node].queue;
        QueueOrderKey {
            ledger: cluster.ledger(queue),
            request,
            victims,
            tie_break: self.tie_break(cluster, queue),
        }
    }

    fn tie_break(&self, cluster: &Cluster, queue: QueueIdx) -> TieBreak {
        let created = cluster.queues[queue].created;
        TieBreak {
            created,
            is_not_preferred: !self.preferred.contains(&queue),
            rank: cluster.ledger(queue).rank,
        }
    }

    /// The best leaf queue below a node, without reordering flagged queues.
    fn best_below(&self, mut node: usize) -> usize {
        while let Some(children) = &self.nodes[node].children {
            node = children.peek().expect("empty queues are pruned");
        }
        node
    }
}
