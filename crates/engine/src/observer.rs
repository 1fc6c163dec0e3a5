//! Callbacks for the phases of a cycle. Observers measure durations, since the engine reads no clock.

use crate::cluster::Cluster;

/// Receives the phases of a cycle.
pub trait Observer {
    /// Derived values are refreshed and fair shares are computed.
    fn opened(&mut self) {}
    /// A plugin's session hook begins.
    fn hook_begins(&mut self) {}
    /// A plugin's session hook ended.
    fn hook_ended(&mut self, _plugin: &str, _moment: Moment) {}
    /// An action begins.
    fn action_begins(&mut self, _name: &'static str) {}
    /// An action ended.
    fn action_ended(&mut self, _name: &'static str) {}
    /// A generator begins to propose victims for a group.
    fn generator_begins(&mut self) {}
    /// A generator ended.
    fn generator_ended(&mut self, _attempt: &Attempt<'_>) {}
    /// A group's search in an evicting action ended.
    fn search_ended(&mut self, _search: &Searched) {}
    /// All actions ended; the cluster shows their result, before the rollback.
    fn cycle_ended(&mut self, _cluster: &Cluster) {}
}

/// When a session hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The cycle begins.
    Open,
    /// The cycle ends.
    Close,
}

/// Ignores all callbacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// Result of a victim search, or of one generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// Victims were found.
    Solved,
    /// The budget ran out.
    DeadlineExhausted,
    /// No scenario was feasible.
    GeneratorsExhausted,
    /// No generator is configured.
    NoGenerator,
    /// The search was skipped.
    NotAttempted,
    /// Feasible scenarios were invalid.
    ValidatorRejected,
    /// Victims were found, but the group was not placed.
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
    /// Counts of scenarios.
    pub scenarios: Scenarios,
}

/// Counts of scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scenarios {
    /// Proposed.
    pub emitted: u32,
    /// Simulated.
    pub simulated: u32,
    /// Feasible, but invalid.
    pub refused: u32,
    /// Repeats of a scenario that failed.
    pub duplicate: u32,
}

/// A group's search in an evicting action.
#[derive(Clone, Copy, Debug)]
pub struct Searched {
    /// The action.
    pub action: &'static str,
    /// How it ended.
    pub result: SearchResult,
    /// The group's budget was reduced, because the action's budget was nearly spent.
    pub reduced_budget: bool,
    /// All victims together are insufficient, known without a simulation.
    pub filtered: bool,
    /// The action's budget is spent.
    pub action_exhausted: bool,
}
