//! All components together in one process: what `kai up` runs, and what whole-system tests run.
//!
//! Each component is a client of its own with its own name, so that each can fail alone, and everything that it holds
//! in memory is gone when it is stopped.

use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::lease::Timing;
use kai_scheduler::serve::Queries;
use kai_sim::Cluster;
use prometheus::Registry;
use std::sync::{Arc, Mutex, PoisonError};

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
    pub grouper: kai_podgrouper::Options,
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

/// A component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Decides where pods run.
    Scheduler,
    /// Carries bindings out.
    Binder,
    /// Puts pods into groups.
    Grouper,
    /// Keeps the status of groups.
    PodGroups,
    /// Keeps the status of queues.
    Queues,
    /// Speaks for the reservation pods of simulated nodes.
    Reservation,
}

/// All components.
pub const COMPONENTS: [Component; 6] = [
    Component::Scheduler,
    Component::Binder,
    Component::Grouper,
    Component::PodGroups,
    Component::Queues,
    Component::Reservation,
];

impl Component {
    /// What it is called to the server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduler => name::SCHEDULER,
            Self::Binder => name::BINDER,
            Self::Grouper => name::GROUPER,
            Self::PodGroups => name::POD_GROUP_CONTROLLER,
            Self::Queues => name::QUEUE_CONTROLLER,
            Self::Reservation => name::RESERVATION,
        }
    }

    /// The lease of whichever copy of it works, and how that is timed; nothing where each works for itself.
    pub(crate) fn lease(self) -> Option<(&'static str, Timing)> {
        let usual = Timing::default();
        match self {
            Self::Scheduler => Some((name::SCHEDULER, kai_scheduler::LEASE_TIMING)),
            Self::Binder => Some((lease::BINDER, usual)),
            Self::Grouper => Some((lease::GROUPER, usual)),
            Self::PodGroups => Some((lease::POD_GROUP_CONTROLLER, usual)),
            Self::Queues => Some((lease::QUEUE_CONTROLLER, usual)),
            Self::Reservation => None,
        }
    }

    /// Runs it. Returns only when something that must not end has ended.
    pub async fn run(self, process: Process, options: Options, plugins: PluginSet, insight: Insight) {
        // Boxed: what a component holds while it runs is large.
        match self {
            Self::Scheduler => {
                let (asking, asked) = kai_scheduler::serve::queries();
                insight.begins(process.metrics.clone(), asking);
                Box::pin(kai_scheduler::run(process, options.scheduler, plugins, asked)).await;
            }
            Self::Binder => Box::pin(kai_binder::run(process, options.binder)).await,
            Self::Grouper => Box::pin(kai_podgrouper::run(process, options.grouper)).await,
            Self::PodGroups => Box::pin(kai_controllers::podgroup::run(process, options.pod_groups)).await,
            Self::Queues => Box::pin(kai_controllers::queue::run(process, options.queues)).await,
            Self::Reservation => {
                Box::pin(kai_reservation::simulated::run(process, options.reservation)).await;
            }
        }
    }
}

/// What the scheduler measures and can be asked, from one of its lives to the next; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Insight {
    lives: Arc<Mutex<Vec<(Registry, Queries)>>>,
}

impl Insight {
    fn begins(&self, metrics: Registry, asking: Queries) {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).push((metrics, asking));
    }

    /// The metrics of all its lives, the latest last.
    pub fn metrics(&self) -> Vec<Registry> {
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.iter().map(|(metrics, _)| metrics.clone()).collect()
    }

    /// Where the scheduler that runs now is asked, if one has begun to.
    pub fn queries(&self) -> Option<Queries> {
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.last().map(|(_, asking)| asking.clone())
    }
}

/// Runs all components as clients of an embedded cluster.
pub fn join(cluster: &mut Cluster, options: &Options, plugins: &PluginSet) -> Insight {
    let (clock, insight) = (cluster.clock(), Insight::default());
    for component in COMPONENTS {
        let (options, plugins, insight) = (options.clone(), plugins.clone(), insight.clone());
        cluster.run(component.name(), move |client| {
            let process = Process::start(Api::new(client, component.name()), clock, component.name());
            component.run(process, options.clone(), plugins.clone(), insight.clone())
        });
    }
    insight
}
