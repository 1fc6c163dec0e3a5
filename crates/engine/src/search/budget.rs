//! Limits the work of a search.
//!
//! Budgets are configured as durations. They are counted in steps instead of time, so that exhaustion is deterministic
//! and replays: a step is one node evaluation or one plan edit.

use super::pending_request::PendingRequest;
use crate::policy::{Policy, SearchBudgets};
use kai_units::Span;

/// Steps per second of a configured budget: about the pace for which KAI's default budgets were chosen.
pub(crate) const STEPS_PER_SECOND: i64 = 2_000;

/// The part of a generator's budget that its second round may take: one in so many.
const SECOND_ROUND: u64 = 4;

/// Steps for a duration; `None` is unlimited.
pub(crate) fn steps(span: Span) -> Option<u64> {
    let micros = u64::try_from(span.0).ok().filter(|micros| *micros > 0)?;
    Some(micros.saturating_mul(STEPS_PER_SECOND.unsigned_abs()) / 1_000_000)
}

/// Remaining budget of one action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionBudget {
    left: Option<u64>,
}

impl ActionBudget {
    pub(crate) fn new(budgets: &SearchBudgets, action: &str) -> Self {
        let span = budgets.action.get(action).or_else(|| budgets.action.get("default"));
        Self { left: span.and_then(|span| steps(*span)) }
    }

    /// Budget of one group: at most what the action has left, at least the configured minimum.
    pub(crate) fn for_group(&self, budgets: &SearchBudgets) -> Option<u64> {
        let most = at_most(self.left, steps(budgets.group_max));
        let least = steps(budgets.group_min).unwrap_or(0);
        most.map(|most| most.max(least))
    }

    /// Whether a group gets less than its configured maximum because the action's budget is nearly spent.
    pub(crate) fn is_reduced(&self, budgets: &SearchBudgets) -> bool {
        let whole = steps(budgets.group_max).unwrap_or(u64::MAX);
        self.left.is_some_and(|left| left < whole)
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn spend(&mut self, steps: u64) {
        self.left = self.left.map(|left| left.saturating_sub(steps));
    }
}

/// Budget of one generator within the budget of a group.
pub(crate) fn for_generator(budgets: &SearchBudgets, name: &str, group: Option<u64>) -> Option<u64> {
    let span = budgets.generator.get(name).or_else(|| budgets.generator.get("default"));
    at_most(group, span.and_then(|span| steps(*span)))
}

/// Steps of a generator before the smallest set is searched; `None` where that search needs GPUs to compare, or where
/// every scenario is simulated.
///
/// The scenarios of a generator place victims and preemptor in queue order. Where queues of victims come first in it, each
/// victim gets its capacity back, whatever the set: thousands of scenarios fail alike. The search for the smallest set
/// places the preemptor first, and needs a few scenarios there. If it fails, the generator continues.
pub(crate) fn first_round(policy: &Policy, request: &PendingRequest) -> Option<u64> {
    let is_compared = !policy.literal && request.whole().least_gpus() > 0;
    is_compared.then(|| policy.first_round_steps.saturating_mul(request.pods.len() as u64))
}

/// Steps of the second round of a generator: the cheapest nodes and its first scenarios have failed by then, so that a
/// part of its budget is left to it.
pub(crate) fn of_second_round(steps: u64) -> u64 {
    steps / SECOND_ROUND
}

fn at_most(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (some, None) | (None, some) => some,
    }
}
