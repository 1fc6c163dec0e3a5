//! Victims gathered one batch after the other, until there is a chance.
//!
//! Adding a batch costs its pods. Whether enough is gathered is a bound on GPUs: states below it are never tried,
//! because no placement can succeed in them.

use super::ask::Part;
use super::rooms::{Freed, Rooms};
use super::victims::VictimWalk;
use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, NodeIdx, PodIdx};
use crate::plugin::Registry;
use crate::plugin::VictimBatch as Batch;
use crate::resource::WHOLE_GPU;
use rustc_hash::FxHashSet;

/// Victims of an earlier, smaller success, and those gathered since.
pub(crate) struct Gathered<'a> {
    walk: VictimWalk<'a>,
    registry: &'a Registry,
    recorded: FxHashSet<PodIdx>,
    /// In the order of their turns.
    pub batches: Vec<Batch>,
    /// GPUs on offer with the recorded victims gone.
    pub base: Freed<'a>,
    /// The same with all gathered batches gone as well.
    pub all: Freed<'a>,
    /// GPUs wanted, largest first.
    demands: Vec<i64>,
    is_even: bool,
    /// Pods that were placed in this cycle must come back to their places: what they free is of no use.
    fresh_return: bool,
}

/// What a turn brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Added,
    /// The group has given way already.
    Nothing,
    /// No group is left.
    Over,
}

impl<'a> Gathered<'a> {
    pub(crate) fn new(
        cluster: &Cluster,
        registry: &'a Registry,
        rooms: &'a Rooms,
        walk: VictimWalk<'a>,
        part: &Part<'_>,
        recorded: &[Batch],
        literal: bool,
    ) -> Self {
        let fresh_return = !literal && part.bounding_gpus() > 0;
        let mut base = Freed::new(rooms, part.least_gpus());
        let pods = || recorded.iter().flat_map(|batch| batch.pods.iter().copied());
        for pod in pods() {
            note_freed(&mut base, cluster, pod, fresh_return);
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
            fresh_return,
        }
    }

    /// Gives the next group its turn.
    pub(crate) fn advance(&mut self, cluster: &Cluster, may: &impl Fn(GroupIdx) -> bool) -> Turn {
        let Some(mut held) = self.walk.pop(cluster, may) else { return Turn::Over };
        let group = held.group();
        let before = held.clone();
        let pods = held.next_batch(cluster, self.registry);
        if pods.iter().any(|pod| self.recorded.contains(pod)) {
            let mut rest = before;
            rest.remove(|pod| self.recorded.contains(&pod));
            self.walk.push(cluster, rest);
            return Turn::Nothing;
        }
        self.walk.push(cluster, held);
        for &pod in &pods {
            note_freed(&mut self.all, cluster, pod, self.fresh_return);
        }
        self.batches.push(Batch { group, pods: pods.into() });
        Turn::Added
    }

    /// The node of a pod and the GPUs that others may have there once it is gone.
    pub(crate) fn lasting_of(&self, cluster: &Cluster, pod: PodIdx) -> Option<(NodeIdx, i64)> {
        freed_by(cluster, pod).filter(|_| !self.fresh_return || !cluster.is_fresh(pod))
    }

    /// Whether the pods could fit with everything gathered gone, by their GPUs.
    pub(crate) fn may_be_enough(&self) -> bool {
        match self.demands.first() {
            None | Some(0) => true,
            Some(_) if self.is_even => self.all.fitting >= self.demands.len() as i64,
            Some(_) => self.all.takes(&self.demands),
        }
    }
}

fn note_freed(freed: &mut Freed<'_>, cluster: &Cluster, pod: PodIdx, fresh_return: bool) {
    match freed_by(cluster, pod) {
        Some((node, gpus)) if fresh_return && cluster.is_fresh(pod) => freed.lend(node, gpus),
        Some((node, gpus)) => freed.add(node, gpus),
        None => {}
    }
}

/// The node of a pod and the GPUs that it gives back there.
pub(crate) fn freed_by(cluster: &Cluster, pod: PodIdx) -> Option<(NodeIdx, i64)> {
    let state = &cluster.pods[pod].state;
    let place = state.place.as_ref()?;
    let shape = cluster.shape(pod);
    // What is left on a GPU that was opened for pods that wait is not counted as free, and comes back with them.
    let gpus = if state.status == Status::Pipelined && shape.is_shared() {
        i64::from(shape.devices()) * WHOLE_GPU
    } else {
        cluster.accepted(pod, place)[2]
    };
    Some((place.node, gpus))
}
