//! What one cycle leaves for the next: room that was made, and who took from whom.
//!
//! Room that was made for a group is kept for it where it was made, so that nobody else takes it and everybody who
//! was moved has the place that was found for them. And while demand, quotas and capacity stay as they are, nobody
//! evicts the same pod twice, nor takes back what was taken, directly or through others. So evictions come to an end:
//! of the groups that take, one is never evicted, and those below it only as often as those above are placed.

use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Cause, Decision, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::hash::Hash;

/// What a cycle leaves for the next. Whoever runs cycles hands it on ([`Cluster::carry_over`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CarryOver {
    /// Room that groups wait for, in the order in which it was made.
    pub pipelined: Vec<PipelinedGroup>,
    /// Who took from whom since demand, quotas and capacity last changed.
    pub evictions: BTreeSet<PastEviction>,
    /// Names the demand, quotas and capacity under which they did.
    pub conditions: u64,
}

impl CarryOver {
    /// Forgets what came to nothing: these pods stay after all, so that nobody took them, and no room is being made for
    /// the group that was to have theirs.
    pub fn forget_evictions<'a>(&mut self, preemptor: &Key, staying: impl IntoIterator<Item = &'a Key>) {
        let staying: BTreeSet<&Key> = staying.into_iter().collect();
        self.evictions
            .retain(|eviction| eviction.preemptor != *preemptor || !staying.contains(&eviction.pod));
        self.pipelined.retain(|pipelined| pipelined.group != *preemptor);
    }
}

/// Room that is kept for a group until its pods have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipelinedGroup {
    /// The group.
    pub group: Key,
    /// The node that each waiting pod is to have.
    pub places: Vec<(Key, String)>,
}

/// A group lost a pod to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PastEviction {
    /// The group for which the pod was evicted.
    pub preemptor: Key,
    /// The group that lost it.
    pub victim: Key,
    /// The pod.
    pub pod: Key,
}

/// Who took from whom under the conditions of this cycle.
#[derive(Debug, Default)]
pub(crate) struct PastEvictions {
    preemptors: FxHashMap<GroupIdx, Vec<GroupIdx>>,
    /// Those who lost pods to a group and have them again.
    victims: FxHashMap<GroupIdx, Vec<GroupIdx>>,
}

impl PastEvictions {
    /// What was carried over, if it still counts.
    pub(crate) fn new(cluster: &Cluster, conditions: u64) -> Self {
        let mut past = Self::default();
        let carried = &cluster.carried_over;
        for eviction in carried.evictions.iter().filter(|_| carried.conditions == conditions) {
            let groups = cluster.group(&eviction.preemptor).zip(cluster.group(&eviction.victim));
            if let Some((preemptor, victim)) = groups {
                past.preemptors.entry(victim).or_default().push(preemptor);
                let is_back = |pod: PodIdx| cluster.pods[pod].state.status.is_active_allocated();
                if cluster.pod(&eviction.pod).is_some_and(is_back) {
                    past.victims.entry(preemptor).or_default().push(victim);
                }
            }
        }
        past
    }

    /// The groups from which a group must not take: those with a pod that was evicted for it before, and those that
    /// took from it, or from somebody who did.
    pub(crate) fn excluded_for(&self, group: GroupIdx) -> FxHashSet<GroupIdx> {
        let mut excluded = FxHashSet::default();
        let mut open = vec![group];
        while let Some(next) = open.pop() {
            for &preemptor in self.preemptors.get(&next).map_or(&[][..], Vec::as_slice) {
                if excluded.insert(preemptor) {
                    open.push(preemptor);
                }
            }
        }
        excluded.extend(self.victims.get(&group).map_or(&[][..], Vec::as_slice));
        excluded
    }
}

/// Names demand, quotas and capacity. What is held and what waits count alike, so that evictions change nothing.
pub(crate) fn conditions(outcome: &Outcome) -> u64 {
    crate::cycle::fnv(|hasher| {
        for queue in &outcome.queues {
            (&queue.name, &queue.parent).hash(hasher);
            (queue.quota, queue.limit, queue.requested).hash(hasher);
        }
        outcome.total.hash(hasher);
    })
}

/// Adds what a cycle took to what was taken before under the same conditions.
pub(crate) fn evictions(before: &CarryOver, conditions: u64, decisions: &[Decision]) -> CarryOver {
    let moved: BTreeSet<&Key> = decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Pipeline { pod, moved: true, .. } => Some(pod),
            Decision::Pipeline { .. } | Decision::Bind(_) | Decision::Evict { .. } => None,
        })
        .collect();
    let eviction = |decision: &Decision| match decision {
        Decision::Evict { pod, group: Some(victim), preemptor: Some(preemptor), .. }
            if !moved.contains(pod) =>
        {
            Some(PastEviction { preemptor: preemptor.clone(), victim: victim.clone(), pod: pod.clone() })
        }
        Decision::Evict { .. } | Decision::Pipeline { .. } | Decision::Bind(_) => None,
    };
    let new: BTreeSet<PastEviction> = decisions.iter().filter_map(eviction).collect();
    if new.is_empty() {
        // What pods that are being made anew change may be as before in a moment.
        return CarryOver { pipelined: Vec::new(), ..before.clone() };
    }
    let old = before.evictions.iter().filter(|_| before.conditions == conditions).cloned();
    CarryOver { pipelined: Vec::new(), evictions: old.chain(new).collect(), conditions }
}

/// Whether what was taken before binds an action. Moving takes nothing from anybody.
pub(crate) fn binds(cause: Cause) -> bool {
    match cause {
        Cause::Reclaim | Cause::Preempt => true,
        Cause::Consolidation | Cause::Stale => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("a", name)
    }

    #[test]
    fn failed_eviction_is_not_carried_over() {
        let eviction = |preemptor: &str, pod: &str| PastEviction {
            preemptor: key(preemptor),
            victim: key("low"),
            pod: key(pod),
        };
        let pipelined = |group: &str| PipelinedGroup { group: key(group), places: Vec::new() };
        let mut left = CarryOver {
            pipelined: vec![pipelined("high"), pipelined("other")],
            evictions: BTreeSet::from([
                eviction("high", "gone"),
                eviction("high", "stays"),
                eviction("other", "stays"),
            ]),
            conditions: 1,
        };
        left.forget_evictions(&key("high"), [&key("stays")]);
        assert_eq!(left.pipelined, [pipelined("other")]);
        assert_eq!(left.evictions, BTreeSet::from([eviction("high", "gone"), eviction("other", "stays")]));
    }
}
