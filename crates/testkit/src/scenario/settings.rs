//! Parses the policy of a scenario: changes to KAI's default configuration.

use super::syntax::{Entry, pair, span};
use anyhow::{Context, Result, bail};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params, PluginConfig, PluginPart, Policy, SearchDepth};

/// Reads `+PLUGIN`, `-PLUGIN`, `PLUGIN.ARGUMENT=VALUE`, `PLUGIN.disable=PART`, `depth=2`, `restrict`, `csi`,
/// `actions=allocate+reclaim`, `movable=2`, `search=kai`, `groupmax=1s`, `grace=1m`, `strictreclaim`.
pub(super) fn policy(entries: &[Entry]) -> Result<Policy> {
    let mut config = Config::default();
    let mut params = Params { device_claims: true, ..Params::default() };
    for word in entries.iter().flat_map(|entry| &entry.words) {
        if let Some(name) = word.strip_prefix('+') {
            config.plugins.push(PluginConfig { name: name.to_owned(), ..PluginConfig::default() });
            continue;
        }
        if let Some(name) = word.strip_prefix('-') {
            config.plugins.retain(|plugin| plugin.name != name);
            continue;
        }
        let (key, value) = pair(word);
        match key.split_once('.') {
            Some((plugin, argument)) => {
                let plugin = config.plugins.iter_mut().find(|p| p.name == plugin);
                let plugin = plugin.with_context(|| format!("`{word}` names no configured plugin"))?;
                if argument == "disable" {
                    plugin.disabled.push(part(value)?);
                } else {
                    plugin.arguments.insert(argument.to_owned(), value.to_owned());
                }
            }
            None => match key {
                "depth" => drop(config.queue_depth.insert("allocate".to_owned(), value.parse()?)),
                "restrict" => params.restrict_nodes = true,
                "csi" => params.csi_storage = true,
                "noclaims" => params.device_claims = false,
                "actions" => config.actions = value.split('+').map(str::to_owned).collect(),
                "movable" => {
                    params.max_consolidation_victims =
                        if value == "all" { None } else { Some(value.parse()?) };
                }
                "search" => {
                    config.search = match value {
                        "full" => SearchDepth::Full,
                        "kai" => SearchDepth::Kai,
                        _ => bail!("`{value}` is not a search depth"),
                    };
                }
                "groupmax" => config.budgets.group_max = span(value)?,
                "grace" => params.staleness_grace = span(value)?,
                "strictreclaim" => params.allow_consolidating_reclaim = false,
                _ => bail!("a policy has no `{word}`"),
            },
        }
    }
    Ok(Policy::resolve(&config, &params, &PluginSet::builtin()))
}

fn part(text: &str) -> Result<PluginPart> {
    Ok(match text {
        "group-order" => PluginPart::GroupOrder,
        "pod-order" => PluginPart::PodOrder,
        "queue-order" => PluginPart::QueueOrder,
        "filter" => PluginPart::Filter,
        "node-order" => PluginPart::NodeOrder,
        _ => bail!("a plugin has no part `{text}`"),
    })
}
