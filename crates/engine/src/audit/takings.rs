//! Who took from whom: evictions in the order in which they were decided, one group's gain after the other.

use super::after::After;
use super::books::Books;
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, NodeIdx, PodIdx};
use crate::input::Key;
use crate::outcome::{Cause, Decision, EvictionReason, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// What one group takes from others.
pub(super) struct Taking {
    /// The action.
    pub(super) cause: Cause,
    /// For whom.
    pub(super) preemptor: GroupIdx,
    /// Pods evicted for it, in order.
    pub(super) evicted: Vec<PodIdx>,
    /// Pods that get another place by it, those included that were evicted for somebody else before.
    pub(super) moved: Vec<PodIdx>,
    /// Pods of the preemptor that get a place.
    pub(super) placed: Vec<PodIdx>,
    /// What queues held just before.
    pub(super) books: Books,
}

/// The takings of an outcome, and what gangs lost that were cleared away.
pub(super) struct Takings {
    /// In order.
    pub(super) all: Vec<Taking>,
    /// Pods of gangs that were below their minimum for too long.
    pub(super) stale: Vec<PodIdx>,
    /// Evicted pods that have a place in the end.
    pub(super) has_place: BTreeSet<PodIdx>,
    /// Pods that were moved and lost the place they were to have, with the taking that moved them.
    pub(super) overtaken: BTreeMap<PodIdx, usize>,
}

impl Takings {
    pub(super) fn read(before: &Cluster, after: &After, outcome: &Outcome, findings: &mut Findings) -> Self {
        let placed = after.held.iter().filter(|h| h.how.is_new()).map(|h| h.pod);
        let has_place = placed.filter(|pod| after.evicted.contains(pod)).collect();
        let mut reader = Reader {
            before,
            findings,
            books: Books::new(before, outcome),
            done: Self { all: Vec::new(), stale: Vec::new(), has_place, overtaken: BTreeMap::new() },
            open: false,
        };
        for decision in &outcome.decisions {
            reader.read(decision);
        }
        reader.done
    }

    /// Whether a pod keeps a place, or kept it until somebody else came.
    pub(super) fn is_moved(&self, pod: PodIdx) -> bool {
        self.has_place.contains(&pod) || self.overtaken.contains_key(&pod)
    }

    /// The pods that each group loses by the given actions, moved ones included.
    pub(super) fn by_group(&self, before: &Cluster, causes: &[Cause]) -> BTreeMap<GroupIdx, Vec<PodIdx>> {
        let mut lost: BTreeMap<GroupIdx, Vec<PodIdx>> = BTreeMap::new();
        for taking in self.all.iter().filter(|taking| causes.contains(&taking.cause)) {
            for &pod in &taking.evicted {
                if let Some(group) = before.pods[pod].group {
                    lost.entry(group).or_default().push(pod);
                }
            }
        }
        lost
    }
}

/// Reads decisions one after the other.
struct Reader<'a, 'f> {
    before: &'a Cluster,
    findings: &'f mut Findings,
    books: Books,
    done: Takings,
    /// The last taking may go on.
    open: bool,
}

impl Reader<'_, '_> {
    fn read(&mut self, decision: &Decision) {
        match decision {
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
        let place = self.before.pods[pod].state.place.as_ref();
        let Some(cause) = cause else {
            self.findings.say(
                Invariant::Consistency,
                format!("pod `{key}` is evicted by an action that evicts nothing"),
            );
            return;
        };
        if cause == Cause::Stale {
            self.done.stale.push(pod);
            self.open = false;
        } else if let Some(preemptor) = preemptor.and_then(|preemptor| self.before.group(preemptor)) {
            let goes_on = self.done.all.last().is_some_and(|last| {
                last.cause == cause && last.preemptor == preemptor && last.placed.is_empty()
            });
            if !(self.open && goes_on) {
                self.begin(cause, preemptor);
            }
            self.done.all.last_mut().expect("begun above").evicted.push(pod);
            if moves && !self.done.has_place.contains(&pod) {
                self.done.overtaken.insert(pod, self.done.all.len() - 1);
            }
        } else {
            self.findings.say(Invariant::Eviction, format!("pod `{key}` is evicted for nobody"));
        }
        // What finds another place holds its share all the while.
        if let Some(place) = place.filter(|_| !self.done.is_moved(pod)) {
            self.books.charge(self.before, pod, place.node, -1);
        }
    }

    fn place(&mut self, key: &Key, node: &str, action: &'static str, moved: bool) {
        let (Some(pod), Some(node)) = (self.before.pod(key), self.before.node(node)) else { return };
        let was_evicted = self.done.has_place.contains(&pod);
        if moved != was_evicted {
            let what = if moved { "moved without being evicted" } else { "evicted, and yet not moved" };
            self.findings.say(Invariant::Consistency, format!("pod `{key}` is {what}"));
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
                self.done.all.last_mut().expect("there is one").moved.push(pod);
            }
            return;
        }
        let before = self.before;
        let is_victim = |last: &Taking| {
            last.evicted.iter().chain(&last.moved).any(|pod| before.pods[*pod].group == Some(group))
        };
        match last {
            Some(last) if last.preemptor == group => {
                self.done.all.last_mut().expect("there is one").placed.push(pod);
            }
            // A group that gave way may place more of its pods than it had.
            Some(last) if is_victim(last) => {}
            // Moving what was evicted for others was enough for this one.
            Some(_) | None => {
                self.begin(cause, group);
                self.done.all.last_mut().expect("begun above").placed.push(pod);
            }
        }
    }

    fn charge(&mut self, pod: PodIdx, node: NodeIdx, was_evicted: bool) {
        let old = self.before.pods[pod].state.place.as_ref().filter(|_| was_evicted);
        if let Some(old) = old {
            self.books.charge(self.before, pod, old.node, -1);
        }
        self.books.charge(self.before, pod, node, 1);
    }

    fn begin(&mut self, cause: Cause, preemptor: GroupIdx) {
        self.open = true;
        self.done.all.push(Taking {
            cause,
            preemptor,
            evicted: Vec::new(),
            moved: Vec::new(),
            placed: Vec::new(),
            books: self.books.clone(),
        });
    }
}

/// The cause that an action's name stands for.
fn cause_of(action: &str) -> Option<Cause> {
    [Cause::Consolidation, Cause::Reclaim, Cause::Preempt, Cause::Stale]
        .into_iter()
        .find(|cause| cause.action() == action)
}
