//! The simulation loop: plan a cycle, apply its outcome, advance to the next time at which anything can change.

use crate::history::{History, Sums, Totals};
use crate::options::Options;
use crate::report::{Eviction, GroupResult, QueueResult, Report, Waits};
use crate::script::Script;
use crate::simulated_cluster::SimulatedCluster;
use crate::usage::UsageLedger;
use kai_engine::outcome::{Decision, Outcome, QueueReport};
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_engine::{Cycle, Delta, Policy, plan};
use kai_units::{Span, Timestamp};
use std::collections::BTreeMap;

/// A cluster in virtual time.
pub struct Simulation {
    cluster: SimulatedCluster,
    policy: Policy,
    /// The policy without actions: a cycle with it changes nothing and reports the current state.
    observe_only: Policy,
    options: Options,
    history: History,
    ledger: Option<UsageLedger>,
    /// When usage is measured next.
    fetch_at: Timestamp,
    now: Timestamp,
    /// The number of the next cycle.
    tick: u64,
    planned: u64,
    /// The last cycle changed something, so the next one must be planned.
    changed: bool,
    evictions: Vec<Eviction>,
    verdicts: Vec<GroupVerdict>,
    hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The time of the last cycle.
    pub now: Timestamp,
    /// Cycles planned.
    pub planned: u64,
    /// Groups below their minimum.
    pub waiting: usize,
    /// Pods evicted.
    pub evictions: usize,
}

impl Simulation {
    /// A cluster of these objects, at the start of virtual time.
    pub fn new(
        deltas: impl IntoIterator<Item = Delta>,
        script: &Script,
        policy: Policy,
        mut options: Options,
    ) -> Self {
        options.period = Span(options.period.0.max(1));
        let mut observe_only = policy.clone();
        observe_only.actions.clear();
        Self {
            cluster: SimulatedCluster::new(deltas, script, &policy, &options),
            policy,
            observe_only,
            history: History::new(options.period, options.samples_max),
            ledger: options.usage.map(UsageLedger::new),
            fetch_at: options.start,
            now: options.start,
            tick: 0,
            planned: 0,
            changed: true,
            evictions: Vec::new(),
            verdicts: Vec::new(),
            hash: 0,
            options,
        }
    }

    /// Plans the next cycle that can change anything and applies its outcome. Returns `false` when there is none up to
    /// `until`.
    pub fn step(&mut self, until: Timestamp) -> bool {
        let Some(tick) = self.next_tick() else { return false };
        let now = self.time_of(tick);
        if now > until {
            return false;
        }
        (self.now, self.tick) = (now, tick + 1);
        self.cluster.advance_to(now);
        self.update_usage(now);
        let cycle = Cycle { now, seed: self.options.seed.wrapping_add(tick) };
        let mut outcome = plan(&mut self.cluster.cluster, &self.policy, cycle);
        self.planned += 1;
        self.hash = (self.hash.rotate_left(7) ^ outcome.hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.record_evictions(&outcome);
        self.changed = self.cluster.apply_outcome(&outcome, now);
        self.cluster.cluster.carry_over(outcome.carry_over.clone());
        self.correct_allocated(&mut outcome, cycle);
        self.record(now, &outcome);
        self.verdicts = outcome.verdicts;
        true
    }

    /// Corrects the allocation of queues after a cycle: the engine counts pipelined pods as allocated, here they are
    /// pending.
    fn correct_allocated(&mut self, outcome: &mut Outcome, cycle: Cycle) {
        if !outcome.decisions.iter().any(|decision| matches!(decision, Decision::Pipeline { .. })) {
            return;
        }
        let look = plan(&mut self.cluster.cluster, &self.observe_only, cycle);
        for (report, seen) in outcome.queues.iter_mut().zip(&look.queues) {
            report.allocated_after = seen.allocated;
        }
    }

    pub fn progress(&self) -> Progress {
        Progress {
            now: self.now,
            planned: self.planned,
            waiting: self.cluster.waiting(),
            evictions: self.evictions.len(),
        }
    }

    /// Whether no event, timer or cycle is left that could change anything.
    pub fn is_settled(&self) -> bool {
        self.next_tick().is_none()
    }

    /// Ends the simulation at `end` or at its last cycle, whichever is later.
    pub fn finish(mut self, end: Option<Timestamp>) -> Report {
        let settled = self.is_settled();
        let end = end.unwrap_or(self.now).max(self.now);
        self.cluster.advance_to(end);
        let last =
            plan(&mut self.cluster.cluster, &self.observe_only, Cycle { now: end, seed: self.options.seed });
        self.record(end, &last);
        let groups = self.cluster.results(end);
        let mut pending = self.verdicts;
        pending.retain(|verdict| verdict.leading != Verdict::Placed);
        let elapsed = (end - self.options.start).0;
        let mean = |sums: Sums| sums.map(|sum| sum as f64 / elapsed.max(1) as f64);
        Report {
            start: self.options.start,
            end,
            period: self.options.period,
            cycles: self.tick.max((elapsed / self.options.period.0) as u64),
            planned: self.planned,
            settled,
            capacity: mean(self.history.capacity),
            held: mean(self.history.held),
            queues: queue_results(&self.history, &groups, mean),
            waits: Waits::of(groups.iter()),
            groups,
            evictions: self.evictions,
            pending,
            samples: self.history.samples(),
            hash: self.hash,
        }
    }

    /// The next cycle that can change anything.
    fn next_tick(&self) -> Option<u64> {
        if self.changed {
            return Some(self.tick);
        }
        let timer = self.cluster.next_timer(self.now, self.policy.params.staleness_grace);
        let fetch = self.ledger.as_ref().map(|_| self.fetch_at);
        let next = [self.cluster.events.next_at(), timer, fetch].into_iter().flatten().min()?;
        let micros = (next - self.options.start).0.max(0) as u64;
        Some(micros.div_ceil(self.options.period.0 as u64).max(self.tick))
    }

    fn time_of(&self, tick: u64) -> Timestamp {
        let micros = i64::try_from(tick).unwrap_or(i64::MAX).saturating_mul(self.options.period.0);
        self.options.start + Span(micros)
    }

    /// Updates the usage of queues in the cluster when that is due.
    fn update_usage(&mut self, now: Timestamp) {
        let Some(ledger) = self.ledger.as_mut().filter(|_| now >= self.fetch_at) else { return };
        // Before the first cycle only the initial usage of the queues is known.
        let Some(current) = self.history.current() else { return };
        ledger.record(
            current.at.max(ledger.recorded_until()),
            now,
            current.queues.iter().map(|q| q.held),
            current.total,
        );
        let usage = ledger.usage(now);
        for (queue, usage) in self.history.queues.iter().zip(usage) {
            self.cluster.set_usage(&queue.name, usage);
        }
        self.fetch_at = now + Span(self.options.usage.map_or(1, |usage| usage.fetch_every.0.max(1)));
    }

    /// Records the state of the queues after a cycle.
    fn record(&mut self, now: Timestamp, outcome: &Outcome) {
        self.history.advance_to(now);
        if let Some(ledger) = &mut self.ledger {
            if let Some(sample) = self.history.current() {
                let from = sample.at.max(ledger.recorded_until());
                ledger.record(from, now, sample.queues.iter().map(|q| q.held), sample.total);
            } else {
                let names: Vec<&str> = outcome.queues.iter().map(|queue| queue.name.as_str()).collect();
                ledger.begin(now, &self.cluster.usage_of(&names), outcome.total);
            }
        }
        self.history.record(now, outcome);
    }

    fn record_evictions(&mut self, outcome: &Outcome) {
        for decision in &outcome.decisions {
            if let Decision::Evict { pod, group, preemptor, action, .. } = decision {
                let queue = group.as_ref().and_then(|group| self.cluster.queue_of(group)).map(str::to_owned);
                self.evictions.push(Eviction {
                    at: self.now,
                    pod: pod.clone(),
                    group: group.clone(),
                    queue,
                    preemptor: preemptor.clone(),
                    action,
                });
            }
        }
    }
}

fn queue_results(
    history: &History,
    groups: &[GroupResult],
    mean: impl Fn(Sums) -> [f64; 3],
) -> Vec<QueueResult> {
    let parents: BTreeMap<&str, Option<&str>> =
        history.queues.iter().map(|queue| (queue.name.as_str(), queue.parent.as_deref())).collect();
    // A group counts for its queue and all ancestors.
    let mut below: BTreeMap<&str, Vec<&GroupResult>> = BTreeMap::new();
    for group in groups {
        let path =
            std::iter::successors(Some(group.queue.as_str()), |name| parents.get(name).copied().flatten());
        for queue in path.take(parents.len()) {
            below.entry(queue).or_default().push(group);
        }
    }
    let result = |(queue, totals): (&QueueReport, &Totals)| {
        let groups = below.get(queue.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        QueueResult {
            name: queue.name.clone(),
            parent: queue.parent.clone(),
            quota: queue.quota,
            limit: queue.limit,
            held: mean(totals.held),
            held_least: totals.least,
            held_most: totals.most,
            fair_share: mean(totals.fair_share),
            requested: mean(totals.requested),
            evictions: groups.iter().map(|group| group.evictions).sum(),
            waits: Waits::of(groups.iter().copied()),
        }
    };
    history.queues.iter().zip(&history.totals).map(result).collect()
}

#[cfg(test)]
mod tests;
