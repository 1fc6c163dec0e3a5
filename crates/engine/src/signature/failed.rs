//! Stores the groups whose eviction search failed, by signature.

use super::demand::Demand;
use super::{GroupSignature, Signatures};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use rustc_hash::FxHashMap;

/// For which groups a failed search counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Groups of every queue.
    Cluster,
    /// Groups of the same queue.
    Queue,
}

/// A group compared with the failed group of its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// No group with its signature failed.
    NoRepresentative,
    /// It is easier to schedule than the failed group.
    Easier(GroupIdx),
    /// It is not easier to schedule: its search can be skipped.
    NotEasier(GroupIdx),
}

impl Comparison {
    /// Whether the search can be skipped.
    pub fn may_skip(self) -> bool {
        match self {
            Self::NotEasier(_) => true,
            Self::NoRepresentative | Self::Easier(_) => false,
        }
    }
}

/// The smallest failed group per signature, for one run of an action.
#[derive(Debug)]
pub struct Representatives {
    scope: Scope,
    failed: FxHashMap<(Option<QueueIdx>, GroupSignature), Failed>,
}

#[derive(Debug)]
struct Failed {
    group: GroupIdx,
    demand: Demand,
    /// Number of pods of the failed step.
    step: usize,
}

impl Representatives {
    /// Starts without failed groups.
    pub fn new(scope: Scope) -> Self {
        Self { scope, failed: FxHashMap::default() }
    }

    /// Compares a group with the failed group of its signature.
    pub fn compare(&self, cluster: &Cluster, signatures: &mut Signatures, group: GroupIdx) -> Comparison {
        if self.failed.is_empty() {
            return Comparison::NoRepresentative;
        }
        match self.failed.get(&self.key(cluster, signatures, group)) {
            None => Comparison::NoRepresentative,
            Some(failed) if Demand::of(cluster, group).is_easier_than(&failed.demand) => {
                Comparison::Easier(failed.group)
            }
            Some(failed) => Comparison::NotEasier(failed.group),
        }
    }

    /// The failed group that proves failure for this one: it requests no more of any resource, its step has at most
    /// `step` pods, and it may evict at least the same victims.
    pub(crate) fn representative_for(
        &self,
        cluster: &Cluster,
        signatures: &mut Signatures,
        group: GroupIdx,
        step: usize,
    ) -> Option<GroupIdx> {
        if self.failed.is_empty() {
            return None;
        }
        let failed = self.failed.get(&self.key(cluster, signatures, group))?;
        let demand = Demand::of(cluster, group);
        let no_harder = failed.demand.is_within(&demand) && failed.demand.gpu_memory <= demand.gpu_memory;
        let (other, own) = (&cluster.groups[failed.group], &cluster.groups[group]);
        let may_more = other.preemptible == own.preemptible && other.priority >= own.priority;
        (no_harder && may_more && failed.step <= step).then_some(failed.group)
    }

    /// Records a failed search. Replaces the representative of the signature if it is nowhere larger.
    pub fn note(&mut self, cluster: &Cluster, signatures: &mut Signatures, group: GroupIdx, step: usize) {
        let key = self.key(cluster, signatures, group);
        let demand = Demand::of(cluster, group);
        if self.failed.get(&key).is_none_or(|failed| demand.is_within(&failed.demand)) {
            self.failed.insert(key, Failed { group, demand, step });
        }
    }

    fn key(
        &self,
        cluster: &Cluster,
        signatures: &mut Signatures,
        group: GroupIdx,
    ) -> (Option<QueueIdx>, GroupSignature) {
        let queue = match self.scope {
            Scope::Cluster => None,
            Scope::Queue => cluster.groups[group].queue,
        };
        (queue, signatures.of_group(cluster, group))
    }
}
