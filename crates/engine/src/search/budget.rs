//! Limits the work of a search.
//!
//! Budgets are configured as durations. They are counted in steps instead of time, so that exhaustion is deterministic
//! and replays: a step is one node evaluation or one plan edit.

use crate::policy::SearchBudgets;
use kai_units::Span;

/// Steps per second of a configured budget: about the pace for which KAI's default budgets were chosen.
pub(crate) const STEPS_PER_SECOND: i64 = 2_000;

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

fn at_most(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (some, None) | (None, some) => some,
    }
}
