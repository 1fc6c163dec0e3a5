//! Measures a cycle and its parts and publishes the results as metrics.

use super::SchedulerLoop;
use crate::cycle_trigger::Scope;
use crate::metrics::TimedAttempt;
use kai_clock::Stopwatch;
use kai_engine::input::Key;
use kai_engine::observer::{Attempt, Moment, Searched};
use kai_engine::{Observer, Outcome};

pub(super) struct CycleTimings {
    whole: Stopwatch,
    part: Stopwatch,
    generator: Stopwatch,
    open_ms: f64,
    planned_ms: f64,
    actions: Vec<(&'static str, f64)>,
    hook: Stopwatch,
    /// Session hooks: plugin, moment and milliseconds.
    hooks: Vec<(String, Moment, f64)>,
    attempts: Vec<TimedAttempt>,
    searches: Vec<Searched>,
}

impl CycleTimings {
    pub(super) fn start() -> Self {
        let start = Stopwatch::start();
        Self {
            whole: start,
            part: start,
            generator: start,
            open_ms: 0.0,
            planned_ms: 0.0,
            actions: Vec::new(),
            hook: start,
            hooks: Vec::new(),
            attempts: Vec::new(),
            searches: Vec::new(),
        }
    }

    /// Marks the end of planning.
    pub(super) fn planned(&mut self) {
        self.planned_ms = self.whole.elapsed_ms();
    }
}

impl Observer for CycleTimings {
    fn opened(&mut self) {
        self.open_ms = self.whole.elapsed_ms();
    }

    fn hook_begins(&mut self) {
        self.hook = Stopwatch::start();
    }

    fn hook_ended(&mut self, plugin: &str, moment: Moment) {
        self.hooks.push((plugin.to_owned(), moment, self.hook.elapsed_ms()));
    }

    fn action_begins(&mut self, _name: &'static str) {
        self.part = Stopwatch::start();
    }

    fn action_ended(&mut self, name: &'static str) {
        self.actions.push((name, self.part.elapsed_ms()));
    }

    fn generator_begins(&mut self) {
        self.generator = Stopwatch::start();
    }

    fn generator_ended(&mut self, attempt: &Attempt<'_>) {
        self.attempts.push(TimedAttempt {
            action: attempt.action,
            generator: attempt.generator.to_owned(),
            result: attempt.result,
            scenarios: attempt.scenarios,
            seconds: self.generator.elapsed_ms() / 1e3,
        });
    }

    fn search_ended(&mut self, search: &Searched) {
        self.searches.push(*search);
    }
}

impl SchedulerLoop {
    pub(super) fn publish_metrics(&self, scope: Scope, timings: &CycleTimings, outcome: &Outcome) {
        let metrics = &self.metrics;
        let whole_ms = timings.whole.elapsed_ms();
        metrics.cycle_ms.set(whole_ms);
        metrics.open_ms.set(timings.open_ms);
        metrics.close_ms.set(whole_ms - timings.planned_ms);
        for (action, ms) in &timings.actions {
            metrics.action_ms.with_label_values(&[action]).set(*ms);
        }
        for (plugin, moment, ms) in &timings.hooks {
            metrics.set_plugin_latency(plugin, *moment, *ms);
        }
        for attempt in &timings.attempts {
            metrics.search.record_attempt(attempt);
        }
        for search in &timings.searches {
            metrics.search.record_search(search);
        }
        let name = match scope {
            Scope::AllocateOnly => "allocate",
            Scope::AllActions => "all_actions",
        };
        metrics.scheduler_loop.assumed_bindings.set(self.assumed.len() as i64);
        metrics.scheduler_loop.names.set(self.cache.cluster().names.len() as i64);
        metrics.scheduler_loop.cycles.with_label_values(&[name]).inc();
        let store = self.cache.store();
        let display = |name: &str| {
            let queue = store.objects().queues.get(&Key::new("", name));
            queue.map_or("", |queue| queue.spec.display_name.as_str())
        };
        let used = |name: &str| store.usage().get(name).copied().unwrap_or_default();
        metrics.set_queues(outcome, display, used);
        tracing::debug!(
            scope = name,
            decisions = outcome.decisions.len(),
            pending = self.verdicts.len(),
            ms = whole_ms,
            hash = outcome.hash,
            "cycle ended"
        );
    }
}
