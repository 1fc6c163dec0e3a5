//! How long a cycle and its parts take.

use super::Heart;
use crate::metrics::TimedAttempt;
use crate::rhythm::Scope;
use kai_clock::Stopwatch;
use kai_engine::input::Key;
use kai_engine::observer::{Attempt, Searched};
use kai_engine::{Observer, Outcome};

/// Measures a cycle.
pub(super) struct Measure {
    whole: Stopwatch,
    part: Stopwatch,
    generator: Stopwatch,
    open_ms: f64,
    planned_ms: f64,
    actions: Vec<(&'static str, f64)>,
    attempts: Vec<TimedAttempt>,
    searches: Vec<Searched>,
}

impl Measure {
    pub(super) fn start() -> Self {
        let start = Stopwatch::start();
        Self {
            whole: start,
            part: start,
            generator: start,
            open_ms: 0.0,
            planned_ms: 0.0,
            actions: Vec::new(),
            attempts: Vec::new(),
            searches: Vec::new(),
        }
    }

    /// Everything is decided.
    pub(super) fn planned(&mut self) {
        self.planned_ms = self.whole.elapsed_ms();
    }
}

impl Observer for Measure {
    fn opened(&mut self) {
        self.open_ms = self.whole.elapsed_ms();
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

impl Heart {
    /// Shows in metrics what a cycle took and came to.
    pub(super) fn show(&self, scope: Scope, measure: &Measure, outcome: &Outcome) {
        let metrics = &self.metrics;
        let whole_ms = measure.whole.elapsed_ms();
        metrics.cycle_ms.set(whole_ms);
        metrics.open_ms.set(measure.open_ms);
        metrics.close_ms.set(whole_ms - measure.planned_ms);
        for (action, ms) in &measure.actions {
            metrics.action_ms.with_label_values(&[action]).set(*ms);
        }
        for attempt in &measure.attempts {
            metrics.search.attempted(attempt);
        }
        for search in &measure.searches {
            metrics.search.searched(search);
        }
        let name = match scope {
            Scope::Placing => "placing",
            Scope::Everything => "everything",
        };
        metrics.flying.set(self.flight.len() as i64);
        metrics.names.set(self.cache.cluster().names.len() as i64);
        metrics.cycles.with_label_values(&[name]).inc();
        let store = self.cache.store();
        let display = |name: &str| {
            let queue = store.objects().queues.get(&Key::new("", name));
            queue.map_or("", |queue| queue.spec.display_name.as_str())
        };
        let used = |name: &str| store.usage().get(name).copied().unwrap_or_default();
        metrics.queues(outcome, display, used);
        tracing::debug!(
            scope = name,
            decisions = outcome.decisions.len(),
            pending = self.verdicts.len(),
            ms = whole_ms,
            hash = outcome.hash,
            "planned"
        );
    }
}
