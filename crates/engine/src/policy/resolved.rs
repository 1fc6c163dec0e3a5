//! A configuration made ready: actions and plugins looked up by name.

use super::{Config, DEFAULT_ACTIONS, Params};
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
    /// Process parameters.
    pub params: Params,
    /// Score every node for every pod and remember nothing: the reading that indices and memories are held to.
    pub literal: bool,
    /// What was odd about the configuration, in words.
    pub warnings: Vec<String>,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Places pending groups on free room.
    Allocate,
}

impl Action {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
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
                known if DEFAULT_ACTIONS.contains(&known) => {
                    warnings.push(format!("action `{known}` evicts pods and is not run by this version"));
                }
                unknown => warnings.push(format!("action `{unknown}` is not known and is skipped")),
            }
        }
        Self {
            actions,
            registry,
            queue_depth: config.queue_depth.clone(),
            params: params.clone(),
            literal: false,
            warnings,
        }
    }
}
