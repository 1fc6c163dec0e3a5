//! The options of a scheduler process.

use crate::usage::Source;
use kai_api::well_known::name;
use kai_cache::Settings;
use kai_cache::config_file::SchedulerConfig;
use kai_cache::snapshot::SchedulerParams;
use kai_engine::Params;
use kai_engine::policy::DisruptionBudgets;
use kai_runtime::kind::Key;
use kai_units::Span;
use std::time::Duration;

/// How a pod is evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Through the eviction API, which respects disruption budgets.
    #[default]
    Api,
    /// By a delete with the pod's own grace period, regardless of disruption budgets, as KAI does.
    Delete,
    /// By a delete, after the condition `DisruptionTarget` is set on the pod.
    DeleteWithCondition,
}

/// Who posts the Binding of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// The binder, for each pod, on a bind request; as in KAI.
    #[default]
    Requests,
    /// The scheduler, for pods that need nothing else before they are bound. The others get a bind request.
    Direct,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub settings: Settings,
    /// Actions, plugins and their arguments.
    pub config: SchedulerConfig,
    /// The ConfigMap from which a changed configuration is taken over; without one it never changes.
    pub config_map: Option<Key>,
    /// Engine parameters that come from flags.
    pub params: Params,
    /// The least time between two cycles that may evict.
    pub period: Duration,
    pub eviction: Eviction,
    pub binding: Binding,
    /// Messages list the reasons of every node.
    pub detailed_fit_errors: bool,
    /// Conditions of groups that stay pending name the smallest change that would run the group.
    pub condition_hints: bool,
    pub metrics_namespace: String,
    /// The source of historical usage for time-based fair share.
    pub usage: Option<Source>,
    /// Namespace and name of the ConfigMaps with the usage ledger, where the scheduler keeps one.
    pub usage_ledger: Key,
    /// How long a group is pending before conditions and events report it; most pods are bound within that time. With the
    /// cycle before and the write after it, a pod has its condition within two seconds on a calm cluster.
    pub report_after: Duration,
    /// Interval of audits, which compare the cluster model with one rebuilt from the stored objects.
    pub audit_every: Duration,
    /// How many interned names of deleted objects the cluster model may keep, beyond as many as it had when it was
    /// built, before it is rebuilt.
    pub stale_names_max: usize,
    /// How long the callbacks of a plugin that is not built in may take in a cycle, before it is cut off.
    pub plugin_timeout: Duration,
    /// Seed of the ids of new GPU groups.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        let settings = Settings::default();
        let params = Params { device_claims: settings.device_claims, ..Params::default() };
        Self {
            settings,
            config: SchedulerConfig::default(),
            config_map: None,
            params,
            period: Duration::from_secs(1),
            eviction: Eviction::Api,
            binding: Binding::Requests,
            detailed_fit_errors: false,
            condition_hints: false,
            metrics_namespace: "kai".to_owned(),
            usage: None,
            usage_ledger: Key::new(name::NAMESPACE, name::USAGE_LEDGER),
            report_after: Duration::from_millis(1_500),
            audit_every: Duration::from_mins(10),
            stale_names_max: 100_000,
            plugin_timeout: Duration::from_secs(10),
            seed: 0,
        }
    }
}

impl Options {
    /// The parameters in the form of snapshot files.
    pub fn snapshot_params(&self) -> SchedulerParams {
        SchedulerParams::of(&self.settings, &self.params)
    }

    /// How pods are evicted: the eviction API would refuse what `disruptionBudgets: ignore` allows.
    pub(crate) fn eviction_method(&self) -> Eviction {
        match (self.eviction, self.config.engine.disruption_budgets) {
            (Eviction::Api, DisruptionBudgets::Ignore) => Eviction::Delete,
            (method, _) => method,
        }
    }

    /// The staleness grace period of groups that set none.
    pub(crate) fn staleness_grace(&self) -> Span {
        self.params.staleness_grace
    }
}
