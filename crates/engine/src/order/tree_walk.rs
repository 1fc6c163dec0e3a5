//! The walk over the queue tree: which group comes next.
//!
//! Every inner queue is a heap of its children, every leaf a heap of its groups. The next group is the best group of
//! the best leaf of the best child. Two queues compare by the best group below each (when groups wait), or by what
//! was already taken from each and would be taken next (when victims are chosen).
//! After a group is taken, its branch is flagged; a flagged queue finds its place again only when it comes to the top.

use super::heap::Heap;
use super::member::{Selection, pods_to_place};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use crate::plugin::{QueueOrder, Registry};
use crate::share::order::Contender;
use crate::share::{QueueTree, Triple, sum};
use std::cell::RefCell;
use std::cmp::Ordering;

/// What the walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Groups that wait for a place, best first.
    Place,
    /// Groups to take from, worst first.
    Evict,
}

/// A walk in progress.
pub struct TreeWalk<'p> {
    registry: &'p Registry,
    purpose: Purpose,
    total: Triple,
    nodes: Vec<QueueNode>,
    roots: Heap<usize>,
    node_of: rustc_hash::FxHashMap<QueueIdx, usize>,
    /// What a group's next step asks for, remembered while its pods stay as they are.
    asks: RefCell<rustc_hash::FxHashMap<GroupIdx, (u64, Triple)>>,
}

struct QueueNode {
    queue: QueueIdx,
    parent: Option<usize>,
    content: Content,
    flagged: bool,
    /// Resources of groups already taken from this leaf.
    taken: Triple,
}

enum Content {
    Leaf(Heap<GroupIdx>),
    Inner(Heap<usize>),
}

impl QueueNode {
    fn is_empty(&self) -> bool {
        match &self.content {
            Content::Leaf(groups) => groups.is_empty(),
            Content::Inner(children) => children.is_empty(),
        }
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
        let mut walk = Self {
            registry,
            purpose,
            total,
            nodes: Vec::new(),
            roots: Heap::new(),
            node_of: rustc_hash::FxHashMap::default(),
            asks: RefCell::default(),
        };
        let mut by_leaf: Vec<(u32, QueueIdx, GroupIdx)> = groups
            .into_iter()
            .filter_map(|g| cluster.groups[g].queue.map(|q| (cluster.queues[q].rank, q, g)))
            .filter(|(_, q, _)| cluster.queues[*q].children.is_empty())
            .collect();
        by_leaf.sort_unstable_by_key(|(rank, _, _)| *rank);
        for leaf in by_leaf.chunk_by(|a, b| a.1 == b.1) {
            let mut groups: Vec<GroupIdx> = leaf.iter().map(|(_, _, g)| *g).collect();
            groups.sort_by(|a, b| walk.compare_groups(cluster, *a, *b));
            groups.truncate(depth.unwrap_or(usize::MAX));
            let mut heap = Heap::new();
            for group in groups {
                heap.push(group, |a, b| walk.compare_groups(cluster, a, b).is_lt());
            }
            walk.add_leaf(leaf[0].1, heap);
        }
        walk.link_inner(cluster);
        walk
    }

    fn add_leaf(&mut self, queue: QueueIdx, heap: Heap<GroupIdx>) {
        if !heap.is_empty() {
            self.node_of.insert(queue, self.nodes.len());
            let content = Content::Leaf(heap);
            self.nodes.push(QueueNode { queue, parent: None, content, flagged: false, taken: [0; 3] });
        }
    }

    /// Makes the inner nodes and fills their heaps, deepest first, each in name order.
    fn link_inner(&mut self, cluster: &Cluster) {
        let leaves = self.nodes.len();
        for leaf in 0..leaves {
            let mut at = leaf;
            while let Some(parent) = cluster.parent(self.nodes[at].queue) {
                let known = self.node_of.get(&parent).copied();
                let node = known.unwrap_or_else(|| {
                    let content = Content::Inner(Heap::new());
                    self.node_of.insert(parent, self.nodes.len());
                    self.nodes.push(QueueNode {
                        queue: parent,
                        parent: None,
                        content,
                        flagged: false,
                        taken: [0; 3],
                    });
                    self.nodes.len() - 1
                });
                self.nodes[at].parent = Some(node);
                if known.is_some() {
                    break;
                }
                at = node;
            }
        }
        let depth = |walk: &Self, mut at: usize| {
            let mut depth = 0;
            while let Some(parent) = walk.nodes[at].parent {
                (at, depth) = (parent, depth + 1);
            }
            depth
        };
        let mut order: Vec<(usize, u32, usize)> = (0..self.nodes.len())
            .map(|n| (depth(self, n), cluster.queues[self.nodes[n].queue].rank, n))
            .collect();
        order.sort_unstable_by_key(|(depth, rank, _)| (std::cmp::Reverse(*depth), *rank));
        for (_, _, node) in order {
            self.push_node(cluster, node);
        }
    }

    /// Puts a filled node into the heap of its parent.
    fn push_node(&mut self, cluster: &Cluster, node: usize) {
        self.edit_siblings(cluster, self.nodes[node].parent, |heap, before| heap.push(node, before));
    }

    fn edit_siblings<R>(
        &mut self,
        cluster: &Cluster,
        parent: Option<usize>,
        edit: impl FnOnce(&mut Heap<usize>, &dyn Fn(usize, usize) -> bool) -> R,
    ) -> R {
        let mut heap = std::mem::take(self.heap_mut(parent));
        let result = edit(&mut heap, &|a, b| self.compare_nodes(cluster, a, b).is_lt());
        *self.heap_mut(parent) = heap;
        result
    }

    fn heap_mut(&mut self, parent: Option<usize>) -> &mut Heap<usize> {
        match parent.map(|p| &mut self.nodes[p].content) {
            Some(Content::Inner(heap)) => heap,
            Some(Content::Leaf(_)) => unreachable!("a parent of queues is no leaf"),
            None => &mut self.roots,
        }
    }

    fn heap(&self, parent: Option<usize>) -> &Heap<usize> {
        match parent.map(|p| &self.nodes[p].content) {
            Some(Content::Inner(heap)) => heap,
            Some(Content::Leaf(_)) => unreachable!("a parent of queues is no leaf"),
            None => &self.roots,
        }
    }

    /// How many groups are left.
    pub fn len(&self) -> usize {
        let leaf = |n: &QueueNode| match &n.content {
            Content::Leaf(groups) => groups.len(),
            Content::Inner(_) => 0,
        };
        self.nodes.iter().map(leaf).sum()
    }
    /// Whether no group is left.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Takes the next group.
    pub fn pop(&mut self, cluster: &Cluster) -> Option<GroupIdx> {
        let mut parent = None;
        let leaf = loop {
            let top = self.settled_top(cluster, parent)?;
            match self.nodes[top].content {
                Content::Leaf(_) => break top,
                Content::Inner(_) => parent = Some(top),
            }
        };
        let Content::Leaf(heap) = &mut self.nodes[leaf].content else {
            unreachable!("the loop ends at a leaf")
        };
        let mut heap = std::mem::take(heap);
        let group = heap.pop(|a, b| self.compare_groups(cluster, a, b).is_lt())?;
        self.nodes[leaf].content = Content::Leaf(heap);
        if self.purpose == Purpose::Evict {
            self.nodes[leaf].taken = sum(&self.nodes[leaf].taken, &held_by(cluster, group));
        }
        self.after_pop(cluster, leaf);
        Some(group)
    }

    /// The best node of a heap, after flagged ones on top have found their place.
    fn settled_top(&mut self, cluster: &Cluster, parent: Option<usize>) -> Option<usize> {
        loop {
            let top = self.heap(parent).peek()?;
            if !std::mem::take(&mut self.nodes[top].flagged) {
                return Some(top);
            }
            self.edit_siblings(cluster, parent, |heap, before| heap.fix_top(before));
        }
    }

    /// Prunes an emptied branch, or flags it. A node that was reached is on top of its parent's heap.
    fn after_pop(&mut self, cluster: &Cluster, leaf: usize) {
        let mut at = Some(leaf);
        while let Some(node) = at.filter(|n| self.nodes[*n].is_empty()) {
            let parent = self.nodes[node].parent;
            self.edit_siblings(cluster, parent, |heap, before| heap.pop(before));
            self.node_of.remove(&self.nodes[node].queue);
            at = parent;
        }
        self.flag(at);
    }

    fn flag(&mut self, mut at: Option<usize>) {
        while let Some(node) = at {
            self.nodes[node].flagged = true;
            at = self.nodes[node].parent;
        }
    }

    /// Puts a group back, or in.
    pub fn push(&mut self, cluster: &Cluster, group: GroupIdx) {
        let Some(queue) = cluster.groups[group].queue.filter(|q| cluster.queues[*q].children.is_empty())
        else {
            return;
        };
        if let Some(&leaf) = self.node_of.get(&queue) {
            let Content::Leaf(heap) = &mut self.nodes[leaf].content else { return };
            let mut heap = std::mem::take(heap);
            heap.push(group, |a, b| self.compare_groups(cluster, a, b).is_lt());
            self.nodes[leaf].content = Content::Leaf(heap);
            self.flag(Some(leaf));
            return;
        }
        let mut heap = Heap::new();
        heap.push(group, |_, _| false);
        let taken = self.nodes.iter().rev().find(|n| n.queue == queue).map_or([0; 3], |n| n.taken);
        let mut node = self.nodes.len();
        let content = Content::Leaf(heap);
        self.nodes.push(QueueNode { queue, parent: None, content, flagged: false, taken });
        self.node_of.insert(queue, node);
        let leaf = node;
        loop {
            let parent = cluster.parent(self.nodes[node].queue);
            let Some(parent) = parent else {
                self.push_node(cluster, node);
                break;
            };
            let known = self.node_of.get(&parent).copied();
            let up = known.unwrap_or_else(|| {
                let content = Content::Inner(Heap::new());
                self.nodes.push(QueueNode {
                    queue: parent,
                    parent: None,
                    content,
                    flagged: false,
                    taken: [0; 3],
                });
                self.node_of.insert(parent, self.nodes.len() - 1);
                self.nodes.len() - 1
            });
            self.nodes[node].parent = Some(up);
            self.push_node(cluster, node);
            if known.is_some() {
                break;
            }
            node = up;
        }
        self.flag(Some(leaf));
    }

    fn compare_groups(&self, cluster: &Cluster, a: GroupIdx, b: GroupIdx) -> Ordering {
        let order = super::groups::compare(cluster, self.registry, a, b);
        match self.purpose {
            Purpose::Place => order,
            Purpose::Evict => order.reverse(),
        }
    }

    fn compare_nodes(&self, cluster: &Cluster, a: usize, b: usize) -> Ordering {
        let (qa, qb) = (self.nodes[a].queue, self.nodes[b].queue);
        for entry in &self.registry.queue_order {
            let order = match entry {
                QueueOrder::Proportion => crate::share::order::compare(
                    &self.contender(cluster, a),
                    &self.contender(cluster, b),
                    &self.total,
                ),
                QueueOrder::Custom(order) => order.compare(cluster, qa, qb),
            };
            if order.is_ne() {
                return self.directed(order);
            }
        }
        self.directed(cluster.ledger(qa).rank.cmp(&cluster.ledger(qb).rank))
    }

    fn directed(&self, order: Ordering) -> Ordering {
        match self.purpose {
            Purpose::Place => order,
            Purpose::Evict => order.reverse(),
        }
    }

    fn contender<'c>(&self, cluster: &'c Cluster, node: usize) -> Contender<'c> {
        let ledger = cluster.ledger(self.nodes[node].queue);
        let (leaf, next) = self.best_below(node);
        match self.purpose {
            Purpose::Place => Contender { ledger, asks: self.asked_by(cluster, next), gives: [0; 3] },
            Purpose::Evict => Contender {
                ledger,
                asks: [0; 3],
                gives: sum(&self.nodes[leaf].taken, &held_by(cluster, next)),
            },
        }
    }

    /// The leaf and the group that the walk would take below a node as its heaps stand.
    fn best_below(&self, mut node: usize) -> (usize, GroupIdx) {
        loop {
            match &self.nodes[node].content {
                Content::Leaf(groups) => {
                    return (node, groups.peek().expect("empty leaves are pruned"));
                }
                Content::Inner(children) => node = children.peek().expect("empty queues are pruned"),
            }
        }
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
