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
    let config = config_file::read(text, plugins)?;
    let usage = config.usage_db.as_ref().map(Source::read).transpose()?;
    Ok(Configuration { config, usage })
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
