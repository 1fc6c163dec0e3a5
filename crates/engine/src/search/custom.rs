//! Proposals of a user's generator, which sees all victims at once.

use super::accumulate::{AccumulatedVictims, Turn};
use super::pending_request::RequestPart;
use crate::cluster::Cluster;
use crate::ids::GroupIdx;
use crate::plugin::{ScenarioGenerator, VictimBatch};

/// Proposals of one probe.
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
        may: &impl Fn(GroupIdx) -> bool,
    ) -> Self {
        while accumulated.advance(cluster, may) != Turn::Over {}
        let sets = generator.propose(cluster, part.group, part.pods, &accumulated.batches);
        Self { accumulated, sets: sets.into_iter() }
    }

    /// Pods that would fit with everybody accumulated gone.
    pub(crate) fn fitting(&self) -> i64 {
        self.accumulated.all.fitting
    }

    /// The next victims to try on top of the recorded ones; positions that do not exist are passed over.
    pub(crate) fn next(&mut self) -> Option<Vec<VictimBatch>> {
        let set = self.sets.next()?;
        Some(set.into_iter().filter_map(|at| self.accumulated.batches.get(at).cloned()).collect())
    }
}
