//! `SmallestSet`: searches the cheapest victims after the other generators failed.
//!
//! With few victim batches every set is simulated, cheapest first, so that a failure is a proof. With many, nodes are
//! ranked by the cost of freeing capacity on them (see [`super::node_costs`]).
//! The cost is the number of moved or evicted pods, then their GPUs, then the run time lost.

use super::node_capacity::{FreedCapacity, NodeCapacity};
use super::pending_request::RequestPart;
use super::rules::Rules;
use super::victims::VictimWalk;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx};
use crate::plugin::Registry;
use crate::plugin::VictimBatch as Batch;
use crate::resource::QueueResource;
use std::collections::BTreeSet;

/// Sets are enumerated exhaustively up to this number of batches: 2^12 sets at most.
const EXHAUSTIVE_BATCHES: usize = 12;

/// Cost of a set of victims: pods, GPUs in millionths, lost run time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    pods: u64,
    gpus: i64,
    lost: i64,
}

impl Cost {
    fn of_pod(cluster: &Cluster, rules: &Rules<'_>, pod: PodIdx) -> Self {
        let p = &cluster.pods[pod];
        let gpus = p.state.place.as_ref().map_or(0, |place| cluster.accepted(pod, place)[QueueResource::Gpu]);
        let start = p.group.and_then(|group| cluster.groups[group].last_start);
        Self { pods: 1, gpus, lost: start.map_or(0, |start| (rules.now.0 - start.0).max(0)) }
    }
    pub(super) fn of(cluster: &Cluster, rules: &Rules<'_>, pods: impl IntoIterator<Item = PodIdx>) -> Self {
        pods.into_iter().fold(Self::default(), |all, pod| all.plus(Self::of_pod(cluster, rules, pod)))
    }
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            pods: self.pods + other.pods,
            gpus: self.gpus + other.gpus,
            lost: self.lost.saturating_add(other.lost),
        }
    }
}

/// All victim batches, if they are few enough for an exhaustive search.
pub(crate) fn few_batches(
    cluster: &Cluster,
    registry: &Registry,
    walk: &mut VictimWalk<'_>,
    is_allowed: &impl Fn(GroupIdx) -> bool,
) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    while let Some(mut held) = walk.pop(cluster, is_allowed) {
        if batches.len() == EXHAUSTIVE_BATCHES {
            return None;
        }
        let group = held.group();
        batches.push(Batch { group, pods: held.next_batch(cluster, registry).into() });
        walk.push(cluster, held);
    }
    Some(batches)
}

/// Every set of batches that may be sufficient, cheapest first. Batches of a group are used in order.
pub(crate) fn all_sets(
    cluster: &Cluster,
    rules: &Rules<'_>,
    capacity: &NodeCapacity,
    part: &RequestPart<'_>,
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
        let too_many = rules.max_victims.is_some_and(|most| groups.len() > most as usize);
        if in_order && !too_many && (rules.policy.literal || may_fit(cluster, capacity, part, batches, set)) {
            let chosen = (0..batches.len()).filter(|at| chosen(*at));
            sets.push((chosen.fold(Cost::default(), |all, at| all.plus(costs[at])), set));
        }
    }
    sets.sort_unstable();
    // Reclaim accepts one portion that takes a queue below its share, and none after it: the largest goes last.
    let pick = |set: u32| {
        let mut chosen: Vec<usize> = (0..batches.len()).filter(|at| set & (1 << at) != 0).collect();
        chosen.sort_by_key(|at| costs[*at].gpus);
        chosen.into_iter().map(|at| batches[at].clone()).collect()
    };
    sets.into_iter().map(|(_, set)| pick(set)).collect()
}

fn may_fit(
    cluster: &Cluster,
    capacity: &NodeCapacity,
    part: &RequestPart<'_>,
    batches: &[Batch],
    set: u32,
) -> bool {
    let least = part.bounding_gpus();
    if least == 0 {
        return true;
    }
    let mut freed = FreedCapacity::new(capacity, least, None);
    for (at, batch) in batches.iter().enumerate() {
        for &pod in batch.pods.iter().filter(|_| set & (1 << at) != 0) {
            if let Some((node, gpus)) = super::accumulate::freed_by(cluster, pod) {
                freed.add(node, gpus);
            }
        }
    }
    freed.fitting >= part.pods.len() as i64
}
