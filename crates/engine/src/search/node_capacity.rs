//! How much every node could offer: free, or being freed.
//!
//! Kept up from the log of touched nodes, so that a search that begins costs what changed since the last one. Only to
//! be refreshed between simulations.

use crate::cluster::Cluster;
use crate::ids::{GroupIdx, IndexVec, NodeIdx};
use crate::node_set::{Marked, NodeSet};
use crate::place::feasible;
use crate::plan::Plan;
use crate::resource::{CPU, MEMORY};
use crate::share::QueueAmounts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// GPUs per node, in millionths.
#[derive(Debug)]
pub(crate) struct NodeCapacity {
    gpus: IndexVec<NodeIdx, i64>,
    /// The same in GPU memory (MiB).
    mib: IndexVec<NodeIdx, i64>,
    /// CPU and memory that are free or being freed; nodes that hold more than they have count as full.
    cpu_memory: IndexVec<NodeIdx, [i64; 2]>,
    /// The same of all nodes together.
    cpu_memory_total: [i64; 2],
    /// What ready nodes offer together: GPUs and MiB.
    ready: (i64, i64),
    /// How many nodes offer each amount.
    nodes_by_gpus: BTreeMap<i64, u32>,
    /// Nodes with any GPU, or part of one, that is free or being freed; by name.
    open: BTreeSet<(u32, NodeIdx)>,
    /// The open nodes as a set, while nothing changed.
    open_set: Option<Arc<Marked>>,
    cursor: usize,
}

impl NodeCapacity {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let mut capacity = Self {
            gpus: IndexVec::filled(0, cluster.nodes.len()),
            mib: IndexVec::filled(0, cluster.nodes.len()),
            cpu_memory: IndexVec::filled([0; 2], cluster.nodes.len()),
            cpu_memory_total: [0; 2],
            ready: (0, 0),
            nodes_by_gpus: BTreeMap::new(),
            open: BTreeSet::new(),
            open_set: None,
            cursor: cluster.touched_end(),
        };
        for &node in &cluster.nodes_by_rank {
            let (gpus, mib) = offered(cluster, node);
            (capacity.gpus[node], capacity.mib[node]) = (gpus, mib);
            if cluster.nodes[node].is_ready() {
                capacity.ready = (capacity.ready.0 + gpus, capacity.ready.1 + mib);
            }
            *capacity.nodes_by_gpus.entry(gpus).or_default() += 1;
            capacity.note_cpu_memory(cluster, node);
            capacity.note_open(cluster, node);
        }
        capacity
    }

    fn note_cpu_memory(&mut self, cluster: &Cluster, node: NodeIdx) {
        let free = [CPU, MEMORY].map(|dim| cluster.nodes[node].free(dim).max(0));
        let old = std::mem::replace(&mut self.cpu_memory[node], free);
        for (at, total) in self.cpu_memory_total.iter_mut().enumerate() {
            *total += free[at] - old[at];
        }
    }

    fn note_open(&mut self, cluster: &Cluster, node: NodeIdx) {
        let key = (cluster.nodes[node].rank, node);
        let changed =
            if feasible::offers_gpus(cluster, node) { self.open.insert(key) } else { self.open.remove(&key) };
        if changed {
            self.open_set = None;
        }
    }

    /// Takes up what changed since the last time.
    pub(crate) fn refresh(&mut self, cluster: &Cluster) {
        let end = cluster.touched_end();
        match cluster.touched_since(self.cursor) {
            None => *self = Self::new(cluster),
            Some(touched) => {
                let mut touched = touched.to_vec();
                touched.sort_unstable();
                touched.dedup();
                for node in touched {
                    self.note(cluster, node);
                }
                self.cursor = end;
            }
        }
    }

    fn note(&mut self, cluster: &Cluster, node: NodeIdx) {
        if !cluster.nodes[node].present {
            return;
        }
        let (old, (new, mib)) = (self.gpus[node], offered(cluster, node));
        if cluster.nodes[node].is_ready() {
            self.ready = (self.ready.0 + new - old, self.ready.1 + mib - self.mib[node]);
        }
        self.mib[node] = mib;
        self.note_cpu_memory(cluster, node);
        if old != new {
            self.gpus[node] = new;
            *self.nodes_by_gpus.entry(new).or_default() += 1;
            let count = self.nodes_by_gpus.get_mut(&old).expect("every node is counted under its amount");
            *count -= 1;
            if *count == 0 {
                self.nodes_by_gpus.remove(&old);
            }
        }
        self.note_open(cluster, node);
    }

    /// GPUs that a node node_costs.
    pub(crate) fn gpus(&self, node: NodeIdx) -> i64 {
        self.gpus[node]
    }

    /// How many pods that need so many GPUs each the cluster could take at most.
    pub(crate) fn fitting(&self, gpus: i64) -> i64 {
        self.nodes_by_gpus.range(gpus..).map(|(offer, nodes)| offer / gpus * i64::from(*nodes)).sum()
    }

    /// The amounts on offer, largest first, and how many nodes offer each.
    pub(crate) fn largest(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        self.nodes_by_gpus.iter().rev().map(|(gpus, nodes)| (*gpus, *nodes))
    }

    /// All GPUs on offer together. A node may hold more than it has; what it owes is not taken from the others.
    pub(crate) fn total(&self) -> i64 {
        self.nodes_by_gpus.range(1..).map(|(gpus, nodes)| gpus * i64::from(*nodes)).sum()
    }

    /// CPU, memory and GPUs on offer together.
    pub(crate) fn totals(&self) -> QueueAmounts {
        let [cpu, memory] = self.cpu_memory_total;
        [cpu, memory, self.total()]
    }

    /// GPUs and GPU memory that ready nodes offer together.
    pub(crate) fn ready(&self) -> (i64, i64) {
        self.ready
    }

    /// The nodes that a search starts from.
    pub(crate) fn start(&mut self, plan: &mut Plan<'_>, group: GroupIdx) -> NodeSet {
        if feasible::wants_any_node(plan, group) {
            return NodeSet::All;
        }
        let open = &self.open;
        let set = self.open_set.get_or_insert_with(|| {
            let id = plan.cluster_mut().fresh_version();
            Arc::new(Marked::new(plan, open.iter().map(|(_, node)| *node).collect(), id))
        });
        NodeSet::Marked(Arc::clone(set))
    }
}

fn offered(cluster: &Cluster, node: NodeIdx) -> (i64, i64) {
    let node = &cluster.nodes[node];
    let (idle, releasing) = (node.idle_gpu_sum(&cluster.dims), node.releasing_gpu_sum(&cluster.dims));
    (idle.0 + releasing.0, idle.1 + releasing.1)
}

/// GPUs on offer once some pods are gone, as far as one group cares: how many of its pods would fit.
#[derive(Clone, Debug)]
pub(crate) struct FreedCapacity<'r> {
    capacity: &'r NodeCapacity,
    /// What was freed on top, by node.
    more: BTreeMap<NodeIdx, i64>,
    /// The part of it that goes back to where it came from.
    temporary: BTreeMap<NodeIdx, i64>,
    /// GPUs that the smallest pod needs; 0 where GPUs tell nothing.
    least: i64,
    /// Pods of that size that fit.
    pub fitting: i64,
}

impl<'r> FreedCapacity<'r> {
    pub(crate) fn new(capacity: &'r NodeCapacity, least: i64) -> Self {
        let fitting = if least > 0 { capacity.fitting(least) } else { i64::MAX };
        Self { capacity, more: BTreeMap::new(), temporary: BTreeMap::new(), least, fitting }
    }

    /// All GPUs on offer.
    pub(crate) fn total(&self) -> i64 {
        self.capacity.total() + self.more.values().sum::<i64>()
    }

    /// GPUs on offer on a node.
    pub(crate) fn gpus(&self, node: NodeIdx) -> i64 {
        self.capacity.gpus(node) + self.more.get(&node).copied().unwrap_or(0)
    }

    /// The same without what goes back.
    pub(crate) fn usable(&self, node: NodeIdx) -> i64 {
        let temporary = if self.temporary.is_empty() { None } else { self.temporary.get(&node) };
        self.gpus(node) - temporary.copied().unwrap_or(0)
    }

    /// Frees some GPUs of a node that go back to where they came from.
    pub(crate) fn add_temporary(&mut self, node: NodeIdx, gpus: i64) {
        *self.more.entry(node).or_default() += gpus;
        *self.temporary.entry(node).or_default() += gpus;
    }

    /// Frees some GPUs of a node.
    pub(crate) fn add(&mut self, node: NodeIdx, gpus: i64) {
        let before = self.usable(node);
        *self.more.entry(node).or_default() += gpus;
        if self.least > 0 {
            self.fitting += (before + gpus).max(0) / self.least - before.max(0) / self.least;
        }
    }

    /// Whether demands, largest first, find room one after the other on the nodes that offer most.
    pub(crate) fn takes(&self, demands: &[i64]) -> bool {
        let mut node_costs: Vec<i64> = Vec::new();
        let mut changed_from: Vec<i64> = self.more.keys().map(|n| self.capacity.gpus(*n)).collect();
        changed_from.sort_unstable();
        node_costs.extend(self.more.keys().map(|n| self.usable(*n)));
        for (gpus, nodes) in self.capacity.largest() {
            let at = changed_from.partition_point(|g| *g < gpus);
            let gone = changed_from[at..].iter().take_while(|g| **g == gpus).count();
            let left = (nodes as usize).saturating_sub(gone).min(demands.len());
            node_costs.extend(std::iter::repeat_n(gpus, left));
            if node_costs.len() >= demands.len() + self.more.len() {
                break;
            }
        }
        node_costs.sort_unstable_by(|a, b| b.cmp(a));
        node_costs.truncate(demands.len());
        let mut left = node_costs.clone();
        demands.iter().all(|&demand| {
            if demand == 0 {
                return true;
            }
            let holder =
                (0..left.len()).take_while(|i| node_costs[*i] >= demand).find(|i| left[*i] >= demand);
            holder.inspect(|i| left[*i] -= demand).is_some()
        })
    }
}
