//! `MinimalSet`: the cheapest victims, tried after everything else.
//!
//! With few victim batches every set of them is tried, cheapest first, so that a failure is a proof. With many, nodes
//! are ranked by what it costs to make room on them, and the cheapest that together have enough are tried first.
//! Cost is pods moved or evicted, then GPUs, then run time lost.

use super::ask::{Ask, Part};
use super::rooms::{Freed, Rooms};
use super::rules::Rules;
use super::victims::VictimWalk;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, IndexVec, NodeIdx, PodIdx, QueueIdx};
use crate::order::evict::Held;
use crate::order::tree_walk::leaf_of;
use crate::outcome::Cause;
use crate::plugin::Registry;
use crate::plugin::VictimBatch as Batch;
use std::collections::{BTreeMap, BTreeSet};

/// Up to so many batches every set of them is tried.
const EXHAUSTIVE_BATCHES: usize = 12;
/// Most scenarios that are tried where not all of them can be.
const MOST_TRIES: usize = 48;

/// What a set of victims costs: pods, GPUs in millionths, run time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    pods: u64,
    gpus: i64,
    lost: i64,
}

impl Cost {
    fn of_pod(cluster: &Cluster, rules: &Rules<'_>, pod: PodIdx) -> Self {
        let p = &cluster.pods[pod];
        let gpus = p.state.place.as_ref().map_or(0, |place| cluster.accepted(pod, place)[2]);
        let start = p.group.and_then(|group| cluster.groups[group].last_start);
        Self { pods: 1, gpus, lost: start.map_or(0, |start| (rules.now.0 - start.0).max(0)) }
    }
    fn of(cluster: &Cluster, rules: &Rules<'_>, pods: impl IntoIterator<Item = PodIdx>) -> Self {
        pods.into_iter().fold(Self::default(), |all, pod| all.plus(Self::of_pod(cluster, rules, pod)))
    }
    fn plus(self, other: Self) -> Self {
        Self {
            pods: self.pods + other.pods,
            gpus: self.gpus + other.gpus,
            lost: self.lost.saturating_add(other.lost),
        }
    }
}

/// All victim batches, if they are few enough to try every set of them.
pub(crate) fn few_batches(
    cluster: &Cluster,
    registry: &Registry,
    walk: &mut VictimWalk<'_>,
    may: &impl Fn(GroupIdx) -> bool,
) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    while let Some(mut held) = walk.pop(cluster, may) {
        if batches.len() == EXHAUSTIVE_BATCHES {
            return None;
        }
        let group = held.group();
        batches.push(Batch { group, pods: held.next_batch(cluster, registry).into() });
        walk.push(cluster, held);
    }
    Some(batches)
}

/// Every set of batches that could be enough, cheapest first. A group gives its batches in order.
pub(crate) fn all_sets(
    cluster: &Cluster,
    rules: &Rules<'_>,
    rooms: &Rooms,
    part: &Part<'_>,
    batches: &[Batch],
) -> Vec<Vec<Batch>> {
    let costs: Vec<Cost> =
        batches.iter().map(|batch| Cost::of(cluster, rules, batch.pods.iter().copied())).collect();
    let mut sets: Vec<(Cost, u32)> = Vec::new();
    for set in 1..1_u32 << batches.len() {
        let chosen = |at: usize| set & (1 << at) != 0;
        let in_order = (0..batches.len()).all(|at| {
            !chosen(at)
                || (0..at).all(|earlier| batches[earlier].group != batches[at].group || chosen(earlier))
        });
        let groups: BTreeSet<GroupIdx> =
            (0..batches.len()).filter(|at| chosen(*at)).map(|at| batches[at].group).collect();
        let too_many = rules.most_victims.is_some_and(|most| groups.len() > most as usize);
        if in_order && !too_many && (rules.policy.literal || may_fit(cluster, rooms, part, batches, set)) {
            let chosen = (0..batches.len()).filter(|at| chosen(*at));
            sets.push((chosen.fold(Cost::default(), |all, at| all.plus(costs[at])), set));
        }
    }
    sets.sort_unstable();
    let pick = |set: u32| (0..batches.len()).filter(move |at| set & (1 << at) != 0);
    sets.into_iter().map(|(_, set)| pick(set).map(|at| batches[at].clone()).collect()).collect()
}

fn may_fit(cluster: &Cluster, rooms: &Rooms, part: &Part<'_>, batches: &[Batch], set: u32) -> bool {
    let least = part.bounding_gpus();
    if least == 0 {
        return true;
    }
    let mut freed = Freed::new(rooms, least);
    for (at, batch) in batches.iter().enumerate() {
        for &pod in batch.pods.iter().filter(|_| set & (1 << at) != 0) {
            if let Some((node, gpus)) = super::accumulate::freed_by(cluster, pod) {
                freed.add(node, gpus);
            }
        }
    }
    freed.fitting >= part.pods.len() as i64
}

/// What makes the costs of nodes the same for two searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfferKey {
    cause: Cause,
    /// The taker's queue, where rules depend on it.
    leaf: Option<QueueIdx>,
    /// Only lower priorities give way.
    below: Option<i32>,
    least: i64,
    leaves: Vec<QueueIdx>,
}

/// What it costs to make room for one more pod on each node, kept up while searches resemble each other.
#[derive(Debug)]
pub(crate) struct Offers {
    key: OfferKey,
    cost: IndexVec<NodeIdx, Option<Cost>>,
    sorted: BTreeSet<(Cost, u32, NodeIdx)>,
    cursor: usize,
}

impl Offers {
    pub(crate) fn key(cluster: &Cluster, rules: &Rules<'_>, ask: &Ask, leaves: &[QueueIdx]) -> OfferKey {
        let below = (rules.cause == Cause::Preempt).then(|| cluster.groups[ask.group].priority);
        OfferKey {
            cause: rules.cause,
            leaf: (rules.cause != Cause::Consolidation).then_some(rules.reclaimer.queue),
            below,
            least: ask.whole().least_gpus(),
            leaves: leaves.to_vec(),
        }
    }

    pub(crate) fn new(cluster: &Cluster, rules: &Rules<'_>, rooms: &Rooms, key: OfferKey) -> Self {
        let mut offers = Self {
            key,
            cost: IndexVec::filled(None, cluster.nodes.len()),
            sorted: BTreeSet::new(),
            cursor: cluster.touched_end(),
        };
        for &node in &cluster.nodes_by_rank {
            offers.note(cluster, rules, rooms, node);
        }
        offers
    }

    /// Takes up what changed; false when they are of no use for this search.
    pub(crate) fn refresh(
        &mut self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        rooms: &Rooms,
        key: &OfferKey,
    ) -> bool {
        let Some(touched) = cluster.touched_since(self.cursor).filter(|_| self.key == *key) else {
            return false;
        };
        let mut touched = touched.to_vec();
        touched.sort_unstable();
        touched.dedup();
        for node in touched {
            self.note(cluster, rules, rooms, node);
        }
        self.cursor = cluster.touched_end();
        true
    }

    fn note(&mut self, cluster: &Cluster, rules: &Rules<'_>, rooms: &Rooms, node: NodeIdx) {
        let rank = cluster.nodes[node].rank;
        if let Some(old) = self.cost[node].take() {
            self.sorted.remove(&(old, rank, node));
        }
        if !cluster.nodes[node].present || !cluster.nodes[node].is_ready() {
            return;
        }
        let needed = self.key.least - rooms.gpus(node);
        if needed <= 0 {
            return;
        }
        if let Some((cost, _)) = cheapest(cluster, rules, &self.key.leaves, node, needed) {
            self.cost[node] = Some(cost);
            self.sorted.insert((cost, rank, node));
        }
    }

    /// Sets of victims to try, cheapest nodes first: as many nodes as are missing, then other and more nodes.
    pub(crate) fn proposals(&self, rooms: &Rooms, part: &Part<'_>) -> Proposals<'_> {
        let least = part.least_gpus();
        let missing = usize::try_from(part.pods.len() as i64 - rooms.fitting(least)).unwrap_or(0).max(1);
        let nodes = self.sorted.iter().take(missing + MOST_TRIES).map(|(_, _, node)| *node).collect();
        Proposals { offers: self, nodes, missing, next: 0 }
    }

    fn batches_on(
        &self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        rooms: &Rooms,
        nodes: &[NodeIdx],
    ) -> Vec<Batch> {
        let mut set: Vec<Batch> = Vec::new();
        for &node in nodes {
            let needed = self.key.least - rooms.gpus(node);
            let Some((_, batches)) = cheapest(cluster, rules, &self.key.leaves, node, needed) else {
                continue;
            };
            for batch in batches {
                // A group that gives way on two nodes gives way once, by as much as the greedier one asks.
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

/// Sets of victims, worked out one by one.
pub(crate) struct Proposals<'o> {
    offers: &'o Offers,
    /// Cheapest first.
    nodes: Vec<NodeIdx>,
    missing: usize,
    next: usize,
}

impl Proposals<'_> {
    /// The next set, on the cluster as it was when the offers were taken up.
    pub(crate) fn next(
        &mut self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        rooms: &Rooms,
    ) -> Option<Vec<Batch>> {
        const MORE_NODES: [usize; 4] = [0, 1, 2, 4];
        const STARTS: usize = MOST_TRIES / MORE_NODES.len();
        loop {
            let count = self.missing + MORE_NODES.get(self.next / STARTS)?;
            let from = self.next % STARTS;
            self.next += 1;
            let Some(chosen) = self.nodes.get(from..from + count) else { continue };
            let set = self.offers.batches_on(cluster, rules, rooms, chosen);
            let groups: BTreeSet<GroupIdx> = set.iter().map(|batch| batch.group).collect();
            if rules.most_victims.is_none_or(|most| groups.len() <= most as usize) {
                return Some(set);
            }
        }
    }
}

/// What a group would have to give up so that all its pods leave a node.
struct Share {
    cost: Cost,
    gpus: i64,
    batch: Batch,
}

/// The cheapest victims that free so many GPUs of a node.
fn cheapest(
    cluster: &Cluster,
    rules: &Rules<'_>,
    leaves: &[QueueIdx],
    node: NodeIdx,
    needed: i64,
) -> Option<(Cost, Vec<Batch>)> {
    let mut shares: Vec<Share> = Vec::new();
    let mut on_node: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
    for &pod in &cluster.nodes[node].pods {
        let p = &cluster.pods[pod];
        if let (Some(group), true, true) =
            (p.group, p.state.status.is_active_allocated(), p.state.leaving.is_none())
        {
            on_node.entry(group).or_default().push(pod);
        }
    }
    for (group, pods) in on_node {
        let allowed = cluster.groups[group].preemptible
            && leaf_of(cluster, group).is_some_and(|leaf| leaves.contains(&leaf))
            && cluster.groups[group].pods.iter().all(|pod| !cluster.is_fresh(*pod))
            && rules.allow_group(cluster, group);
        if allowed {
            shares.extend(share_of(cluster, rules, group, &pods));
        }
    }
    let key = |share: &Share| {
        let group = &cluster.groups[share.batch.group];
        (share.cost, group.created, cluster.text(group.namespace), cluster.text(group.name))
    };
    shares.sort_by(|a, b| key(a).cmp(&key(b)));
    let chosen = choose(&shares, needed)?;
    let cost = chosen.iter().fold(Cost::default(), |all, at| all.plus(shares[*at].cost));
    Some((cost, chosen.into_iter().map(|at| shares[at].batch.clone()).collect()))
}

fn share_of(cluster: &Cluster, rules: &Rules<'_>, group: GroupIdx, pods: &[PodIdx]) -> Option<Share> {
    let mut held = Held::by(cluster, group);
    let mut given: Vec<PodIdx> = Vec::new();
    while !pods.iter().all(|pod| given.contains(pod)) {
        let batch = held.next_batch(cluster, &rules.policy.registry);
        if batch.is_empty() {
            return None;
        }
        given.extend(batch);
    }
    let gpus =
        pods.iter().filter_map(|pod| super::accumulate::freed_by(cluster, *pod)).map(|(_, gpus)| gpus).sum();
    let cost = Cost::of(cluster, rules, given.iter().copied());
    Some(Share { cost, gpus, batch: Batch { group, pods: given.into() } })
}

/// The cheapest shares that come to so many GPUs: exactly for a few, by cost for many.
fn choose(shares: &[Share], needed: i64) -> Option<Vec<usize>> {
    if shares.iter().map(|share| share.gpus).sum::<i64>() < needed {
        return None;
    }
    if shares.len() <= 10 {
        let sets = (1..1_u32 << shares.len()).filter_map(|set| {
            let chosen = || (0..shares.len()).filter(move |at| set & (1 << at) != 0);
            let gpus: i64 = chosen().map(|at| shares[at].gpus).sum();
            (gpus >= needed)
                .then(|| (chosen().fold(Cost::default(), |all, at| all.plus(shares[at].cost)), set))
        });
        let (_, set) = sets.min()?;
        return Some((0..shares.len()).filter(|at| set & (1 << at) != 0).collect());
    }
    let (mut chosen, mut gpus) = (Vec::new(), 0);
    for (at, share) in shares.iter().enumerate().filter(|(_, share)| share.gpus > 0) {
        if gpus >= needed {
            break;
        }
        gpus += share.gpus;
        chosen.push(at);
    }
    Some(chosen)
}
