//! Metrics of the victim search, with the names of KAI.

use super::Builder;
use kai_engine::observer::{Scenarios, SearchResult, Searched};
use kai_engine::policy::SearchBudgets;
use kai_units::Span;
use prometheus::{CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, exponential_buckets};

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

/// One generator's attempt for one group, with its duration.
#[derive(Clone, Debug)]
pub(crate) struct TimedAttempt {
    pub(crate) action: &'static str,
    pub(crate) generator: String,
    pub(crate) result: SearchResult,
    pub(crate) scenarios: Scenarios,
    pub(crate) seconds: f64,
}

impl SearchMetrics {
    pub(super) fn new(builder: &Builder<'_>) -> Self {
        #[expect(clippy::expect_used, reason = "the arguments are constants")]
        let buckets = exponential_buckets(0.001, 2.0, 16).expect("valid constants");
        let seconds = HistogramOpts {
            common_opts: builder.opts(
                "scenario_search_duration_seconds",
                "Duration of a scenario generator for one pod group in seconds",
            ),
            buckets,
        };
        Self {
            groups: builder.counters(
                "scenario_search_jobs_total",
                "Pod groups that were searched victims for, by result",
                &["action", "result", "reduced_budget"],
            ),
            acted_on: builder.counters(
                "podgroups_acted_on_by_action",
                "Pod groups attempted by an action that may evict",
                &["action"],
            ),
            preemption_attempts: builder.register(IntCounter::with_opts(
                builder.opts("total_preemption_attempts", "Pod groups attempted by the preempt action"),
            )),
            simulated: builder.counters(
                "scenarios_simulation_by_action",
                "Simulated scenarios, by action",
                &["action"],
            ),
            filtered: builder.counters(
                "scenarios_filtered_by_action",
                "Pod groups without a search because all potential victims together free too little",
                &["action"],
            ),
            scenarios: builder.counters(
                "scenario_search_scenarios_total",
                "Scenarios, by action, generator and state",
                &["action", "generator", "state"],
            ),
            seconds: builder.register(HistogramVec::new(seconds, &["action", "generator", "result"])),
            exhausted: builder.counters(
                "scenario_search_action_budget_exhausted_total",
                "Cycles in which an action exhausted its search budget",
                &["action"],
            ),
            action_budget: builder.gauges(
                "scenario_search_action_budget_configured_seconds",
                "Configured search budget of an action in seconds; 0 is unlimited",
                &["action"],
            ),
            group_budget: builder.gauge(
                "scenario_search_job_budget_configured_seconds",
                "Configured search budget of one pod group in seconds; 0 is unlimited",
            ),
            generator_budget: builder.gauges(
                "scenario_search_generator_budget_configured_seconds",
                "Configured search budget of a generator for one pod group in seconds; 0 is unlimited",
                &["generator"],
            ),
        }
    }

    pub(crate) fn set_budgets(&self, budgets: &SearchBudgets) {
        let seconds = |span: &Span| span.0 as f64 / 1e6;
        self.group_budget.set(seconds(&budgets.group_max));
        for (action, span) in &budgets.action {
            self.action_budget.with_label_values(&[action]).set(seconds(span));
        }
        for (generator, span) in &budgets.generator {
            self.generator_budget.with_label_values(&[generator]).set(seconds(span));
        }
    }

    pub(crate) fn record_attempt(&self, attempt: &TimedAttempt) {
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

    pub(crate) fn record_search(&self, search: &Searched) {
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
