//! What pods do besides being scheduled: when they are submitted, how long they run, whether they come back.

use kai_engine::input::Key;
use kai_units::Span;
use std::collections::BTreeMap;

/// The script of a simulation. Pods and groups that are not in it are there from the beginning, and run for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// What pods do.
    pub pods: BTreeMap<Key, PodScript>,
    /// Groups that are submitted later, so long after the beginning.
    pub groups: BTreeMap<Key, Span>,
}

/// What a pod does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodScript {
    /// How long it runs until it has done its work; `None` is for ever. An eviction makes it begin anew.
    pub runs_for: Option<Span>,
    /// How long after the beginning it is submitted; `None` is from the beginning.
    pub submitted_after: Option<Span>,
    /// What becomes of it when it is evicted.
    pub after_eviction: AfterEviction,
}

/// What becomes of a pod that is evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterEviction {
    /// Its owner makes it again: the same name, pending.
    #[default]
    ComesBack,
    /// Nobody makes it again.
    StaysAway,
}
