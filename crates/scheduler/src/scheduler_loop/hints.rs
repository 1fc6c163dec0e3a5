//! What would run groups that stay pending, for their conditions, where the option `condition_hints` is set.
//!
//! While the loop has no cycle to run, at most once in [`INTERVAL`], a copy of the cluster goes to a thread of its own, which
//! searches hints for some groups, those first that have waited longest for an answer. A hint is in the condition as long as
//! the verdict is the one for which it was found.

mod queue;

use super::SchedulerLoop;
use crate::cycle_trigger::Impact;
use crate::event_queue::{FoundHint, SchedulerEvent};
use kai_cache::Store;
use kai_engine::input::Key;
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_engine::{CarryOver, ClusterState, Cycle, Policy};
use kai_whatif::{Model, hints, sentence};
use queue::{Due, Queue};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

/// Least time between two searches.
const INTERVAL: Duration = Duration::from_mins(1);
/// How long a group is pending before a hint is searched.
const PENDING_MIN: Duration = Duration::from_secs(10);
/// Maximum groups of a search.
const GROUPS_MAX: usize = 20;

/// The hints that are known.
#[derive(Debug, Default)]
pub(super) struct Hints {
    known: BTreeMap<Key, Known>,
    queue: Queue,
    searched_at: Option<Instant>,
    is_searching: bool,
    /// Hints were found and not reported yet.
    has_unreported: bool,
}

#[derive(Debug)]
struct Known {
    verdict: GroupVerdict,
    text: Option<String>,
}

impl Hints {
    /// The hint that was found for a verdict.
    pub(super) fn of(&self, verdict: &GroupVerdict) -> Option<String> {
        let known = self.known.get(&verdict.group).filter(|known| known.verdict == *verdict);
        known.and_then(|known| known.text.clone())
    }

    /// Whether there are hints to report; `false` until there are further ones.
    pub(super) fn take_unreported(&mut self) -> bool {
        std::mem::take(&mut self.has_unreported)
    }

    pub(super) fn forget(&mut self, group: &Key) {
        self.queue.remove(group);
        self.known.remove(group);
    }
}

impl SchedulerLoop {
    /// A plan on a copy calls no plugins, so it would prove nothing with them.
    fn wants_hints(&self) -> bool {
        self.options.condition_hints && !self.policies.all_actions.has_callbacks()
    }

    /// Takes over the pending groups of a cycle.
    pub(super) fn queue_hints(&mut self) {
        if !self.wants_hints() {
            return;
        }
        let since = |group: &Key| self.reporter.pending.get(group).map(|status| status.pending_since);
        let with_condition = self.verdicts.iter().filter(|(_, verdict)| has_condition(verdict));
        let groups = with_condition.filter_map(|(group, _)| Some((group, since(group)?))).collect();
        self.hints.queue.set(&groups);
    }

    /// When hints are searched next.
    pub(super) fn next_hints(&self) -> Option<Instant> {
        if !self.wants_hints() || self.hints.is_searching {
            return None;
        }
        let after_last = self.hints.searched_at.map(|at| at + INTERVAL);
        match self.hints.queue.next(self.cycles)? {
            Due::AtOnce => after_last,
            Due::At(at) => Some(after_last.map_or(at, |after| after.max(at))),
        }
    }

    /// Searches hints beside the loop, if it is time.
    pub(super) fn search_hints(&mut self, now: Instant) {
        if self.next_hints().is_none_or(|at| at > now) {
            return;
        }
        let due = self.hints.queue.due(now, self.cycles, GROUPS_MAX);
        let due: Vec<GroupVerdict> =
            due.iter().filter_map(|group| self.verdicts.get(group).cloned()).collect();
        let pending = &self.reporter.pending;
        self.hints.known.retain(|group, _| pending.contains_key(group));
        self.hints.searched_at = Some(now);
        self.hints.is_searching = true;
        let cycle = Cycle { now: self.now(), seed: self.options.seed };
        let (store, carried) = self.copy();
        let (policy, events) = (self.policies.built_in.clone(), Arc::clone(&self.events));
        let work = move || find(store, carried, &policy, cycle, due);
        let cycles = self.cycles;
        let report = move |found| events.push(SchedulerEvent::HintsFound(found, cycles));
        // A simulation has one thread, and the same seed must give the same requests.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            report(work());
        } else {
            // A search that panics finds nothing.
            self.tasks.spawn(async move {
                report(tokio::task::spawn_blocking(work).await.unwrap_or_default());
            });
        }
    }

    /// Keeps hints that were found after so many cycles.
    pub(super) fn handle_hints(&mut self, found: Vec<FoundHint>, cycle: u64) -> Impact {
        self.hints.is_searching = false;
        self.hints.has_unreported = true;
        for FoundHint { verdict, text } in found {
            let group = verdict.group.clone();
            self.reporter.render_again(&group);
            self.hints.queue.searched(&group, cycle);
            self.hints.known.insert(group, Known { verdict, text });
        }
        Impact::None
    }
}

/// Whether the condition of a group with this verdict may have a hint.
fn has_condition(verdict: &GroupVerdict) -> bool {
    !matches!(verdict.leading, Verdict::NotReady { .. } | Verdict::WaitingForVictims { .. })
}

/// The first hint of each group. All searches together may take as many steps as one of `kai why`; groups for which nothing
/// is left come first the next time.
fn find(
    mut store: Store,
    carried: CarryOver,
    policy: &Policy,
    cycle: Cycle,
    groups: Vec<GroupVerdict>,
) -> Vec<FoundHint> {
    let mut cluster = ClusterState::new();
    store.drain_into(&mut cluster);
    cluster.carry_over(carried);
    let mut model = Model { store: &mut store, cluster: &mut cluster, policy, cycle };
    let base = model.plan();
    let effort = hints::Effort { is_thorough: false, ..hints::Effort::of(model.cluster) };
    let mut left = effort.steps_max;
    let mut all = Vec::new();
    for verdict in groups {
        if left == 0 {
            break;
        }
        let steps_max = left.min(effort.steps_max / 4);
        let found = hints::find(&mut model, &base, &verdict.group, hints::Effort { steps_max, ..effort });
        left = left.saturating_sub(found.steps);
        let text = found.hints.first().map(|hint| {
            let sentences: Vec<String> = hint.changes.iter().map(sentence).collect();
            sentences.join(", and ")
        });
        all.push(FoundHint { verdict, text });
    }
    all
}
