//! The script of a simulation: when pods are submitted, how long they run, and what follows an eviction.

use kai_engine::input::Key;
use kai_units::Span;
use std::collections::BTreeMap;

/// Pods and groups that are not listed exist from the start and never complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub pods: BTreeMap<Key, PodScript>,
    /// Groups that are submitted later, by the time after the start.
    pub groups: BTreeMap<Key, Span>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodScript {
    /// Run time until completion; `None` is unlimited. It starts again after an eviction.
    pub runs_for: Option<Span>,
    /// Time of submission after the start; `None` exists from the start.
    pub submitted_after: Option<Span>,
    pub after_eviction: AfterEviction,
}

/// What follows the eviction of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterEviction {
    /// Its controller creates a pending pod of the same name.
    #[default]
    Recreated,
    Deleted,
}
