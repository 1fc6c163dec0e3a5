//! A configuration made ready: actions and plugins looked up by name.

use super::{Config, DisruptionBudgets, Params, SearchBudgets, SearchDepth};
use crate::outcome::Cause;
use crate::plugin::{PluginSet, Registry};
use std::collections::BTreeMap;

/// A resolved policy.
#[derive(Clone)]
pub struct Policy {
    /// Actions in order.
    pub actions: Vec<Action>,
    /// What the plugins added.
    pub registry: Registry,
    /// Most groups of one leaf queue that an action looks at.
    pub queue_depth: BTreeMap<String, usize>,
    /// How long the victim search may take.
    pub budgets: SearchBudgets,
    /// How far the victim search goes.
    pub search: SearchDepth,
    /// Whether evictions respect disruption budgets.
    pub disruption_budgets: DisruptionBudgets,
    /// Process parameters.
    pub params: Params,
    /// Score every node for every pod, remember nothing and try every scenario: the reading that indices, memories and
    /// bounds are held to.
    pub literal: bool,
    /// What was odd about the configuration, in words.
    pub warnings: Vec<String>,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Places pending groups on free room.
    Allocate,
    /// Evicts running groups for waiting ones.
    Evict(Cause),
}

impl Action {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Evict(cause) => cause.action(),
        }
    }
}

impl Policy {
    /// Resolves a configuration. Unknown plugins and unreadable arguments become warnings.
    pub fn resolve(config: &Config, params: &Params, plugins: &PluginSet) -> Self {
        let (registry, mut warnings) = plugins.resolve(&config.plugins);
        let mut actions = Vec::new();
        for name in &config.actions {
            match name.as_str() {
                "allocate" => actions.push(Action::Allocate),
                "consolidation" => actions.push(Action::Evict(Cause::Consolidation)),
                "reclaim" => actions.push(Action::Evict(Cause::Reclaim)),
                "preempt" => actions.push(Action::Evict(Cause::Preempt)),
                "stalegangeviction" => actions.push(Action::Evict(Cause::Stale)),
                unknown => warnings.push(format!("action `{unknown}` is not known and is skipped")),
            }
        }
        Self {
            actions,
            registry,
            queue_depth: config.queue_depth.clone(),
            budgets: config.budgets.clone(),
            search: config.search,
            disruption_budgets: config.disruption_budgets,
            params: params.clone(),
            literal: false,
            warnings,
        }
    }
}
