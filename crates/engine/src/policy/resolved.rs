//! Resolved configuration: actions and plugins by value.

use super::{Config, DEFAULT_ACTIONS, DisruptionBudgets, Params, SearchBudgets, SearchDepth};
use crate::outcome::Cause;
use crate::plugin::{Generator, PluginSet, Registry};
use std::collections::BTreeMap;

/// See [`Policy::first_round_steps`]: more than searches of a single node take, and a few milliseconds.
const FIRST_ROUND_STEPS: u64 = 500;

/// A resolved policy.
#[derive(Clone)]
pub struct Policy {
    /// Actions in order.
    pub actions: Vec<Action>,
    /// What the plugins added.
    pub registry: Registry,
    /// Maximum of groups per leaf queue that an action attempts.
    pub queue_depth: BTreeMap<String, usize>,
    /// Budgets of the victim search.
    pub budgets: SearchBudgets,
    /// Depth of the victim search.
    pub search: SearchDepth,
    /// Steps per pod that a generator takes before the smallest set of victims is searched; the others follow where that
    /// fails.
    pub first_round_steps: u64,
    /// Whether evictions respect disruption budgets.
    pub disruption_budgets: DisruptionBudgets,
    /// Process parameters.
    pub params: Params,
    /// Reference mode: scores every node for every pod, without memos, and simulates every scenario. Tests compare
    /// indices, memos and bounds with it.
    pub literal: bool,
    /// Warnings about invalid configuration.
    pub warnings: Vec<String>,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Places pending groups on free capacity.
    Allocate,
    /// Evicts running groups for pending ones.
    Evict(Cause),
    /// The action of a plugin.
    Custom(&'static str),
}

impl Action {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Evict(cause) => cause.action(),
            Self::Custom(name) => name,
        }
    }
}

impl Policy {
    /// Resolves a configuration. Unknown plugins and invalid arguments become warnings. With an unknown action no action
    /// runs, as in KAI: the file was written for another set of actions.
    pub fn resolve(config: &Config, params: &Params, plugins: &PluginSet) -> Self {
        let (registry, mut warnings) = plugins.resolve(&config.plugins);
        let (mut actions, mut unknown) = (Vec::new(), None);
        for name in &config.actions {
            match name.as_str() {
                "allocate" => actions.push(Action::Allocate),
                "consolidation" => actions.push(Action::Evict(Cause::Consolidation)),
                "reclaim" => actions.push(Action::Evict(Cause::Reclaim)),
                "preempt" => actions.push(Action::Evict(Cause::Preempt)),
                "stalegangeviction" => actions.push(Action::Evict(Cause::Stale)),
                name => match registry.actions.iter().find(|action| action.name() == name) {
                    Some(custom) => actions.push(Action::Custom(custom.name())),
                    None => unknown = Some(name),
                },
            }
        }
        if let Some(name) = unknown {
            warnings.push(format!("the action `{name}` is unknown, so no action runs"));
            actions.clear();
        }
        warnings.extend(unknown_names(config, &registry));
        Self {
            actions,
            registry,
            queue_depth: config.queue_depth.clone(),
            budgets: config.budgets.clone(),
            search: config.search,
            first_round_steps: FIRST_ROUND_STEPS,
            disruption_budgets: config.disruption_budgets,
            params: params.clone(),
            literal: false,
            warnings,
        }
    }
}

/// Control of plugins by the process that plans, which has a clock.
impl Policy {
    /// Whether cycles call code of plugins that are not built in.
    pub fn has_callbacks(&self) -> bool {
        !self.registry.guards.is_empty()
    }

    /// The plugin whose callback is running, and the number of the call.
    pub fn running_callback(&self) -> Option<(&str, u64)> {
        let (id, call) = self.registry.running.current()?;
        let guard = self.registry.guards.iter().find(|guard| guard.id == id)?;
        Some((&guard.plugin, call))
    }

    /// The same policy with the built-in rules alone.
    #[must_use]
    pub fn without_callbacks(&self) -> Self {
        let mut policy = self.clone();
        policy.actions.retain(|action| !matches!(action, Action::Custom(_)));
        policy.registry = policy.registry.built_in_only();
        policy
    }

    /// Stops calling a plugin, from its next callback on: its filters refuse all pods with this reason, and its other
    /// entries have no effect. Clones of the policy share this.
    pub fn cut_off(&self, plugin: &str, why: &str) {
        for guard in self.registry.guards.iter().filter(|guard| &*guard.plugin == plugin) {
            guard.cut_off(why);
        }
    }
}

/// A warning for each budget and queue depth of an action or generator that does not exist.
fn unknown_names(config: &Config, registry: &Registry) -> Vec<String> {
    // Custom actions have no queue depth and no budget.
    let is_action = |name: &str| DEFAULT_ACTIONS.contains(&name);
    let is_generator = |name: &str| {
        let built_in = [Generator::NodeLocalGreedy, Generator::MultiNodeGang];
        registry.generators.iter().chain(&built_in).any(|generator| generator.name() == name)
    };
    let unknown = |field: &str, name: &str, kind: &str| {
        format!("`{field}.{name}` has no effect: there is no {kind} of that name")
    };
    let depths = config.queue_depth.keys().filter(|name| !is_action(name));
    let of_actions = config.budgets.action.keys().filter(|name| *name != "default" && !is_action(name));
    let of_generators =
        config.budgets.generator.keys().filter(|name| *name != "default" && !is_generator(name));
    depths
        .map(|name| unknown("queueDepthPerAction", name, "action"))
        .chain(of_actions.map(|name| unknown("maxActionSearchDuration", name, "action")))
        .chain(of_generators.map(|name| unknown("maxGeneratorSearchDuration", name, "generator")))
        .collect()
}
