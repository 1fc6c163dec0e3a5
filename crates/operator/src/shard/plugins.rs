//! The plugins and actions of a shard: the built-in ones with the shard's changes, in the order of their priorities.

use kai_api::SchedulingShard;
use kai_api::shard::PlacementStrategy;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const BINPACK: &str = "binpack";
const SPREAD: &str = "spread";

/// Plugins that every shard has, with their priorities.
const PLUGINS: [(&str, i64); 19] = [
    ("predicates", 1900),
    ("proportion", 1800),
    ("priority", 1700),
    ("nodeavailability", 1600),
    ("resourcetype", 1500),
    ("podaffinity", 1400),
    ("elastic", 1300),
    ("kubeflow", 1200),
    ("ray", 1100),
    ("subgrouporder", 1000),
    ("taskorder", 900),
    ("nominatednode", 800),
    ("dynamicresources", 700),
    ("minruntime", 600),
    ("topology", 500),
    ("snapshot", 400),
    ("sg-nodelocalgreedy", 360),
    ("sg-multinodegang", 350),
    ("nodeplacement", 200),
];

const ACTIONS: [(&str, i64); 5] = [
    ("allocate", 500),
    ("consolidation", 400),
    ("reclaim", 300),
    ("preempt", 200),
    ("stalegangeviction", 100),
];

/// A plugin or an action.
#[derive(Clone, Default)]
struct Entry {
    enabled: bool,
    priority: i64,
    arguments: BTreeMap<String, String>,
}

/// The enabled plugins of the only tier.
pub(super) fn plugins(shard: &SchedulingShard) -> Vec<Value> {
    let mut entries = default_plugins(shard);
    for (name, own) in shard.spec.plugins.iter().flatten() {
        let entry = entries.entry(name.clone()).or_insert(Entry { enabled: true, ..Entry::default() });
        entry.enabled = own.enabled.unwrap_or(entry.enabled);
        entry.priority = own.priority.unwrap_or(entry.priority);
        if let Some(arguments) = &own.arguments {
            entry.arguments.clone_from(arguments);
        }
    }
    let ordered = in_order(entries).into_iter();
    ordered
        .map(|(name, entry)| {
            if entry.arguments.is_empty() {
                json!({"name": name})
            } else {
                json!({"name": name, "arguments": entry.arguments})
            }
        })
        .collect()
}

/// The names of the enabled actions.
pub(super) fn actions(shard: &SchedulingShard) -> Vec<String> {
    let PlacementStrategy { gpu, cpu } = strategies(shard);
    let spreads = [gpu, cpu].iter().any(|strategy| strategy.as_deref() == Some(SPREAD));
    let built_in = ACTIONS.into_iter().map(|(name, priority)| {
        // Consolidation would undo what spreading does.
        let enabled = name != "consolidation" || !spreads;
        (name.to_owned(), Entry { enabled, priority, ..Entry::default() })
    });
    let mut entries: BTreeMap<String, Entry> = built_in.collect();
    for (name, own) in shard.spec.actions.iter().flatten() {
        let entry = entries.entry(name.clone()).or_insert(Entry { enabled: true, ..Entry::default() });
        entry.enabled = own.enabled.unwrap_or(entry.enabled);
        entry.priority = own.priority.unwrap_or(entry.priority);
    }
    in_order(entries).into_iter().map(|(name, _)| name).collect()
}

fn default_plugins(shard: &SchedulingShard) -> BTreeMap<String, Entry> {
    let built_in = PLUGINS.into_iter();
    let mut entries: BTreeMap<String, Entry> = built_in
        .map(|(name, priority)| (name.to_owned(), Entry { enabled: true, priority, ..Entry::default() }))
        .collect();
    let PlacementStrategy { gpu, cpu } = strategies(shard);
    let packs = gpu.as_deref() == Some(BINPACK);
    for (name, priority, enabled) in
        [("gpupack", 300, packs), ("gpuspread", 300, !packs), ("gpusharingorder", 100, packs)]
    {
        entries.insert(name.to_owned(), Entry { enabled, priority, ..Entry::default() });
    }
    let mut argument = |plugin: &str, name: &str, value: Option<String>| {
        if let (Some(entry), Some(value)) = (entries.get_mut(plugin), value) {
            entry.arguments.insert(name.to_owned(), value);
        }
    };
    argument("nodeplacement", "gpu", gpu);
    argument("nodeplacement", "cpu", cpu);
    argument("proportion", "kValue", shard.spec.k_value.map(|value| value.to_string()));
    let runtimes = shard.spec.min_runtime.clone().unwrap_or_default();
    argument("minruntime", "defaultPreemptMinRuntime", runtimes.preempt_min_runtime);
    argument("minruntime", "defaultReclaimMinRuntime", runtimes.reclaim_min_runtime);
    entries
}

/// The placement strategies, `binpack` where none is set.
fn strategies(shard: &SchedulingShard) -> PlacementStrategy {
    let own = shard.spec.placement_strategy.clone().unwrap_or_default();
    let or_default = |strategy: Option<String>| Some(strategy.unwrap_or_else(|| BINPACK.to_owned()));
    PlacementStrategy { gpu: or_default(own.gpu), cpu: or_default(own.cpu) }
}

/// Enabled entries by priority, highest first, then by name.
fn in_order(entries: BTreeMap<String, Entry>) -> Vec<(String, Entry)> {
    let mut enabled: Vec<_> = entries.into_iter().filter(|(_, entry)| entry.enabled).collect();
    enabled.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.priority));
    enabled
}
