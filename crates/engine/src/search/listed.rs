//! Proposals of a user's generator, which sees all victims at once.

use super::accumulate::{Gathered, Turn};
use super::ask::Part;
use crate::cluster::Cluster;
use crate::ids::GroupIdx;
use crate::plugin::{ScenarioGenerator, VictimBatch};

/// Proposals of one probe.
pub(crate) struct Listed<'a> {
    gathered: Gathered<'a>,
    sets: std::vec::IntoIter<Vec<usize>>,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(
        cluster: &Cluster,
        mut gathered: Gathered<'a>,
        part: &Part<'_>,
        generator: &dyn ScenarioGenerator,
        may: &impl Fn(GroupIdx) -> bool,
    ) -> Self {
        while gathered.advance(cluster, may) != Turn::Over {}
        let sets = generator.propose(cluster, part.group, part.pods, &gathered.batches);
        Self { gathered, sets: sets.into_iter() }
    }

    /// Pods that would fit with everybody gathered gone.
    pub(crate) fn fitting(&self) -> i64 {
        self.gathered.all.fitting
    }

    /// The next victims to try on top of the recorded ones; positions that do not exist are passed over.
    pub(crate) fn next(&mut self) -> Option<Vec<VictimBatch>> {
        let set = self.sets.next()?;
        Some(set.into_iter().filter_map(|at| self.gathered.batches.get(at).cloned()).collect())
    }
}
