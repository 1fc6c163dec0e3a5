//! State that a cycle passes to the next: groups pipelined to freed capacity, and past evictions.
//!
//! Capacity freed for a group stays reserved for it, so that no other group is placed there and moved pods get the
//! place found for them. While demand, quotas and capacity are unchanged, a group does not evict the same pod twice,
//! and does not evict groups that evicted it, directly or transitively. This bounds evictions: of the preemptors one
//! is never evicted, and those below it at most as often as those above are placed.

use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Cause, Decision, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::hash::Hash;

/// State that a cycle passes to the next; the caller of the cycle stores it ([`Cluster::carry_over`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CarryOver {
    /// Groups pipelined to freed capacity, in the order of their evictions.
    pub pipelined: Vec<PipelinedGroup>,
    /// Evictions since demand, quotas and capacity last changed.
    pub evictions: BTreeSet<PastEviction>,
    /// Hash of the demand, quotas and capacity at that time.
    pub conditions: u64,
}

impl CarryOver {
    /// Drops evictions that were not carried out: the pods keep running, and no capacity is freed for the preemptor.
    pub fn forget_evictions<'a>(&mut self, preemptor: &Key, kept: impl IntoIterator<Item = &'a Key>) {
        let kept: BTreeSet<&Key> = kept.into_iter().collect();
        self.evictions.retain(|eviction| eviction.preemptor != *preemptor || !kept.contains(&eviction.pod));
        self.pipelined.retain(|pipelined| pipelined.group != *preemptor);
    }
}

/// A group with the freed capacity that is reserved for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipelinedGroup {
    /// The group.
    pub group: Key,
    /// The reserved node of each pod.
    pub places: Vec<(Key, String)>,
}

/// A pod of one group was evicted for another group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PastEviction {
    /// The group for which the pod was evicted.
    pub preemptor: Key,
    /// The group of the pod.
    pub victim: Key,
    /// The pod.
    pub pod: Key,
}

/// Past evictions under the conditions of this cycle, by group.
#[derive(Debug, Default)]
pub(crate) struct PastEvictions {
    preemptors: FxHashMap<GroupIdx, Vec<GroupIdx>>,
    /// Groups that were evicted for a group and are placed again.
    victims: FxHashMap<GroupIdx, Vec<GroupIdx>>,
}

impl PastEvictions {
    /// The carried-over evictions, if conditions are unchanged.
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

    /// Groups that must not be victims of a group: those evicted for it before, and those that evicted it, directly
    /// or transitively.
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

/// Hashes demand, quotas and capacity. Allocated and pending requests count alike, so that evictions do not change
/// the hash.
pub(crate) fn conditions(outcome: &Outcome) -> u64 {
    crate::cycle::fnv(|hasher| {
        for queue in &outcome.queues {
            (&queue.name, &queue.parent).hash(hasher);
            (queue.quota, queue.limit, queue.requested).hash(hasher);
        }
        outcome.total.hash(hasher);
    })
}

/// Adds the evictions of a cycle to earlier ones under the same conditions.
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
        // Conditions that differ while evicted pods are recreated may be the same again soon after.
        return CarryOver { pipelined: Vec::new(), ..before.clone() };
    }
    let old = before.evictions.iter().filter(|_| before.conditions == conditions).cloned();
    CarryOver { pipelined: Vec::new(), evictions: old.chain(new).collect(), conditions }
}

/// Whether past evictions constrain an action. Consolidation moves pods and is not constrained.
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
        let mut carried = CarryOver {
            pipelined: vec![pipelined("high"), pipelined("other")],
            evictions: BTreeSet::from([
                eviction("high", "deleted"),
                eviction("high", "kept"),
                eviction("other", "kept"),
            ]),
            conditions: 1,
        };
        carried.forget_evictions(&key("high"), [&key("kept")]);
        assert_eq!(carried.pipelined, [pipelined("other")]);
        assert_eq!(
            carried.evictions,
            BTreeSet::from([eviction("high", "deleted"), eviction("other", "kept")])
        );
    }
}
