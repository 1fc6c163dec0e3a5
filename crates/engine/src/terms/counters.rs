//! Counts of pods per term and domain.
//!
//! Adding and removing a pod are exact inverses: a domain without pods has no cell.

use super::TermIdx;
use crate::ids::{Idx, IndexVec};
use rustc_hash::FxHashMap;

/// Counters of all terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    cells: FxHashMap<(TermIdx, u32), Cell>,
    totals: IndexVec<TermIdx, Totals>,
}

/// One term in one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// Pods that match the term.
    pub(super) matching: u32,
    /// Pods that carry it as required anti-affinity.
    pub(super) anti: u32,
    /// Pods that carry it as a preference.
    pub(super) preferring: u32,
    /// Their weights.
    pub(super) weight: i64,
}

/// One term over all domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Pods that match the term.
    pub(super) matching: u32,
    /// Pods that carry it as required anti-affinity.
    pub(super) anti: u32,
    /// Pods that carry it as a preference.
    pub(super) preferring: u32,
}

/// How a pod relates to a term.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It matches.
    Matching,
    /// It carries it as required anti-affinity.
    Anti,
    /// It carries it as a preference of this weight.
    Preferring(i32),
}

/// Whether to add or to subtract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A pod was placed.
    In,
    /// A pod was removed.
    Out,
}

impl Step {
    /// A count after the step.
    #[inline]
    pub(super) fn apply(self, count: u32) -> u32 {
        match self {
            Self::In => count + 1,
            Self::Out => count.checked_sub(1).expect("a pod is counted out only after it was counted in"),
        }
    }
    fn apply_weight(self, sum: i64, weight: i32) -> i64 {
        match self {
            Self::In => sum + i64::from(weight),
            Self::Out => sum - i64::from(weight),
        }
    }
}

impl Counters {
    /// Adds a term.
    pub(super) fn add_term(&mut self) {
        self.totals.push(Totals::default());
    }

    /// Counts one pod in one role.
    pub(super) fn count(&mut self, term: TermIdx, domain: u32, role: Role, step: Step) {
        let totals = &mut self.totals[term];
        let cell = self.cells.entry((term, domain)).or_default();
        match role {
            Role::Matching => {
                totals.matching = step.apply(totals.matching);
                cell.matching = step.apply(cell.matching);
            }
            Role::Anti => {
                totals.anti = step.apply(totals.anti);
                cell.anti = step.apply(cell.anti);
            }
            Role::Preferring(weight) => {
                totals.preferring = step.apply(totals.preferring);
                cell.preferring = step.apply(cell.preferring);
                cell.weight = step.apply_weight(cell.weight, weight);
            }
        }
        if step == Step::Out && *cell == Cell::default() {
            self.cells.remove(&(term, domain));
        }
    }

    /// One term in one domain.
    #[inline]
    pub(super) fn cell(&self, term: TermIdx, domain: u32) -> Cell {
        self.cells.get(&(term, domain)).copied().unwrap_or_default()
    }

    /// One term over all domains.
    #[inline]
    pub(super) fn totals(&self, term: TermIdx) -> Totals {
        self.totals[term]
    }

    /// Resets all counters.
    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.totals.iter_mut().for_each(|totals| *totals = Totals::default());
    }
}

/// The domain number of a label value or a node.
#[inline]
pub(super) fn domain_of(index: impl Idx) -> u32 {
    index.index() as u32
}
