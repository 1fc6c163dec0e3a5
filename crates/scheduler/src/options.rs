//! What a scheduler is told at its start.

use crate::usage::Source;
use kai_cache::Settings;
use kai_cache::config_file::SchedulerConfig;
use kai_cache::snapshot::SchedulerParams;
use kai_engine::Params;
use kai_units::Span;
use std::time::Duration;

/// How a pod is made to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Through the eviction API, which respects disruption budgets.
    #[default]
    Api,
    /// By a plain delete, after the pod's condition says why.
    Delete,
}

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which objects are ours.
    pub settings: Settings,
    /// Actions, plugins and their arguments.
    pub config: SchedulerConfig,
    /// What else changes decisions.
    pub params: Params,
    /// The least time between two cycles that may evict.
    pub period: Duration,
    /// How pods are made to leave.
    pub eviction: Eviction,
    /// Whether messages name every obstacle.
    pub detailed_fit_errors: bool,
    /// The prefix of metric names.
    pub metrics_namespace: String,
    /// Where past usage comes from; without it, none counts.
    pub usage: Option<Source>,
    /// How long a group may be pending before that is told: most pods are bound before.
    pub tell_after: Duration,
    /// Time between two audits.
    pub audit_every: Duration,
    /// How many names of what is gone may be kept, beyond as many as there are of what is there, before the cluster is
    /// built anew.
    pub traces_max: usize,
    /// What ids of new GPU groups are drawn from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        let settings = Settings::default();
        let params = Params { device_claims: settings.device_claims, ..Params::default() };
        Self {
            settings,
            config: SchedulerConfig::default(),
            params,
            period: Duration::from_secs(1),
            eviction: Eviction::Api,
            detailed_fit_errors: false,
            metrics_namespace: "kai".to_owned(),
            usage: None,
            tell_after: Duration::from_secs(2),
            audit_every: Duration::from_mins(10),
            traces_max: 100_000,
            seed: 0,
        }
    }
}

impl Options {
    /// The parameters as snapshot files carry them.
    pub(crate) fn snapshot_params(&self) -> SchedulerParams {
        SchedulerParams::of(&self.settings, &self.params)
    }

    /// The grace of gangs below their minimum, where they name none.
    pub(crate) fn staleness_grace(&self) -> Span {
        self.params.staleness_grace
    }
}
