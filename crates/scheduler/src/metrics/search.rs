//! What searches for victims cost and come to, under the names that KAI uses.

use super::Maker;
use kai_engine::observer::{Scenarios, SearchResult, Searched};
use kai_engine::policy::SearchBudgets;
use kai_units::Span;
use prometheus::{CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, exponential_buckets};

/// Metrics of searches.
#[derive(Clone, Debug)]
pub(crate) struct SearchMetrics {
    groups: CounterVec,
    acted_on: CounterVec,
    preemption_attempts: IntCounter,
    simulated: CounterVec,
    filtered: CounterVec,
    scenarios: CounterVec,
    seconds: HistogramVec,
    exhausted: CounterVec,
    action_budget: GaugeVec,
    group_budget: Gauge,
    generator_budget: GaugeVec,
}

/// What one generator did for one group, and how long it took.
#[derive(Clone, Debug)]
pub(crate) struct TimedAttempt {
    pub(crate) action: &'static str,
    pub(crate) generator: String,
    pub(crate) result: SearchResult,
    pub(crate) scenarios: Scenarios,
    pub(crate) seconds: f64,
}

impl SearchMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Self {
        let buckets = exponential_buckets(0.001, 2.0, 16).expect("constants that are valid");
        let seconds = HistogramOpts {
            common_opts: make.opts("scenario_search_duration_seconds", "Time of a generator for one group"),
            buckets,
        };
        Self {
            groups: make.counters(
                "scenario_search_jobs_total",
                "Pod groups for which victims were to be found, by how that ended",
                &["action", "result", "reduced_budget"],
            ),
            acted_on: make.counters(
                "podgroups_acted_on_by_action",
                "Pod groups that had their turn in an action that may evict",
                &["action"],
            ),
            preemption_attempts: make.register(IntCounter::with_opts(
                make.opts("total_preemption_attempts", "Pod groups that had their turn in preemption"),
            )),
            simulated: make.counters(
                "scenarios_simulation_by_action",
                "Sets of victims that were played through",
                &["action"],
            ),
            filtered: make.counters(
                "scenarios_filtered_by_action",
                "Pod groups for which all victims together were clearly too few",
                &["action"],
            ),
            scenarios: make.counters(
                "scenario_search_scenarios_total",
                "Sets of victims, by what became of them",
                &["action", "generator", "state"],
            ),
            seconds: make.register(HistogramVec::new(seconds, &["action", "generator", "result"])),
            exhausted: make.counters(
                "scenario_search_action_budget_exhausted_total",
                "Times that an action used up its budget",
                &["action"],
            ),
            action_budget: make.gauges(
                "scenario_search_action_budget_configured_seconds",
                "Budget of an action; 0 is unlimited",
                &["action"],
            ),
            group_budget: make.gauge(
                "scenario_search_job_budget_configured_seconds",
                "Budget of one pod group; 0 is unlimited",
            ),
            generator_budget: make.gauges(
                "scenario_search_generator_budget_configured_seconds",
                "Budget of a generator for one pod group; 0 is unlimited",
                &["generator"],
            ),
        }
    }

    /// Says what is configured.
    pub(crate) fn budgets(&self, budgets: &SearchBudgets) {
        let seconds = |span: &Span| span.0 as f64 / 1e6;
        self.group_budget.set(seconds(&budgets.group_max));
        for (action, span) in &budgets.action {
            self.action_budget.with_label_values(&[action]).set(seconds(span));
        }
        for (generator, span) in &budgets.generator {
            self.generator_budget.with_label_values(&[generator]).set(seconds(span));
        }
    }

    /// Counts what a generator did.
    pub(crate) fn attempted(&self, attempt: &TimedAttempt) {
        let TimedAttempt { action, generator, result, scenarios, seconds } = attempt;
        self.seconds.with_label_values(&[action, generator.as_str(), result.name()]).observe(*seconds);
        let Scenarios { emitted, simulated, refused, duplicate } = *scenarios;
        let states = [
            ("emitted", emitted),
            ("simulated", simulated),
            ("validator_rejected", refused),
            ("duplicate", duplicate),
        ];
        for (state, count) in states {
            self.scenarios.with_label_values(&[action, generator.as_str(), state]).inc_by(f64::from(count));
        }
        self.simulated.with_label_values(&[action]).inc_by(f64::from(simulated));
    }

    /// Counts a group's turn.
    pub(crate) fn searched(&self, search: &Searched) {
        let action = search.action;
        let reduced = if search.reduced_budget { "true" } else { "false" };
        self.groups.with_label_values(&[action, search.result.name(), reduced]).inc();
        self.acted_on.with_label_values(&[action]).inc();
        if action == kai_engine::outcome::Cause::Preempt.action() {
            self.preemption_attempts.inc();
        }
        if search.filtered {
            self.filtered.with_label_values(&[action]).inc();
        }
        if search.action_exhausted {
            self.exhausted.with_label_values(&[action]).inc();
        }
    }
}
