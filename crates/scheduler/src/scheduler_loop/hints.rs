//! What would run groups that stay pending, for their conditions, where the option `condition_hints` is set.
//!
//! While the loop has no cycle to run, at most once in [`INTERVAL`], a copy of the cluster goes to a thread of its own, which
//! searches hints for some groups, those first that have waited longest for an answer. A hint is in the condition as long as
//! the verdict is the one for which it was found.

use super::SchedulerLoop;
use crate::cycle_trigger::Impact;
use crate::event_queue::{FoundHint, SchedulerEvent};
use kai_cache::Store;
use kai_engine::input::Key;
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_engine::{CarryOver, ClusterState, Cycle, Policy};
use kai_whatif::{Model, hints, sentence};
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
    searched_at: Option<Instant>,
    is_searching: bool,
    /// Hints were found and not reported yet.
    has_unreported: bool,
}

#[derive(Debug)]
struct Known {
    verdict: GroupVerdict,
    text: Option<String>,
    /// The number of cycles before the search.
    cycle: u64,
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
}

impl SchedulerLoop {
    /// When hints are searched next.
    pub(super) fn next_hints(&self) -> Option<Instant> {
        // A plan on a copy calls no plugins, so it would prove nothing with them.
        let is_wanted = self.options.condition_hints && !self.policies.all_actions.has_callbacks();
        if !is_wanted || self.hints.is_searching {
            return None;
        }
        let due = self.verdicts.iter().filter(|(group, verdict)| self.needs_hint(group, verdict));
        let due = due.filter_map(|(group, _)| self.reporter.pending.get(group));
        let first = due.map(|status| status.pending_since + PENDING_MIN).min()?;
        Some(self.hints.searched_at.map_or(first, |at| first.max(at + INTERVAL)))
    }

    /// Whether a group has no hint yet, or cycles have run since it was found.
    fn needs_hint(&self, group: &Key, verdict: &GroupVerdict) -> bool {
        let has_condition =
            !matches!(verdict.leading, Verdict::NotReady { .. } | Verdict::WaitingForVictims { .. });
        let is_current = |known: &Known| known.verdict == *verdict && known.cycle == self.cycles;
        has_condition && !self.hints.known.get(group).is_some_and(is_current)
    }

    /// Searches hints beside the loop, if it is time.
    pub(super) fn search_hints(&mut self, now: Instant) {
        if self.next_hints().is_none_or(|at| at > now) {
            return;
        }
        let waits = |group: &Key| {
            let status = self.reporter.pending.get(group);
            status.is_some_and(|status| status.pending_since + PENDING_MIN <= now)
        };
        let all =
            self.verdicts.iter().filter(|(group, verdict)| self.needs_hint(group, verdict) && waits(group));
        let last = |group: &Key| self.hints.known.get(group).map(|known| known.cycle);
        let mut due: Vec<(Option<u64>, GroupVerdict)> =
            all.map(|(group, verdict)| (last(group), verdict.clone())).collect();
        due.sort_by_key(|(cycle, _)| *cycle);
        due.truncate(GROUPS_MAX);
        let due: Vec<GroupVerdict> = due.into_iter().map(|(_, verdict)| verdict).collect();
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
            self.hints.known.insert(group, Known { verdict, text, cycle });
        }
        Impact::None
    }
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
