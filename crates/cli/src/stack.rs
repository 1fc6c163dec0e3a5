//! All components together in one process: what `kai up` runs, and what whole-system tests run.
//!
//! Each component is a client of its own with its own name, so that each can fail alone, and everything that it holds
//! in memory is gone when it is stopped.

use kai_clock::Clock;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::lease::Timing;
use kai_sim::Cluster;
use std::pin::Pin;
use std::sync::Arc;

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

/// Leases by which one of several copies of a component works; KAI's components use the same.
pub(crate) mod lease {
    /// The binder's.
    pub(crate) const BINDER: &str = "2ad35f9c.kai.scheduler";
    /// The pod grouper's.
    pub(crate) const GROUPER: &str = "54dff599.kai.scheduler";
    /// The one of the controller of pod groups' status.
    pub(crate) const POD_GROUP_CONTROLLER: &str = "o1x22tjj.kai.scheduler";
    /// The one of the controller of queues' status.
    pub(crate) const QUEUE_CONTROLLER: &str = "ov3xj497.kai.scheduler";
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

/// What a component does with what it is given.
type Work = Arc<dyn Fn(Process) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// One of the components.
pub(crate) struct Part {
    /// What it is called to the server.
    pub(crate) name: &'static str,
    /// The lease of whichever copy works.
    pub(crate) lease: &'static str,
    /// How that lease is timed.
    pub(crate) timing: Timing,
    /// What it does.
    pub(crate) work: Work,
}

impl Part {
    fn new<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        lease: &'static str,
        work: impl Fn(Process) -> F + Send + Sync + 'static,
    ) -> Self {
        let work: Work = Arc::new(move |process| Box::pin(work(process)));
        Self { name, lease, timing: Timing::default(), work }
    }
}

/// The components that every cluster needs.
pub(crate) fn parts(options: &Options, plugins: &PluginSet) -> Vec<Part> {
    let (scheduler, plugins) = (options.scheduler.clone(), plugins.clone());
    let scheduler = Part::new(name::SCHEDULER, name::SCHEDULER, move |process| {
        let (_, queries) = kai_scheduler::serve::queries();
        kai_scheduler::run(process, scheduler.clone(), plugins.clone(), queries)
    });
    let (binder, grouper) = (options.binder.clone(), options.grouper.clone());
    let (groups, queues) = (options.pod_groups.clone(), options.queues.clone());
    vec![
        Part { timing: kai_scheduler::LEASE_TIMING, ..scheduler },
        Part::new(name::BINDER, lease::BINDER, move |process| kai_binder::run(process, binder.clone())),
        Part::new(name::GROUPER, lease::GROUPER, move |process| {
            kai_controllers::grouper::run(process, grouper.clone())
        }),
        Part::new(name::POD_GROUP_CONTROLLER, lease::POD_GROUP_CONTROLLER, move |process| {
            kai_controllers::podgroup::run(process, groups.clone())
        }),
        Part::new(name::QUEUE_CONTROLLER, lease::QUEUE_CONTROLLER, move |process| {
            kai_controllers::queue::run(process, queues.clone())
        }),
    ]
}

/// Runs all components as clients of an embedded cluster.
pub fn join(cluster: &mut Cluster, options: &Options, plugins: &PluginSet) {
    let clock = cluster.clock();
    for part in parts(options, plugins) {
        cluster.run(part.name, move |client| (part.work)(process(client, clock, part.name)));
    }
    let reservation = options.reservation.clone();
    cluster.run(name::RESERVATION, move |client| {
        kai_reservation::simulated::run(process(client, clock, name::RESERVATION), reservation.clone())
    });
}

fn process(client: kube::Client, clock: Clock, name: &'static str) -> Process {
    Process::start(Api::new(client, name), clock, name)
}
