//! Watching a cycle from outside: how long its parts take is measured there, since the engine knows no clock.

use crate::cluster::Cluster;

/// Watches a cycle from outside.
pub trait Observer {
    /// The cluster is settled and shares are divided.
    fn opened(&mut self) {}
    /// An action begins.
    fn action_begins(&mut self, _name: &'static str) {}
    /// An action ended.
    fn action_ended(&mut self, _name: &'static str) {}
    /// A generator begins to propose victims for a group.
    fn generator_begins(&mut self) {}
    /// A generator has proposed what it had.
    fn generator_ended(&mut self, _attempt: &Attempt<'_>) {}
    /// A group's turn in an action that may evict is over.
    fn search_ended(&mut self, _search: &Searched) {}
    /// All actions ended; the cluster shows what they did, before it is put back.
    fn cycle_ended(&mut self, _cluster: &Cluster) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// How a search for victims, or a part of it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// Victims were found.
    Solved,
    /// The budget ran out.
    DeadlineExhausted,
    /// Nothing that was proposed works.
    GeneratorsExhausted,
    /// Nobody proposes anything.
    NoGenerator,
    /// There was no point in searching.
    NotAttempted,
    /// What works is against the rules.
    ValidatorRejected,
    /// Victims were found, and the group still does not get what it needs.
    Unsolved,
}

impl SearchResult {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Solved => "solved",
            Self::DeadlineExhausted => "deadline_exhausted",
            Self::GeneratorsExhausted => "generators_exhausted",
            Self::NoGenerator => "no_generator",
            Self::NotAttempted => "not_attempted",
            Self::ValidatorRejected => "validator_rejected",
            Self::Unsolved => "unsolved",
        }
    }
}

/// What one generator did for one group.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The action.
    pub action: &'static str,
    /// The generator.
    pub generator: &'a str,
    /// How it ended.
    pub result: SearchResult,
    /// What became of the scenarios.
    pub scenarios: Scenarios,
}

/// How many scenarios there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scenarios {
    /// Proposed.
    pub emitted: u32,
    /// Played through.
    pub simulated: u32,
    /// Possible, but against the rules.
    pub refused: u32,
    /// Proposed before, in vain.
    pub duplicate: u32,
}

/// A group's turn in an action that may evict.
#[derive(Clone, Copy, Debug)]
pub struct Searched {
    /// The action.
    pub action: &'static str,
    /// How it ended.
    pub result: SearchResult,
    /// The group had less than its budget, because others had used up that of the action.
    pub reduced_budget: bool,
    /// It was clear without playing a scenario that all victims together are too few.
    pub filtered: bool,
    /// The budget of the action is used up.
    pub action_exhausted: bool,
}
