//! Components inside another process: what `kai up` and whole-system tests run.
//!
//! Each component is an API client of its own, so that each can fail alone. Everything that it holds in memory is in
//! its future and is released when that is dropped.

use crate::spec::Component;
use kai_api::implicit_group::NodePools;
use kai_api::well_known::label_value;
use kai_cache::ImplicitGroups;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_scheduler::serve::Queries;
use parking_lot::Mutex;
use prometheus::Registry;
use std::pin::Pin;
use std::sync::Arc;

/// Runs a component; ends only when one of its tasks has failed.
pub type Start = fn(StartContext) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a component is started with.
pub struct StartContext {
    pub process: Process,
    pub options: ComponentOptions,
    pub plugins: PluginSet,
    /// Receives the metrics and the query channel of a scheduler.
    pub scheduler: SchedulerHandle,
}

/// Options of all components.
#[derive(Clone, Debug)]
pub struct ComponentOptions {
    pub scheduler: kai_scheduler::Options,
    pub binder: kai_binder::Options,
    pub pod_grouper: kai_podgrouper::Options,
    pub pod_group_controller: kai_controllers::podgroup::Options,
    pub queue_controller: kai_controllers::queue::Options,
    pub reservation: kai_reservation::simulated::Options,
    /// None where there is no autoscaler.
    pub node_scale_adjuster: Option<kai_controllers::node_scale::Options>,
}

impl Default for ComponentOptions {
    /// The binder is ours, so that the scheduler binds what needs nothing of it, and names the group in the Binding.
    fn default() -> Self {
        let binding = kai_scheduler::Binding::Direct;
        Self {
            scheduler: kai_scheduler::Options { binding, ..kai_scheduler::Options::default() },
            binder: kai_binder::Options::default(),
            pod_grouper: kai_podgrouper::Options {
                assign_at_binding: true,
                ..kai_podgrouper::Options::default()
            },
            pod_group_controller: kai_controllers::podgroup::Options::default(),
            queue_controller: kai_controllers::queue::Options::default(),
            reservation: kai_reservation::simulated::Options::default(),
            node_scale_adjuster: None,
        }
    }
}

impl ComponentOptions {
    /// For a cluster whose nodes and GPUs are simulated: without KAI's admission, pods that share a GPU are not prepared.
    pub fn simulated() -> Self {
        Self {
            binder: kai_binder::Options { allow_unmutated_pods: true, ..kai_binder::Options::default() },
            ..Self::default()
        }
    }
}

impl ComponentOptions {
    /// Turns implicit groups on or off, for the node pool of the scheduler.
    pub fn set_implicit_groups(&mut self, mode: ImplicitGroups) {
        let settings = &mut self.scheduler.settings;
        settings.implicit_groups = mode;
        let pools = match mode {
            ImplicitGroups::OfAllPods if settings.node_pool_value.is_empty() => {
                NodePools::parse(label_value::DEFAULT_NODE_POOL)
            }
            ImplicitGroups::OfAllPods => NodePools::parse(&settings.node_pool_value),
            ImplicitGroups::OfPlacedPods => NodePools::default(),
        };
        self.pod_grouper.implicit_groups = pools.clone();
        self.queue_controller.implicit_groups.node_pools = pools;
    }
}

impl Component {
    /// Runs it in this process; ends only when one of its tasks has failed.
    pub fn run(
        self,
        process: Process,
        options: ComponentOptions,
        plugins: PluginSet,
        scheduler: SchedulerHandle,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        (self.spec().start)(StartContext { process, options, plugins, scheduler })
    }
}

/// Access to the metrics and queries of a scheduler that may be restarted; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SchedulerHandle {
    incarnations: Arc<Mutex<Vec<(Registry, Queries)>>>,
}

impl SchedulerHandle {
    pub(crate) fn started(&self, metrics: Registry, queries: Queries) {
        self.incarnations.lock().push((metrics, queries));
    }

    /// The metrics of every incarnation, the latest last.
    pub fn metrics(&self) -> Vec<Registry> {
        self.incarnations.lock().iter().map(|(metrics, _)| metrics.clone()).collect()
    }

    /// The query channel of the latest incarnation.
    pub fn queries(&self) -> Option<Queries> {
        self.incarnations.lock().last().map(|(_, queries)| queries.clone())
    }
}
