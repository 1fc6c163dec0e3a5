//! Ranks nodes by the cost of freeing capacity on them, and combines the cheapest into sets of victims.
//!
//! Costs are reused while the searches have the same key. Which queues are reclaimable changes with every committed
//! plan and is evaluated when sets are proposed. First come nodes whose victims are reclaimable or could move to free
//! capacity, with all victims or only the reclaimable ones; last come nodes that depend on other evictions.

use super::accumulate::freed_by;
use super::minimal::Cost;
use super::node_capacity::NodeCapacity;
use super::pending_request::{PendingRequest, RequestPart};
use super::rules::Rules;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, IndexVec, NodeIdx, PodIdx, QueueIdx};
use crate::order::evict::EvictablePods;
use crate::order::tree_walk::leaf_of;
use crate::outcome::Cause;
use crate::plan::Plan;
use crate::plugin::VictimBatch as Batch;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Most scenarios simulated where the search is not exhaustive.
const MAX_SCENARIOS: usize = 48;

/// Searches with equal keys have equal node costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeCostKey {
    cause: Cause,
    /// The preemptor's queue, where the rules depend on it.
    leaf: Option<QueueIdx>,
    /// Only groups below this priority are victims.
    below: Option<i32>,
    least: i64,
    leaves: Vec<QueueIdx>,
}

/// GPUs by leaf queue.
type ByLeaf = SmallVec<[(QueueIdx, i64); 2]>;

/// Cost of freeing capacity for one more pod on a node.
#[derive(Clone, Debug)]
struct NodeCost {
    cost: Cost,
    /// GPUs of the cheapest victims on the node.
    chosen: ByLeaf,
    /// GPUs of all possible victims on the node.
    all: ByLeaf,
}

/// Cost of freeing capacity for one more pod, by node.
#[derive(Debug)]
pub(crate) struct NodeCosts {
    key: NodeCostKey,
    of_node: IndexVec<NodeIdx, Option<NodeCost>>,
    sorted: BTreeSet<(Cost, u32, NodeIdx)>,
    cursor: usize,
}

impl NodeCosts {
    pub(crate) fn key(
        cluster: &Cluster,
        rules: &Rules<'_>,
        request: &PendingRequest,
        leaves: &[QueueIdx],
    ) -> NodeCostKey {
        let below = (rules.cause == Cause::Preempt).then(|| cluster.groups[request.group].priority);
        NodeCostKey {
            cause: rules.cause,
            leaf: (rules.cause != Cause::Consolidation).then_some(rules.reclaimer.queue),
            below,
            least: request.whole().least_gpus(),
            leaves: leaves.to_vec(),
        }
    }

    pub(crate) fn new(plan: &Plan<'_>, rules: &Rules<'_>, capacity: &NodeCapacity, key: NodeCostKey) -> Self {
        let mut node_costs = Self {
            key,
            of_node: IndexVec::filled(None, plan.nodes.len()),
            sorted: BTreeSet::new(),
            cursor: plan.ledger_log().end(),
        };
        for &node in &plan.nodes_by_rank {
            node_costs.note(plan, rules, capacity, node);
        }
        node_costs
    }

    /// Applies the changes since the last refresh; false when the costs do not apply to this search.
    pub(crate) fn refresh(
        &mut self,
        plan: &Plan<'_>,
        rules: &Rules<'_>,
        capacity: &NodeCapacity,
        key: &NodeCostKey,
    ) -> bool {
        let Some(touched) = plan.ledger_log().since(self.cursor).filter(|_| self.key == *key) else {
            return false;
        };
        let mut touched = touched.to_vec();
        touched.sort_unstable();
        touched.dedup();
        for node in touched {
            self.note(plan, rules, capacity, node);
        }
        self.cursor = plan.ledger_log().end();
        true
    }

    fn note(&mut self, cluster: &Cluster, rules: &Rules<'_>, capacity: &NodeCapacity, node: NodeIdx) {
        let rank = cluster.nodes[node].rank;
        if let Some(old) = self.of_node[node].take() {
            self.sorted.remove(&(old.cost, rank, node));
        }
        if !cluster.nodes[node].present || !cluster.nodes[node].is_ready() {
            return;
        }
        let needed = self.key.least - capacity.gpus(node);
        if needed <= 0 {
            return;
        }
        let evictable = evictable_on(cluster, rules, &self.key.leaves, node);
        if let Some(chosen) = choose(&evictable, needed) {
            let cost = cost_of(&evictable, &chosen);
            let chosen = by_leaf(chosen.iter().map(|at| &evictable[*at]));
            self.of_node[node] = Some(NodeCost { cost, chosen, all: by_leaf(&evictable) });
            self.sorted.insert((cost, rank, node));
        }
    }

    /// Sets of victims, cheapest nodes first: the missing number of nodes, then other and more nodes.
    pub(crate) fn proposals(
        &self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        capacity: &NodeCapacity,
        part: &RequestPart<'_>,
    ) -> Proposals<'_> {
        let least = part.least_gpus();
        let missing = usize::try_from(part.pods.len() as i64 - capacity.fitting(least)).unwrap_or(0).max(1);
        let reclaimable: Vec<QueueIdx> =
            self.key.leaves.iter().copied().filter(|leaf| rules.may_lose(cluster, *leaf)).collect();
        let (most, free) = (missing + MAX_SCENARIOS, capacity.total());
        let (mut nodes, mut rest) = (Vec::new(), Vec::new());
        for &(_, _, node) in &self.sorted {
            match self.victim_scope(node, capacity, &reclaimable, free) {
                Some(scope) => nodes.push((node, scope)),
                None if rest.len() < most => rest.push((node, VictimScope::Any)),
                None => {}
            }
            if nodes.len() == most {
                break;
            }
        }
        nodes.extend(rest);
        nodes.truncate(most);
        Proposals { node_costs: self, reclaimable, nodes, missing, next: 0 }
    }

    /// Which victims of a node to use; `None` where they could only move to capacity freed by other evictions.
    fn victim_scope(
        &self,
        node: NodeIdx,
        capacity: &NodeCapacity,
        reclaimable: &[QueueIdx],
        free: i64,
    ) -> Option<VictimScope> {
        let node_cost = self.of_node[node].as_ref()?;
        let of_reclaimable = |held: &ByLeaf| -> i64 {
            held.iter()
                .filter(|(leaf, _)| reclaimable.binary_search(leaf).is_ok())
                .map(|(_, gpus)| gpus)
                .sum()
        };
        let held: i64 = node_cost.chosen.iter().map(|(_, gpus)| gpus).sum();
        let not_reclaimable = held - of_reclaimable(&node_cost.chosen);
        if not_reclaimable == 0 || not_reclaimable <= free {
            return Some(VictimScope::Any);
        }
        (of_reclaimable(&node_cost.all) >= self.key.least - capacity.gpus(node))
            .then_some(VictimScope::ReclaimableOnly)
    }

    fn batches_on(
        &self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        capacity: &NodeCapacity,
        reclaimable: &[QueueIdx],
        nodes: &[(NodeIdx, VictimScope)],
    ) -> Vec<Batch> {
        let mut set: Vec<Batch> = Vec::new();
        for &(node, scope) in nodes {
            let needed = self.key.least - capacity.gpus(node);
            let leaves = match scope {
                VictimScope::Any => &self.key.leaves,
                VictimScope::ReclaimableOnly => reclaimable,
            };
            let mut evictable = evictable_on(cluster, rules, leaves, node);
            let Some(chosen) = choose(&evictable, needed) else { continue };
            // In reverse, so that the remaining positions stay valid.
            let mut batches: Vec<Batch> =
                chosen.into_iter().rev().map(|at| evictable.swap_remove(at).batch).collect();
            batches.reverse();
            for batch in batches {
                // A group that is a victim on two nodes is evicted once, by the larger of its batches.
                match set.iter_mut().find(|b| b.group == batch.group) {
                    Some(known) if known.pods.len() < batch.pods.len() => *known = batch,
                    Some(_) => {}
                    None => set.push(batch),
                }
            }
        }
        set
    }
}

/// Which groups may be victims on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VictimScope {
    /// The cheapest ones.
    Any,
    /// Only groups of queues that may lose resources.
    ReclaimableOnly,
}

/// Iterator over sets of victims.
pub(crate) struct Proposals<'o> {
    node_costs: &'o NodeCosts,
    /// Leaf queues that may lose resources.
    reclaimable: Vec<QueueIdx>,
    /// Best first.
    nodes: Vec<(NodeIdx, VictimScope)>,
    missing: usize,
    next: usize,
}

impl Proposals<'_> {
    /// The next set; the cluster must be unchanged since the costs were refreshed.
    pub(crate) fn next(
        &mut self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        capacity: &NodeCapacity,
    ) -> Option<Vec<Batch>> {
        const MORE_NODES: [usize; 4] = [0, 1, 2, 4];
        const STARTS: usize = MAX_SCENARIOS / MORE_NODES.len();
        loop {
            let count = self.missing + MORE_NODES.get(self.next / STARTS)?;
            let from = self.next % STARTS;
            self.next += 1;
            let Some(chosen) = self.nodes.get(from..from + count) else { continue };
            let set = self.node_costs.batches_on(cluster, rules, capacity, &self.reclaimable, chosen);
            let groups: BTreeSet<GroupIdx> = set.iter().map(|batch| batch.group).collect();
            if rules.max_victims.is_none_or(|most| groups.len() <= most as usize) {
                return Some(set);
            }
        }
    }
}

/// The batch that a group must lose so that all its pods leave a node.
struct EvictableGroup {
    leaf: QueueIdx,
    cost: Cost,
    gpus: i64,
    batch: Batch,
}

/// The batches of the groups of some leaf queues on a node, cheapest first.
fn evictable_on(
    cluster: &Cluster,
    rules: &Rules<'_>,
    leaves: &[QueueIdx],
    node: NodeIdx,
) -> Vec<EvictableGroup> {
    let mut evictable: Vec<EvictableGroup> = Vec::new();
    let mut on_node: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
    for &pod in &cluster.nodes[node].pods {
        let p = &cluster.pods[pod];
        if let (Some(group), true, true) =
            (p.group, p.state.status.is_active_allocated(), p.state.releasing.is_none())
        {
            on_node.entry(group).or_default().push(pod);
        }
    }
    for (group, pods) in on_node {
        let Some(leaf) = leaf_of(cluster, group).filter(|leaf| leaves.binary_search(leaf).is_ok()) else {
            continue;
        };
        let allowed = cluster.groups[group].preemptible
            && cluster.groups[group].pods.iter().all(|pod| !cluster.is_placed_this_cycle(*pod))
            && rules.allow_group(cluster, group);
        if allowed {
            evictable.extend(evictable_of(cluster, rules, (leaf, group), &pods));
        }
    }
    let key = |entry: &EvictableGroup| {
        let group = &cluster.groups[entry.batch.group];
        (entry.cost, group.created, cluster.text(group.namespace), cluster.text(group.name))
    };
    evictable.sort_by(|a, b| key(a).cmp(&key(b)));
    evictable
}

fn cost_of(evictable: &[EvictableGroup], chosen: &[usize]) -> Cost {
    chosen.iter().fold(Cost::default(), |all, at| all.plus(evictable[*at].cost))
}

fn by_leaf<'s>(evictable: impl IntoIterator<Item = &'s EvictableGroup>) -> ByLeaf {
    let mut by_leaf = ByLeaf::new();
    for entry in evictable {
        match by_leaf.iter_mut().find(|(leaf, _)| *leaf == entry.leaf) {
            Some((_, gpus)) => *gpus += entry.gpus,
            None => by_leaf.push((entry.leaf, entry.gpus)),
        }
    }
    by_leaf
}

fn evictable_of(
    cluster: &Cluster,
    rules: &Rules<'_>,
    (leaf, group): (QueueIdx, GroupIdx),
    pods: &[PodIdx],
) -> Option<EvictableGroup> {
    let mut remaining = EvictablePods::of(cluster, group);
    let mut selected: Vec<PodIdx> = Vec::new();
    while !pods.iter().all(|pod| selected.contains(pod)) {
        let batch = remaining.next_batch(cluster, &rules.policy.registry);
        if batch.is_empty() {
            return None;
        }
        selected.extend(batch);
    }
    let gpus = pods.iter().filter_map(|pod| freed_by(cluster, *pod)).map(|(_, gpus)| gpus).sum();
    let cost = Cost::of(cluster, rules, selected.iter().copied());
    Some(EvictableGroup { leaf, cost, gpus, batch: Batch { group, pods: selected.into() } })
}

/// The cheapest batches with enough GPUs: exact for few, greedy for many.
fn choose(evictable: &[EvictableGroup], needed: i64) -> Option<Vec<usize>> {
    if evictable.iter().map(|entry| entry.gpus).sum::<i64>() < needed {
        return None;
    }
    if evictable.len() <= 10 {
        let sets = (1..1_u32 << evictable.len()).filter_map(|set| {
            let chosen = || (0..evictable.len()).filter(move |at| set & (1 << at) != 0);
            let gpus: i64 = chosen().map(|at| evictable[at].gpus).sum();
            (gpus >= needed)
                .then(|| (chosen().fold(Cost::default(), |all, at| all.plus(evictable[at].cost)), set))
        });
        let (_, set) = sets.min()?;
        return Some((0..evictable.len()).filter(|at| set & (1 << at) != 0).collect());
    }
    let (mut chosen, mut gpus) = (Vec::new(), 0);
    for (at, entry) in evictable.iter().enumerate().filter(|(_, entry)| entry.gpus > 0) {
        if gpus >= needed {
            break;
        }
        gpus += entry.gpus;
        chosen.push(at);
    }
    Some(chosen)
}
