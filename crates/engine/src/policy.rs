//! How to decide: actions in order, plugins with their arguments, and the process parameters.

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
    /// Most groups of one leaf queue that an action looks at.
    pub queue_depth: BTreeMap<String, usize>,
    /// How long the victim search may take.
    pub budgets: SearchBudgets,
    /// How far the victim search goes.
    pub search: SearchDepth,
    /// Whether evictions respect disruption budgets.
    pub disruption_budgets: DisruptionBudgets,
}

/// Whether evictions respect disruption budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisruptionBudgets {
    /// A plan that would break one is not valid.
    #[default]
    Honour,
    /// They are not looked at, as in KAI.
    Ignore,
}

/// How far the victim search goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchDepth {
    /// After the configured generators, the smallest set of victims is looked for.
    #[default]
    Full,
    /// The configured generators and nothing else, as in KAI.
    Kai,
}

/// One configured plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, String>,
    /// Parts of it that are switched off.
    pub disabled: Vec<PluginPart>,
}

/// A part of a plugin that the configuration can switch off.
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
    /// Per action; the key `default` serves actions that are not named.
    pub action: BTreeMap<String, Span>,
    /// Most for one group.
    pub group_max: Span,
    /// Least for one group, even when the action's budget is spent.
    pub group_min: Span,
    /// Per scenario generator; the key `default` serves generators that are not named.
    pub generator: BTreeMap<String, Span>,
}

/// Process parameters that change decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Only nodes with a worker role take part, and roles separate CPU and GPU pods.
    pub restrict_nodes: bool,
    /// Most victim groups of a consolidation; `None` is unlimited.
    pub max_consolidation_victims: Option<u32>,
    /// Skip groups that look like one that failed.
    pub use_signatures: bool,
    /// Victims that get another place do not count as reclaimed.
    pub allow_consolidating_reclaim: bool,
    /// Grace for gangs below their minimum; negative is for ever.
    pub staleness_grace: Span,
    /// How long after its deletion time a running pod counts as stuck.
    pub stuck_threshold: Span,
    /// Simulate CSI storage.
    pub csi_storage: bool,
    /// Device claims are understood by the cluster.
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
