//! How long each part of a run took.

use kai_clock::Stopwatch;
use kai_engine::Observer;
use std::collections::BTreeMap;

/// Milliseconds spent on each part.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "a bare number carries its unit")]
pub(super) struct Times {
    /// Reading and deserialising the file.
    pub(super) load_ms: f64,
    /// From API objects to a cluster that is ready to plan on.
    pub(super) open_ms: f64,
    /// Planning, per action.
    pub(super) actions_ms: BTreeMap<String, f64>,
    /// Planning, everything.
    pub(super) total_actions_ms: f64,
}

/// Watches a cycle: what comes before it opens counts as opening, all the rest as planning.
pub(super) struct Watch<'a> {
    times: &'a mut Times,
    whole: Stopwatch,
    action: Stopwatch,
    opened_ms: f64,
}

impl<'a> Watch<'a> {
    /// Starts to watch.
    pub(super) fn start(times: &'a mut Times) -> Self {
        let now = Stopwatch::start();
        Self { times, whole: now, action: now, opened_ms: 0.0 }
    }

    /// The cycle is over.
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
