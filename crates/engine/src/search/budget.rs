//! How much work a search may do.
//!
//! Budgets are configured as durations. So that giving up is part of what replays, they count steps instead of time: a
//! step is one evaluation of a node or one edit of a pod, and a second is so many of them, on every machine.

use crate::policy::SearchBudgets;
use kai_units::Span;

/// Steps that a second of a configured budget stands for: about the pace that the budgets in the field were written
/// for.
pub(crate) const STEPS_PER_SECOND: i64 = 2_000;

/// The steps that a span stands for; none for no limit.
pub(crate) fn steps(span: Span) -> Option<u64> {
    let micros = u64::try_from(span.0).ok().filter(|micros| *micros > 0)?;
    Some(micros.saturating_mul(STEPS_PER_SECOND.unsigned_abs()) / 1_000_000)
}

/// What one action has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionBudget {
    left: Option<u64>,
}

impl ActionBudget {
    pub(crate) fn new(budgets: &SearchBudgets, action: &str) -> Self {
        let span = budgets.action.get(action).or_else(|| budgets.action.get("default"));
        Self { left: span.and_then(|span| steps(*span)) }
    }

    /// What one group may spend: no more than the action has left, but at least the configured minimum.
    pub(crate) fn for_group(&self, budgets: &SearchBudgets) -> Option<u64> {
        let most = at_most(self.left, steps(budgets.group_max));
        let least = steps(budgets.group_min).unwrap_or(0);
        most.map(|most| most.max(least))
    }

    /// Whether a group gets less than its budget, because others used up that of the action.
    pub(crate) fn is_reduced(&self, budgets: &SearchBudgets) -> bool {
        let whole = steps(budgets.group_max).unwrap_or(u64::MAX);
        self.left.is_some_and(|left| left < whole)
    }

    /// Whether nothing is left.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }

    /// Counts what a group spent.
    pub(crate) fn spend(&mut self, steps: u64) {
        self.left = self.left.map(|left| left.saturating_sub(steps));
    }
}

/// What one generator may spend of a group's budget.
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
