//! Scheduling configuration: actions, plugins with their arguments, process parameters.

mod resolved;

pub use resolved::{Action, Policy};

use kai_units::Span;
use std::collections::BTreeMap;

/// The scheduler configuration, as KAI's file gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Action names in order.
    pub actions: Vec<String>,
    /// Plugins in order, all tiers concatenated.
    pub plugins: Vec<PluginConfig>,
    /// Maximum of groups per leaf queue that an action attempts.
    pub queue_depth: BTreeMap<String, usize>,
    /// Budgets of the victim search.
    pub budgets: SearchBudgets,
    /// Depth of the victim search.
    pub search: SearchDepth,
    /// Whether evictions respect disruption budgets.
    pub disruption_budgets: DisruptionBudgets,
}

/// Whether evictions respect disruption budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisruptionBudgets {
    /// A scenario that would violate one is invalid.
    #[default]
    Honour,
    /// Budgets are ignored, as in KAI.
    Ignore,
}

/// Depth of the victim search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchDepth {
    /// After the configured generators, the smallest set of victims is searched.
    #[default]
    Full,
    /// The configured generators and nothing else, as in KAI.
    Kai,
}

/// One configured plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// Plugin name.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, String>,
    /// Disabled parts.
    pub disabled: Vec<PluginPart>,
}

/// A part of a plugin that the configuration can disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PluginPart {
    /// `disableJobOrder`.
    GroupOrder,
    /// `disableTaskOrder`.
    PodOrder,
    /// `disablePreemptable`.
    Preempt,
    /// `disableReclaimable`.
    Reclaim,
    /// `disableQueueOrder`.
    QueueOrder,
    /// `disablePredicate`.
    Filter,
    /// `disableNodeOrder`.
    NodeOrder,
}

/// Budgets of the victim search; 0 is unlimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchBudgets {
    /// Per action; the key `default` applies to actions that are not listed.
    pub action: BTreeMap<String, Span>,
    /// Maximum for one group.
    pub group_max: Span,
    /// Minimum for one group, even when the action's budget is spent.
    pub group_min: Span,
    /// Per scenario generator; the key `default` applies to generators that are not listed.
    pub generator: BTreeMap<String, Span>,
}

/// Process parameters that change decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Only nodes with a worker role are used, and roles separate CPU and GPU pods.
    pub restrict_nodes: bool,
    /// Maximum of victim groups in a consolidation; `None` is unlimited.
    pub max_consolidation_victims: Option<u32>,
    /// Skip groups with the scheduling signature of a failed one.
    pub use_signatures: bool,
    /// Victims that are moved do not count as reclaimed.
    pub allow_consolidating_reclaim: bool,
    /// Grace period of gangs below their minimum; negative is unlimited.
    pub staleness_grace: Span,
    /// Time after its deletion timestamp from which a running pod counts as stuck.
    pub stuck_threshold: Span,
    /// Simulate CSI storage.
    pub csi_storage: bool,
    /// The cluster serves device claims.
    pub device_claims: bool,
    /// Name of the node pool, for messages.
    pub node_pool: String,
}

impl Default for SearchBudgets {
    fn default() -> Self {
        let named = |pairs: &[(&str, i64)]| {
            pairs.iter().map(|(n, s)| ((*n).to_owned(), Span::from_secs(*s))).collect()
        };
        Self {
            action: named(&[("default", 300)]),
            group_max: Span::from_secs(240),
            group_min: Span::from_secs(0),
            generator: named(&[("default", 120), ("NodeLocalGreedy", 30), ("MultiNodeGang", 120)]),
        }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            restrict_nodes: false,
            max_consolidation_victims: Some(16),
            use_signatures: true,
            allow_consolidating_reclaim: true,
            staleness_grace: Span::from_secs(60),
            stuck_threshold: Span::from_secs(120),
            csi_storage: false,
            device_claims: false,
            node_pool: "default".to_owned(),
        }
    }
}

/// KAI's built-in action list.
pub const DEFAULT_ACTIONS: [&str; 5] =
    ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"];

/// KAI's built-in plugin list, in order.
pub const DEFAULT_PLUGINS: [&str; 20] = [
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
];

impl Default for Config {
    fn default() -> Self {
        Self {
            actions: DEFAULT_ACTIONS.map(str::to_owned).to_vec(),
            plugins: DEFAULT_PLUGINS
                .iter()
                .map(|name| PluginConfig { name: (*name).to_owned(), ..PluginConfig::default() })
                .collect(),
            queue_depth: BTreeMap::new(),
            budgets: SearchBudgets::default(),
            search: SearchDepth::default(),
            disruption_budgets: DisruptionBudgets::default(),
        }
    }
}
