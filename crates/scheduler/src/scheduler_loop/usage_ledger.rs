//! Passes the allocations of queues to the usage ledger.

use super::SchedulerLoop;
use crate::usage::ledger::{Allocation, Amounts, Ledger};
use kai_api::well_known::annotation;
use kai_engine::input::Key;
use kai_engine::{Outcome, order};
use kai_units::{Span, Timestamp, duration};
use parking_lot::Mutex;
use std::sync::Arc;

/// Base units of the engine in a core, a byte and a GPU.
const UNITS: [f64; 3] = [1e3, 1.0, 1e6];

impl SchedulerLoop {
    /// The ledger, if usage comes from it.
    pub(crate) fn usage_ledger(&self) -> Option<Arc<Mutex<Ledger>>> {
        self.usage_ledger.clone()
    }

    /// After a cycle, with its decisions: every change of an allocation leads to a cycle or is made by one.
    pub(super) fn observe_usage(&mut self, outcome: &Outcome, now: Timestamp) {
        let Some(ledger) = self.usage_ledger.clone() else { return };
        let policy = Arc::clone(&self.policies.all_actions);
        let allocated = order::listing::allocated(self.cache.cluster_mut(), &policy, now);
        let queues = &self.cache.store().objects().queues;
        let queue = |name: &str| queues.get(&Key::new("", name));
        let half_life = |name: &str| {
            let annotations = queue(name)?.metadata.annotations.as_ref()?;
            let span = duration::parse_extended(annotations.get(annotation::USAGE_HALF_LIFE)?).ok();
            span.filter(|span: &Span| span.0 > 0)
        };
        let allocations = allocated.iter().map(|(name, amounts)| Allocation {
            queue: name,
            half_life: half_life(name),
            amounts: in_units(*amounts),
        });
        ledger.lock().observe(now, in_units(outcome.total), allocations, |name| queue(name).is_some());
    }
}

fn in_units(amounts: [i64; 3]) -> Amounts {
    [0, 1, 2].map(|resource| amounts[resource] as f64 / UNITS[resource])
}
