//! Takes over a changed configuration between two cycles. An invalid one is reported, and the last good one stays.

use super::SchedulerLoop;
use crate::configuration::{self, Configuration};
use crate::cycle_trigger::Impact;
use crate::usage::feed;
use k8s_openapi::api::core::v1::ConfigMap;
use kai_runtime::event::{Event, EventType, Regarding};
use std::collections::BTreeMap;
use std::error::Error as _;

const REASON: &str = "InvalidConfiguration";
/// What `/readyz?verbose` and the log name it.
const PROBLEM: &str = "scheduler configuration";

impl SchedulerLoop {
    /// Handles a state of the ConfigMap with the configuration; `None` if there is none.
    pub(super) fn handle_configuration(&mut self, map: Option<&ConfigMap>) -> Impact {
        self.awaits_configuration = false;
        let Some(map) = map else { return Impact::None };
        let Some(text) = map.data.as_ref().and_then(|data| data.get(configuration::KEY)) else {
            self.refuse_configuration(map, &format!("it has no key `{}`", configuration::KEY));
            return Impact::None;
        };
        match configuration::read(text, &self.plugins) {
            Ok(read) => {
                self.metrics.scheduler_loop.configuration_invalid.set(0);
                self.health.set_problem(PROBLEM, None);
                self.take_over(read)
            }
            Err(error) => {
                let cause = error.source().map(|cause| format!(": {cause}"));
                self.refuse_configuration(map, &format!("{error}{}", cause.unwrap_or_default()));
                Impact::None
            }
        }
    }

    fn take_over(&mut self, read: Configuration) -> Impact {
        let Configuration { config, usage } = read;
        if config == self.options.config {
            return Impact::None;
        }
        let other_usage = config.usage_db != self.options.config.usage_db;
        for warning in &config.warnings {
            tracing::warn!(warning, "invalid configuration");
        }
        self.options.config = config;
        self.resolve_policies();
        // Minimum run times have other defaults.
        self.queues_changed();
        let policy = self.policy();
        for warning in &policy.warnings {
            tracing::warn!(warning, "invalid configuration");
        }
        let plugins = self.options.config.engine.plugins.iter().map(|plugin| plugin.name.as_str());
        self.metrics.set_configuration(&policy.budgets, plugins);
        if other_usage {
            self.usage_ledger = feed::ledger(usage.as_ref());
            self.usage_deadline = None;
            if usage.is_none() {
                self.cache.store_mut().set_usage(BTreeMap::new());
            }
            self.usage_feed.replace(usage.clone(), self.usage_ledger.clone());
            self.options.usage = usage;
        }
        // The model keeps orders of nodes and groups that the old configuration decided.
        self.rebuild_cluster();
        self.metrics.scheduler_loop.configurations.inc();
        tracing::info!("a changed configuration is in effect");
        Impact::FreesCapacity
    }

    fn refuse_configuration(&self, map: &ConfigMap, why: &str) {
        tracing::error!(why, "the changed configuration is invalid; the last good one stays in effect");
        self.metrics.scheduler_loop.configuration_invalid.set(1);
        let message = format!("the configuration is invalid, so the last good one stays in effect: {why}");
        self.health.set_problem(PROBLEM, Some(message.clone()));
        self.recorder.record(&Event {
            regarding: Regarding::of(map),
            type_: EventType::Warning,
            reason: REASON,
            message,
            annotations: BTreeMap::new(),
        });
    }
}
