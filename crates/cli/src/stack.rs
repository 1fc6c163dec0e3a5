//! All components together in one process: what `kai up` runs, and what whole-system tests run.
//!
//! Each component is a client of its own with its own name, so that each can fail alone, and everything that it holds
//! in memory is gone when it is stopped.

use kai_clock::Clock;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_sim::Cluster;

/// What each component is called to the server.
pub mod name {
    /// The scheduler.
    pub const SCHEDULER: &str = "kai-scheduler";
    /// The binder.
    pub const BINDER: &str = "binder";
    /// The pod grouper.
    pub const GROUPER: &str = "pod-grouper";
    /// The controller of pod groups' status.
    pub const POD_GROUP_CONTROLLER: &str = "podgroup-controller";
    /// The controller of queues' status.
    pub const QUEUE_CONTROLLER: &str = "queue-controller";
    /// Speaks for the reservation pods of simulated nodes.
    pub const RESERVATION: &str = "resource-reservation";
}

/// How the components are set.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scheduler.
    pub scheduler: kai_scheduler::Options,
    /// The binder.
    pub binder: kai_binder::Options,
    /// The pod grouper.
    pub grouper: kai_controllers::grouper::Options,
    /// The controller of pod groups' status.
    pub pod_groups: kai_controllers::podgroup::Options,
    /// The controller of queues' status.
    pub queues: kai_controllers::queue::Options,
    /// Speaks for the reservation pods of simulated nodes.
    pub reservation: kai_reservation::simulated::Options,
}

impl Options {
    /// For a cluster whose nodes and GPUs are simulated.
    pub fn simulated() -> Self {
        Self {
            binder: kai_binder::Options { unprepared_pods: true, ..kai_binder::Options::default() },
            ..Self::default()
        }
    }
}

/// Installs what KAI's chart would: definitions, priority classes, default queues and the namespaces of components.
pub async fn install(api: &Api) -> anyhow::Result<()> {
    crate::up::defaults::install(api).await
}

/// Runs all components as clients of an embedded cluster.
pub fn join(cluster: &mut Cluster, options: &Options, plugins: &PluginSet) {
    let clock = cluster.clock();
    let (scheduler, plugins) = (options.scheduler.clone(), plugins.clone());
    cluster.run(name::SCHEDULER, move |client| {
        let (options, plugins) = (scheduler.clone(), plugins.clone());
        let (_, queries) = kai_scheduler::serve::queries();
        kai_scheduler::run(process(client, clock, name::SCHEDULER), options, plugins, queries)
    });
    let binder = options.binder.clone();
    cluster.run(name::BINDER, move |client| {
        kai_binder::run(process(client, clock, name::BINDER), binder.clone())
    });
    let grouper = options.grouper.clone();
    cluster.run(name::GROUPER, move |client| {
        kai_controllers::grouper::run(process(client, clock, name::GROUPER), grouper.clone())
    });
    let groups = options.pod_groups.clone();
    cluster.run(name::POD_GROUP_CONTROLLER, move |client| {
        kai_controllers::podgroup::run(process(client, clock, name::POD_GROUP_CONTROLLER), groups.clone())
    });
    let queues = options.queues.clone();
    cluster.run(name::QUEUE_CONTROLLER, move |client| {
        kai_controllers::queue::run(process(client, clock, name::QUEUE_CONTROLLER), queues.clone())
    });
    let reservation = options.reservation.clone();
    cluster.run(name::RESERVATION, move |client| {
        kai_reservation::simulated::run(process(client, clock, name::RESERVATION), reservation.clone())
    });
}

fn process(client: kube::Client, clock: Clock, name: &'static str) -> Process {
    Process::start(Api::new(client, name), clock, name)
}
