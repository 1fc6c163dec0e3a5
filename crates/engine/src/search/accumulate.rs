//! Accumulates victims batch by batch until the pending pods may fit.
//!
//! Adding a batch costs its number of pods. A bound on GPUs decides whether a state is worth simulating: below it no
//! placement can succeed.

use super::node_capacity::{FreedCapacity, NodeCapacity};
use super::pending_request::RequestPart;
use super::victims::VictimWalk;
use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, NodeIdx, PodIdx};
use crate::plugin::Registry;
use crate::plugin::VictimBatch as Batch;
use crate::resource::{QueueResource, WHOLE_GPU};
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashSet;

/// Recorded victims of a smaller success, and the victims accumulated since.
pub(crate) struct AccumulatedVictims<'a> {
    walk: VictimWalk<'a>,
    registry: &'a Registry,
    recorded: FxHashSet<PodIdx>,
    /// In eviction order.
    pub batches: Vec<Batch>,
    /// Available GPUs with the recorded victims evicted.
    pub base: FreedCapacity<'a>,
    /// Available GPUs with the accumulated batches evicted as well.
    pub all: FreedCapacity<'a>,
    /// GPUs requested per pod, largest first.
    demands: Vec<i64>,
    is_even: bool,
    /// Pods placed in this cycle return to their nodes, so that the GPUs they free cannot be used.
    placed_pods_return: bool,
}

/// GPUs that are available without evictions, and the nodes that the pods may use where these are not all.
#[derive(Clone, Copy)]
pub(crate) struct Available<'a> {
    pub capacity: &'a NodeCapacity,
    pub eligible: Option<&'a FixedBitSet>,
}

/// Result of [`AccumulatedVictims::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    Added,
    /// The victims of the group are recorded already.
    AlreadyRecorded,
    /// No candidate is left.
    Exhausted,
}

impl<'a> AccumulatedVictims<'a> {
    pub(crate) fn new(
        cluster: &Cluster,
        registry: &'a Registry,
        available: Available<'a>,
        walk: VictimWalk<'a>,
        part: &RequestPart<'_>,
        recorded: &[Batch],
        literal: bool,
    ) -> Self {
        let placed_pods_return = !literal && part.bounding_gpus() > 0;
        let Available { capacity, eligible } = available;
        let mut base = FreedCapacity::new(capacity, part.least_gpus(), eligible);
        let pods = || recorded.iter().flat_map(|batch| batch.pods.iter().copied());
        for pod in pods() {
            add_freed(&mut base, cluster, pod, placed_pods_return);
        }
        let mut demands = part.gpus.to_vec();
        demands.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            walk,
            registry,
            recorded: pods().collect(),
            batches: Vec::new(),
            all: base.clone(),
            base,
            demands,
            is_even: part.is_even(),
            placed_pods_return,
        }
    }

    /// Adds the next batch of the next candidate.
    pub(crate) fn advance(&mut self, cluster: &Cluster, is_allowed: &impl Fn(GroupIdx) -> bool) -> Advance {
        let Some(mut held) = self.walk.pop(cluster, is_allowed) else { return Advance::Exhausted };
        let group = held.group();
        let before = (!self.recorded.is_empty()).then(|| held.clone());
        let pods = held.next_batch(cluster, self.registry);
        if let Some(mut rest) = before.filter(|_| pods.iter().any(|pod| self.recorded.contains(pod))) {
            rest.remove(|pod| self.recorded.contains(&pod));
            self.walk.push(cluster, rest);
            return Advance::AlreadyRecorded;
        }
        self.walk.push(cluster, held);
        for &pod in &pods {
            add_freed(&mut self.all, cluster, pod, self.placed_pods_return);
        }
        self.batches.push(Batch { group, pods: pods.into() });
        Advance::Added
    }

    /// The node of a pod and the GPUs that become usable there once it is evicted.
    pub(crate) fn usable_gpus_of(&self, cluster: &Cluster, pod: PodIdx) -> Option<(NodeIdx, i64)> {
        freed_by(cluster, pod).filter(|_| !self.placed_pods_return || !cluster.is_placed_this_cycle(pod))
    }

    /// Whether the pods may fit, by their GPUs, with all accumulated victims evicted.
    pub(crate) fn may_be_enough(&self) -> bool {
        match self.demands.first() {
            None | Some(0) => true,
            Some(_) if self.is_even => self.all.fitting >= self.demands.len() as i64,
            Some(_) => self.all.fits(&self.demands),
        }
    }
}

fn add_freed(freed: &mut FreedCapacity<'_>, cluster: &Cluster, pod: PodIdx, placed_pods_return: bool) {
    match freed_by(cluster, pod) {
        Some((node, gpus)) if placed_pods_return && cluster.is_placed_this_cycle(pod) => {
            freed.add_temporary(node, gpus);
        }
        Some((node, gpus)) => freed.add(node, gpus),
        None => {}
    }
}

/// The node of a pod and the GPUs that its eviction frees there.
pub(crate) fn freed_by(cluster: &Cluster, pod: PodIdx) -> Option<(NodeIdx, i64)> {
    let state = &cluster.pods[pod].state;
    let place = state.place.as_ref()?;
    let shape = cluster.shape(pod);
    // The remainder of a GPU that was opened for pipelined pods does not count as idle; it is freed with them.
    let gpus = if state.status == Status::Pipelined && shape.is_shared() {
        i64::from(shape.devices()) * WHOLE_GPU
    } else {
        cluster.accepted(pod, place)[QueueResource::Gpu]
    };
    Some((place.node, gpus))
}
