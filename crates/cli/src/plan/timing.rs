//! Measures the phases of a run.

use kai_clock::Stopwatch;
use kai_engine::Observer;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "a bare number carries its unit")]
pub(super) struct Times {
    /// Reading and deserialising the file.
    pub(super) load_ms: f64,
    /// From API objects to a cluster that is ready to plan on.
    pub(super) open_ms: f64,
    /// Planning, per action.
    pub(super) actions_ms: BTreeMap<String, f64>,
    /// Planning in total.
    pub(super) total_actions_ms: f64,
}

/// Measures a cycle: time until it is opened counts as opening, the rest as planning.
pub(super) struct Watch<'a> {
    times: &'a mut Times,
    whole: Stopwatch,
    action: Stopwatch,
    opened_ms: f64,
}

impl<'a> Watch<'a> {
    pub(super) fn start(times: &'a mut Times) -> Self {
        let now = Stopwatch::start();
        Self { times, whole: now, action: now, opened_ms: 0.0 }
    }

    pub(super) fn finish(self) {
        self.times.open_ms += self.opened_ms;
        self.times.total_actions_ms = self.whole.elapsed_ms() - self.opened_ms;
    }
}

impl Observer for Watch<'_> {
    fn opened(&mut self) {
        self.opened_ms = self.whole.elapsed_ms();
    }

    fn action_begins(&mut self, _name: &'static str) {
        self.action = Stopwatch::start();
    }

    fn action_ended(&mut self, name: &'static str) {
        *self.times.actions_ms.entry(name.to_owned()).or_default() += self.action.elapsed_ms();
    }
}
