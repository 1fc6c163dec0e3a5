//! Scenarios proposed by a user's generator, which receives all victim batches at once.

use super::accumulate::{AccumulatedVictims, Advance};
use super::pending_request::RequestPart;
use crate::cluster::Cluster;
use crate::ids::GroupIdx;
use crate::plugin::{ScenarioGenerator, VictimBatch};

/// Scenarios of one probe.
pub(crate) struct CustomProposals<'a> {
    accumulated: AccumulatedVictims<'a>,
    sets: std::vec::IntoIter<Vec<usize>>,
}

impl<'a> CustomProposals<'a> {
    pub(crate) fn new(
        cluster: &Cluster,
        mut accumulated: AccumulatedVictims<'a>,
        part: &RequestPart<'_>,
        generator: &dyn ScenarioGenerator,
        is_allowed: &impl Fn(GroupIdx) -> bool,
    ) -> Self {
        while accumulated.advance(cluster, is_allowed) != Advance::Exhausted {}
        let sets = generator.propose(cluster, part.group, part.pods, &accumulated.batches);
        Self { accumulated, sets: sets.into_iter() }
    }

    /// Upper bound on the pods that fit with all accumulated victims evicted.
    pub(crate) fn fitting(&self) -> i64 {
        self.accumulated.all.fitting
    }

    /// The next victims to add to the recorded ones; positions out of range are ignored.
    pub(crate) fn next(&mut self) -> Option<Vec<VictimBatch>> {
        let set = self.sets.next()?;
        Some(set.into_iter().filter_map(|at| self.accumulated.batches.get(at).cloned()).collect())
    }
}
