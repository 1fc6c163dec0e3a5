//! The scheduler's configuration, read from text, and the ConfigMap from which changes are taken over while it runs.
//!
//! A mounted file would change up to a minute after the ConfigMap, so the ConfigMap itself is watched. The scheduler may read
//! ConfigMaps anyway, since pods refer to them.

use crate::event_queue::{EventQueue, SchedulerEvent};
use crate::usage::{self, Source};
use k8s_openapi::api::core::v1::ConfigMap;
use kai_cache::config_file::{self, SchedulerConfig};
use kai_engine::plugin::PluginSet;
use kai_runtime::kind::{CONFIG_MAP, Key};
use kai_runtime::url::query_value;
use kai_runtime::watch::{self, WatchEvent};
use kai_runtime::{Process, connect};
use serde_json::json;
use std::sync::Arc;

/// The key of the configuration in the ConfigMap.
pub const KEY: &str = "config.yaml";

/// A configuration, with the source of historical usage that it names.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub config: SchedulerConfig,
    pub usage: Option<Source>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] config_file::ConfigError),
    #[error(transparent)]
    Usage(#[from] usage::ConfigError),
    #[error(transparent)]
    Connection(#[from] connect::Error),
}

/// Parses a configuration. Must be called in a tokio runtime; sends no request. The plugins may add actions.
pub fn read(text: &str, plugins: &PluginSet) -> Result<Configuration, Error> {
    let mut config = config_file::read(text, plugins)?;
    let usage = usage_source(&mut config)?;
    Ok(Configuration { config, usage })
}

/// The source of historical usage that a configuration names. Where it has a `kValue` and names none, time-based fair share is
/// wanted, and the scheduler keeps a ledger, which needs no database; the configuration then says so.
pub fn usage_source(config: &mut SchedulerConfig) -> Result<Option<Source>, Error> {
    if config.usage_db.is_none() && has_k_value(config) {
        config.usage_db = Some(json!({"clientType": "ledger"}));
    }
    config.usage_db.as_ref().map(Source::read).transpose()
}

/// Whether the configuration itself sets a weight of past usage; the default of the plugin does not count.
fn has_k_value(config: &SchedulerConfig) -> bool {
    let fair_share = config.engine.plugins.iter().filter(|plugin| plugin.name == "proportion");
    let mut weights = fair_share.filter_map(|plugin| plugin.arguments.get("kValue")?.parse::<f64>().ok());
    weights.any(|weight| weight > 0.0)
}

/// Watches the ConfigMap; its states are events of the scheduler loop.
pub(crate) fn start_watch(process: &mut Process, events: &Arc<EventQueue>, map: &Key) {
    let name = query_value(&format!("metadata.name={}", map.name));
    let source = watch::Source {
        query: Some(format!("fieldSelector={name}")),
        ..watch::Source::in_namespace(CONFIG_MAP, &map.namespace)
    };
    let freshness = process.health.watch("the scheduler configuration");
    let (api, events) = (process.api.clone(), Arc::clone(events));
    process.tasks.spawn(async move {
        let handle = |event: WatchEvent<ConfigMap>| match event {
            WatchEvent::Listed(maps, _) => {
                events.push(SchedulerEvent::Configuration(maps.into_iter().next().map(Box::new)));
            }
            WatchEvent::Applied(map) => events.push(SchedulerEvent::Configuration(Some(Box::new(map)))),
            // The configuration in effect stays.
            WatchEvent::Deleted(_) | WatchEvent::Invalid(_) | WatchEvent::Denied => {}
        };
        watch::list_and_watch(&api, &source, &freshness, handle).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_kept_in_a_ledger_where_a_weight_is_set_and_no_database() {
        let tiers = |arguments: &str| {
            format!(
                "tiers:\n- plugins:\n  - name: predicates\n  - name: proportion\n    arguments: {{{arguments}}}\n"
            )
        };
        let prometheus = "usageDBConfig: {clientType: prometheus, connectionString: \"http://prometheus\"}\n";
        let table = [
            (tiers(""), None),
            (String::new(), None),
            (tiers("kValue: \"0\""), None),
            (tiers("kValue: much"), None),
            (tiers("kValue: \"0.5\""), Some("ledger")),
            (tiers("kValue: 2"), Some("ledger")),
            (format!("usageDBConfig: {{}}\n{}", tiers("")), Some("ledger")),
            (format!("{prometheus}{}", tiers("kValue: 2")), Some("prometheus")),
        ];
        for (text, expected) in table {
            let mut config = config_file::read(&text, &PluginSet::builtin()).unwrap();
            // A client of Prometheus needs a runtime.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let source = runtime.block_on(async { usage_source(&mut config) }).unwrap();
            let found =
                source.as_ref().map(|source| if source.ledger().is_some() { "ledger" } else { "prometheus" });
            assert_eq!(found, expected, "{text}");
            assert_eq!(config.usage_db.is_some(), expected.is_some(), "{text}");
        }
    }
}
