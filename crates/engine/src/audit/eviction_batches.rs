//! Groups the evictions of an outcome by action and preemptor, in the order of the decisions.

use super::after::After;
use super::queue_allocation::QueueAllocation;
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, NodeIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Cause, Decision, EvictionReason, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The evictions of one action for one preemptor.
pub(super) struct EvictionBatch {
    pub(super) cause: Cause,
    pub(super) preemptor: GroupIdx,
    /// In the order of the decisions.
    pub(super) evicted: Vec<PodIdx>,
    /// Pods that get another node, including pods evicted earlier for another preemptor.
    pub(super) moved: Vec<PodIdx>,
    /// Pods of the preemptor that are placed.
    pub(super) placed: Vec<PodIdx>,
    /// Allocation of the queues just before.
    pub(super) allocation: QueueAllocation,
}

/// All evictions of an outcome.
pub(super) struct Evictions {
    /// In the order of the decisions.
    pub(super) all: Vec<EvictionBatch>,
    /// Pods evicted by `stalegangeviction`.
    pub(super) stale: Vec<PodIdx>,
    /// Evicted pods that are placed again.
    pub(super) has_place: BTreeSet<PodIdx>,
    /// Moved pods that lost their new node, with the index of the evictions that moved them.
    pub(super) displaced: BTreeMap<PodIdx, usize>,
}

impl Evictions {
    pub(super) fn read(before: &Cluster, after: &After, outcome: &Outcome, findings: &mut Findings) -> Self {
        let placed = after.held.iter().filter(|h| h.presence.is_new()).map(|h| h.pod);
        let has_place = placed.filter(|pod| after.evicted.contains(pod)).collect();
        let mut reader = Reader {
            before,
            findings,
            allocation: QueueAllocation::new(before, outcome),
            done: Self { all: Vec::new(), stale: Vec::new(), has_place, displaced: BTreeMap::new() },
            open: false,
        };
        for decision in &outcome.decisions {
            reader.read(decision);
        }
        reader.done
    }

    /// Whether a pod is moved, even if a later preemptor took its new node.
    pub(super) fn is_moved(&self, pod: PodIdx) -> bool {
        self.has_place.contains(&pod) || self.displaced.contains_key(&pod)
    }

    /// The pods that each group loses by the given actions, including moved ones.
    pub(super) fn by_group(&self, before: &Cluster, causes: &[Cause]) -> BTreeMap<GroupIdx, Vec<PodIdx>> {
        let mut lost: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
        for batch in self.all.iter().filter(|batch| causes.contains(&batch.cause)) {
            for &pod in &batch.evicted {
                if let Some(group) = before.pods[pod].group {
                    lost.entry(group).or_default().push(pod);
                }
            }
        }
        lost
    }
}

struct Reader<'a, 'f> {
    before: &'a Cluster,
    findings: &'f mut Findings,
    allocation: QueueAllocation,
    done: Evictions,
    /// The last entry may continue.
    open: bool,
}

impl Reader<'_, '_> {
    fn read(&mut self, decision: &Decision) {
        match decision {
            Decision::Evict { pod, why, .. }
                if matches!(**why, EvictionReason::Custom { .. } | EvictionReason::TimeLimit { .. }) =>
            {
                self.open = false;
                if let Some(pod) = self.before.pod(pod) {
                    self.release(pod);
                }
            }
            Decision::Evict { pod, preemptor, action, why, .. } => {
                let moves = matches!(**why, EvictionReason::Moved { .. });
                self.evict(pod, preemptor.as_ref(), cause_of(action), moves);
            }
            Decision::Bind(bind) => self.place(&bind.pod, &bind.node, bind.action, false),
            Decision::Pipeline { pod, node, action, moved, .. } => self.place(pod, node, action, *moved),
        }
    }

    fn evict(&mut self, key: &Key, preemptor: Option<&Key>, cause: Option<Cause>, moves: bool) {
        let Some(pod) = self.before.pod(key) else { return };
        let Some(cause) = cause else {
            self.findings.add(Invariant::Consistency, format!("pod `{key}` is evicted by an unknown action"));
            return;
        };
        if cause == Cause::Stale {
            self.done.stale.push(pod);
            self.open = false;
        } else if let Some(preemptor) = preemptor.and_then(|preemptor| self.before.group(preemptor)) {
            let continues = self.done.all.last().is_some_and(|last| {
                last.cause == cause && last.preemptor == preemptor && last.placed.is_empty()
            });
            if !(self.open && continues) {
                self.start_batch(cause, preemptor);
            }
            self.done.all.last_mut().expect("added above").evicted.push(pod);
            if moves && !self.done.has_place.contains(&pod) {
                self.done.displaced.insert(pod, self.done.all.len() - 1);
            }
        } else {
            self.findings.add(Invariant::Eviction, format!("pod `{key}` is evicted without a preemptor"));
        }
        self.release(pod);
    }

    /// An evicted pod no longer counts in its queue, unless it is moved.
    fn release(&mut self, pod: PodIdx) {
        let place = self.before.pods[pod].state.place.as_ref();
        if let Some(place) = place.filter(|_| !self.done.is_moved(pod)) {
            self.allocation.charge(self.before, pod, place.node, -1);
        }
    }

    fn place(&mut self, key: &Key, node: &str, action: &'static str, moved: bool) {
        let (Some(pod), Some(node)) = (self.before.pod(key), self.before.node(node)) else { return };
        let was_evicted = self.done.has_place.contains(&pod);
        if moved != was_evicted {
            let what = if moved { "moved without being evicted" } else { "evicted but not marked as moved" };
            self.findings.add(Invariant::Consistency, format!("pod `{key}` is {what}"));
        }
        match cause_of(action) {
            None => self.open = false,
            Some(cause) => self.note_place(pod, cause, moved),
        }
        self.charge(pod, node, was_evicted);
    }

    fn note_place(&mut self, pod: PodIdx, cause: Cause, moved: bool) {
        let Some(group) = self.before.pods[pod].group else { return };
        let last = self.done.all.last().filter(|last| self.open && last.cause == cause);
        if moved {
            if last.is_some() {
                self.done.all.last_mut().expect("checked above").moved.push(pod);
            }
            return;
        }
        let before = self.before;
        let is_victim = |last: &EvictionBatch| {
            last.evicted.iter().chain(&last.moved).any(|pod| before.pods[*pod].group == Some(group))
        };
        match last {
            Some(last) if last.preemptor == group => {
                self.done.all.last_mut().expect("checked above").placed.push(pod);
            }
            // A victim group may place more pods than it had.
            Some(last) if is_victim(last) => {}
            // Moving pods that were evicted for others was sufficient for this preemptor.
            Some(_) | None => {
                self.start_batch(cause, group);
                self.done.all.last_mut().expect("added above").placed.push(pod);
            }
        }
    }

    fn charge(&mut self, pod: PodIdx, node: NodeIdx, was_evicted: bool) {
        let old = self.before.pods[pod].state.place.as_ref().filter(|_| was_evicted);
        if let Some(old) = old {
            self.allocation.charge(self.before, pod, old.node, -1);
        }
        self.allocation.charge(self.before, pod, node, 1);
    }

    fn start_batch(&mut self, cause: Cause, preemptor: GroupIdx) {
        self.open = true;
        self.done.all.push(EvictionBatch {
            cause,
            preemptor,
            evicted: Vec::new(),
            moved: Vec::new(),
            placed: Vec::new(),
            allocation: self.allocation.clone(),
        });
    }
}

fn cause_of(action: &str) -> Option<Cause> {
    [Cause::Consolidation, Cause::Reclaim, Cause::Preempt, Cause::Stale]
        .into_iter()
        .find(|cause| cause.action() == action)
}
