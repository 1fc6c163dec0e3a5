//! Passes the allocations of queues to the usage ledger.

use super::SchedulerLoop;
use crate::usage::feed::Feed;
use crate::usage::ledger::{Allocation, Amounts};
use kai_api::well_known::annotation;
use kai_engine::input::{Key, WHOLE_GPU};
use kai_engine::{Outcome, order};
use kai_units::{Span, Timestamp, duration};
use std::sync::Arc;

/// Base units of the engine in a core.
const MILLICORES: f64 = 1e3;

impl SchedulerLoop {
    /// What polls historical usage.
    pub(crate) fn usage_feed(&self) -> Feed {
        self.usage_feed.clone()
    }

    /// Called after a cycle, when its decisions are assumed: every change of an allocation leads to a cycle or is made by one.
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
    let [cpu, memory, gpu] = amounts.map(|amount| amount as f64);
    [cpu / MILLICORES, memory, gpu / WHOLE_GPU as f64]
}
