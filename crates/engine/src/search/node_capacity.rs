//! Tracks the idle and releasing capacity of every node.
//!
//! Updated from the log of changed nodes, so that starting a search costs what changed since the last one, in an earlier cycle,
//! too. Must only be refreshed between simulations, and dropped when a description of a node changes.

use crate::cluster::Cluster;
use crate::ids::{GroupIdx, Idx, IndexVec, NodeIdx};
use crate::node_set::{Marked, NodeSet};
use crate::place::feasible;
use crate::plan::Plan;
use crate::resource::{CPU, MEMORY};
use crate::share::QueueAmounts;
use fixedbitset::FixedBitSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// GPUs per node, in millionths.
#[derive(Debug)]
pub(crate) struct NodeCapacity {
    gpus: IndexVec<NodeIdx, i64>,
    /// GPU memory per node (MiB).
    mib: IndexVec<NodeIdx, i64>,
    /// Idle and releasing CPU and memory per node; an overcommitted node counts as full.
    cpu_memory: IndexVec<NodeIdx, [i64; 2]>,
    cpu_memory_total: [i64; 2],
    /// Sum over ready nodes: GPUs and MiB.
    ready: (i64, i64),
    /// Number of nodes by available GPUs.
    nodes_by_gpus: BTreeMap<i64, u32>,
    /// Nodes with an idle or releasing GPU, or part of one, by rank.
    open: BTreeSet<(u32, NodeIdx)>,
    /// The same as a node set, until it changes.
    open_set: Option<Arc<Marked>>,
    cursor: usize,
}

impl NodeCapacity {
    pub(crate) fn new(plan: &Plan<'_>) -> Self {
        let cluster: &Cluster = plan;
        let mut capacity = Self {
            gpus: IndexVec::filled(0, cluster.nodes.len()),
            mib: IndexVec::filled(0, cluster.nodes.len()),
            cpu_memory: IndexVec::filled([0; 2], cluster.nodes.len()),
            cpu_memory_total: [0; 2],
            ready: (0, 0),
            nodes_by_gpus: BTreeMap::new(),
            open: BTreeSet::new(),
            open_set: None,
            cursor: plan.ledger_log().end(),
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

    /// Applies the changes since the last refresh.
    pub(crate) fn refresh(&mut self, plan: &Plan<'_>) {
        let end = plan.ledger_log().end();
        match plan.ledger_log().since(self.cursor) {
            None => *self = Self::new(plan),
            Some(touched) => {
                let mut touched = touched.to_vec();
                touched.sort_unstable();
                touched.dedup();
                for node in touched {
                    self.note(plan, node);
                }
                self.cursor = end;
            }
        }
    }

    /// Without what refers to the state of one cycle.
    pub(crate) fn between_cycles(self) -> Self {
        Self { open_set: None, ..self }
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

    /// GPUs available on a node.
    pub(crate) fn gpus(&self, node: NodeIdx) -> i64 {
        self.gpus[node]
    }

    /// Upper bound on the pods of this size that fit in the cluster.
    pub(crate) fn fitting(&self, gpus: i64) -> i64 {
        self.nodes_by_gpus.range(gpus..).map(|(offer, nodes)| offer / gpus * i64::from(*nodes)).sum()
    }

    /// Available amounts, largest first, with their number of nodes.
    pub(crate) fn largest(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        self.nodes_by_gpus.iter().rev().map(|(gpus, nodes)| (*gpus, *nodes))
    }

    /// Available GPUs of all nodes. An overcommitted node does not reduce the others.
    pub(crate) fn total(&self) -> i64 {
        self.nodes_by_gpus.range(1..).map(|(gpus, nodes)| gpus * i64::from(*nodes)).sum()
    }

    /// Available CPU, memory and GPUs of all nodes.
    pub(crate) fn totals(&self) -> QueueAmounts {
        let [cpu, memory] = self.cpu_memory_total;
        [cpu, memory, self.total()]
    }

    /// Available GPUs and GPU memory of ready nodes.
    pub(crate) fn ready(&self) -> (i64, i64) {
        self.ready
    }

    /// The nodes on which a simulation may place pods before any eviction.
    pub(crate) fn start(&mut self, plan: &mut Plan<'_>, group: GroupIdx) -> NodeSet {
        if feasible::allows_any_node(plan, group) {
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

/// Available GPUs after evictions, and the number of pods of one size that fit.
#[derive(Clone, Debug)]
pub(crate) struct FreedCapacity<'r> {
    capacity: &'r NodeCapacity,
    /// The nodes on which pods fit, where these are not all.
    eligible: Option<&'r FixedBitSet>,
    /// GPUs freed in addition, by node.
    more: BTreeMap<NodeIdx, i64>,
    /// The part of them that pods placed in this cycle occupy again.
    temporary: BTreeMap<NodeIdx, i64>,
    /// GPUs of the smallest pod; 0 where GPUs are no bound.
    least: i64,
    /// Upper bound on the pods of that size that fit.
    pub fitting: i64,
}

impl<'r> FreedCapacity<'r> {
    pub(crate) fn new(capacity: &'r NodeCapacity, least: i64, eligible: Option<&'r FixedBitSet>) -> Self {
        let fitting = match eligible {
            _ if least <= 0 => i64::MAX,
            None => capacity.fitting(least),
            Some(nodes) => nodes.ones().map(|node| capacity.gpus(NodeIdx::new(node)).max(0) / least).sum(),
        };
        Self { capacity, eligible, more: BTreeMap::new(), temporary: BTreeMap::new(), least, fitting }
    }

    /// Whether pods may use a node.
    pub(crate) fn is_eligible(&self, node: NodeIdx) -> bool {
        self.eligible.is_none_or(|eligible| eligible.contains(node.index()))
    }

    pub(crate) fn total(&self) -> i64 {
        self.capacity.total() + self.more.values().sum::<i64>()
    }

    pub(crate) fn gpus(&self, node: NodeIdx) -> i64 {
        self.capacity.gpus(node) + self.more.get(&node).copied().unwrap_or(0)
    }

    /// GPUs of a node without the part that is occupied again.
    pub(crate) fn usable(&self, node: NodeIdx) -> i64 {
        let temporary = if self.temporary.is_empty() { None } else { self.temporary.get(&node) };
        self.gpus(node) - temporary.copied().unwrap_or(0)
    }

    /// Frees GPUs that the same pods occupy again.
    pub(crate) fn add_temporary(&mut self, node: NodeIdx, gpus: i64) {
        *self.more.entry(node).or_default() += gpus;
        *self.temporary.entry(node).or_default() += gpus;
    }

    pub(crate) fn add(&mut self, node: NodeIdx, gpus: i64) {
        let before = self.usable(node);
        *self.more.entry(node).or_default() += gpus;
        if self.least > 0 && self.is_eligible(node) {
            self.fitting += (before + gpus).max(0) / self.least - before.max(0) / self.least;
        }
    }

    /// Whether demands, largest first, fit one after the other on the nodes with most GPUs.
    pub(crate) fn fits(&self, demands: &[i64]) -> bool {
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
