//! KAI's flags of the pod grouper.

use crate::own::OwnRules;
use kai_api::implicit_group::NodePools;
use kai_api::well_known::{label, name};
use kai_runtime::Key;
use std::collections::BTreeMap;

/// KAI's flags of the pod grouper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `scheduler-name`: only pods of this scheduler are grouped.
    pub scheduler_name: String,
    /// `queue-label-key`
    pub queue_label_key: String,
    /// `nodepool-label-key`; empty for no node pools.
    pub node_pool_label_key: String,
    /// `pod-label-selector`
    pub pod_label_selector: BTreeMap<String, String>,
    /// `namespace-label-selector`
    pub namespace_label_selector: BTreeMap<String, String>,
    /// `search-legacy-pg`: whether pod groups with the names of older versions are used where they exist.
    pub search_legacy_groups: bool,
    /// `knative-gang-schedule`
    pub knative_gang_schedule: bool,
    /// `generic-karta-fallback`
    pub generic_karta_fallback: bool,
    /// `default-priorities-configmap-name` and `-namespace`
    pub default_priorities: Option<Key>,
    /// `max-concurrent-reconciles`
    pub max_concurrent_reconciles: usize,
    /// `assign-at-binding`: whether the scheduler knows implied groups and writes the annotation with its Bindings, so that
    /// only a pod that has none for a while is annotated here.
    pub assign_at_binding: bool,
    /// `implicit-groups`: node pools in which a pod that is alone in a group without settings gets no pod group.
    pub implicit_groups: NodePools,
    /// Rules for kinds that are not built in.
    pub own_rules: OwnRules,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            queue_label_key: label::QUEUE.to_owned(),
            node_pool_label_key: label::NODE_POOL.to_owned(),
            pod_label_selector: BTreeMap::new(),
            namespace_label_selector: BTreeMap::new(),
            search_legacy_groups: true,
            knative_gang_schedule: true,
            generic_karta_fallback: true,
            default_priorities: None,
            max_concurrent_reconciles: 10,
            assign_at_binding: false,
            implicit_groups: NodePools::default(),
            own_rules: OwnRules::default(),
        }
    }
}

/// Parses `key=value,key=value` as KAI parses its selectors: items that are no pair are ignored.
pub fn parse_selector(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|item| item.trim().split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
