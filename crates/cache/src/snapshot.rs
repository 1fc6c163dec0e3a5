//! Reads and writes snapshot files: a whole cluster in one file, in the format of KAI's scheduler.
//!
//! The usual form is a zip archive with one entry, `snapshot.json`; plain JSON and YAML are read too. Lists are streamed
//! object by object into the reduced form, so the text is never in memory as a whole.
//! Beyond KAI's content there may be a member `replay` with further input of a cycle.

mod anonymise;
mod params;
mod read;
mod read_ahead;
mod scan;
mod write;

pub use anonymise::anonymise;
pub use params::{
    Assumed, AssumedEviction, Discovery, GroupVersion, Names, Replay, SchedulerParams, ServerVersion,
};
pub use read::{read, read_file, read_objects};
pub use scan::{Limits, ScanError};
pub use write::{Contents, write_json, write_zip, write_zip_text};

use crate::cache::Cache;
use crate::config_file::{ConfigError, SchedulerConfig};
use crate::finding::Finding;
use crate::object::Objects;
use crate::settings::{ImplicitGroups, Settings};
use crate::store::{Eviction, Store};
use kai_engine::policy::Params;

/// A cluster at one point in time, with the configuration of its scheduler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub config: SchedulerConfig,
    pub params: SchedulerParams,
    pub objects: Objects,
    pub replay: Replay,
    /// The served APIs; `None` when the file does not contain them.
    pub discovery: Option<Discovery>,
    /// Findings on the file itself.
    pub findings: Vec<Finding>,
}

impl Snapshot {
    pub fn settings(&self) -> Settings {
        let discovery = self.discovery.clone().unwrap_or_else(|| Discovery::of(&self.objects));
        let names = &self.replay.params;
        Settings {
            scheduler_name: self.params.scheduler_name.clone(),
            node_pool_key: self.params.node_pool_key.clone(),
            node_pool_value: self.params.node_pool_value.clone(),
            queue_label_key: self.params.queue_label_key.clone(),
            reservation_app: names.reservation_app.clone(),
            cpu_worker_label: names.cpu_worker_label.clone(),
            gpu_worker_label: names.gpu_worker_label.clone(),
            mig_label: names.mig_label.clone(),
            restrict_nodes: self.params.restrict_nodes,
            full_hierarchy_fairness: self.params.full_hierarchy_fairness,
            device_claims: discovery.serves_device_claims(),
            numa_zones: discovery.serves_numa_zones(),
            // The groups of a snapshot are all there are.
            implicit_groups: ImplicitGroups::OfPlacedPods,
            usage_half_lives: true,
        }
    }

    pub fn engine_params(&self) -> Params {
        let params = &self.params;
        Params {
            restrict_nodes: params.restrict_nodes,
            max_consolidation_victims: u32::try_from(params.max_consolidation_victims).ok(),
            use_signatures: params.use_signatures,
            allow_consolidating_reclaim: params.allow_consolidating_reclaim,
            staleness_grace: params.staleness_grace,
            stuck_threshold: params.stuck_threshold,
            csi_storage: params.csi_storage,
            device_claims: self.settings().device_claims,
            node_pool: Some(params.node_pool_value.clone())
                .filter(|pool| !pool.is_empty())
                .unwrap_or_else(|| kai_api::well_known::label_value::DEFAULT_NODE_POOL.to_owned()),
        }
    }

    pub fn into_cache(self) -> Cache {
        Cache::of(self.into_store())
    }

    /// A store of the objects, with assumed evictions and historical usage.
    pub fn into_store(self) -> Store {
        let settings = self.settings();
        let mut store = Store::of(settings, self.objects);
        store.set_usage(self.replay.usage);
        for eviction in self.replay.assumed.evictions {
            let key = kai_engine::input::Key::new(eviction.namespace, eviction.name);
            store.assume_eviction(key, Eviction { uid: eviction.uid, since: eviction.since.0 });
        }
        store
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("`{file}`: {cause}")]
    Io { file: String, cause: std::io::Error },
    /// Damaged, or without an entry `snapshot.json`.
    #[error(
        "`{file}` is not a snapshot archive: {problem}; hint: it must be a zip file with the entry `snapshot.json`"
    )]
    Archive { file: String, problem: String },
    /// A zip archive without its end.
    #[error("`{file}` is not a complete zip archive: its end is missing; hint: copy or download it again")]
    Truncated { file: String },
    /// Another kind of file of `kai` or Kubernetes.
    #[error("`{file}` is {what}, not a snapshot; hint: {hint}")]
    Other { file: String, what: &'static str, hint: &'static str },
    /// Damaged or too large.
    #[error("`{file}` {cause}; hint: {hint}")]
    Text { file: String, hint: &'static str, cause: ScanError },
    #[error("`{file}` is neither JSON nor YAML: {problem}")]
    Yaml { file: String, problem: String },
    #[error("`{file}` has no `{member}`; hint: a snapshot needs config, schedulerParams and rawObjects")]
    Missing { file: String, member: &'static str },
    #[error("`{file}`, {place}: {problem}; hint: {hint}")]
    Value { file: String, place: String, problem: String, hint: String },
    #[error("`{file}`: {cause}")]
    Config { file: String, cause: ConfigError },
}

#[cfg(test)]
mod tests;
