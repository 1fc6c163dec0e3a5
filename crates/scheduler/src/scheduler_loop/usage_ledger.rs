//! Passes the allocations of queues to the usage ledger.

use super::SchedulerLoop;
use crate::usage::feed::Feed;
use crate::usage::ledger::{Allocation, in_units};
use kai_cache::translate::queue::usage_half_life;
use kai_engine::input::Key;
use kai_engine::{Outcome, order};
use kai_units::Timestamp;
use std::sync::Arc;

impl SchedulerLoop {
    /// What polls historical usage.
    pub(crate) fn usage_feed(&self) -> Feed {
        self.usage_feed.clone()
    }

    /// Called after a cycle, when its decisions are assumed: every change of an allocation leads to a cycle or is made by one.
    pub(super) fn observe_usage(&mut self, outcome: &Outcome, now: Timestamp) {
        let Some(ledger) = self.usage_ledger.clone() else { return };
        let policy = Arc::clone(&self.policies.all_actions);
        order::listing::refresh(self.cache.cluster_mut(), &policy, now);
        let allocated = order::listing::allocated(self.cache.cluster());
        let queues = &self.cache.store().objects().queues;
        let queue = |name: &str| queues.get(&Key::new("", name));
        let half_life = |name: &str| usage_half_life(queue(name)?)?.ok();
        let allocations = allocated.map(|(queue, amounts)| Allocation {
            queue,
            half_life: half_life(queue),
            amounts: in_units(amounts),
        });
        ledger.lock().observe(now, in_units(outcome.total), allocations, |name| queue(name).is_some());
    }
}
