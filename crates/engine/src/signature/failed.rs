//! Groups whose search failed, each speaking for those that look like it.

use super::demand::Demand;
use super::{GroupSignature, Signatures};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use rustc_hash::FxHashMap;

/// How far a failed search speaks for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For groups of every queue.
    Cluster,
    /// For groups of its own queue.
    Queue,
}

/// What failed searches tell about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// No group that looks like it has failed.
    NoRepresentative,
    /// A group that looks like it has failed, but this one is easier.
    Easier(GroupIdx),
    /// A group that looks like it has failed, and this one is no easier: searching for it can be left out.
    NotEasier(GroupIdx),
}

impl Comparison {
    /// The group needs no search.
    pub fn may_skip(self) -> bool {
        match self {
            Self::NotEasier(_) => true,
            Self::NoRepresentative | Self::Easier(_) => false,
        }
    }
}

/// The smallest failed group of each signature, in one run of an action.
#[derive(Debug)]
pub struct Representatives {
    scope: Scope,
    failed: FxHashMap<(Option<QueueIdx>, GroupSignature), Failed>,
}

#[derive(Debug)]
struct Failed {
    group: GroupIdx,
    demand: Demand,
    /// Pods of the step that found no places.
    step: usize,
}

impl Representatives {
    /// No group has failed.
    pub fn new(scope: Scope) -> Self {
        Self { scope, failed: FxHashMap::default() }
    }

    /// What the failures so far tell about a group.
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

    /// The group whose failure speaks for this one without doubt: it asks for no more in anything, its step has no
    /// more than so many pods, and it may evict whomever this one may.
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

    /// Notes that the search for a step of a group failed. It takes the place of the one that spoke for its like so far if it
    /// is nowhere larger.
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
