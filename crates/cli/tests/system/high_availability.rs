//! Runs two replicas of every component with leader election, as a highly available installation does.

use crate::test_cluster::TestCluster;
use kai_clock::{Clock, Setter};
use kai_components::{Component, ComponentOptions, SchedulerHandle};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, LEASE};
use kai_runtime::leader_election::{self, Candidate, Timing};
use kai_sim::{Cluster, NodeGroup};
use prometheus::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LEASE_NAMESPACE: &str = "kai-scheduler";
/// Time between the exit of a process and its restart.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// The client names of the replicas of each component. Fault streams are derived from them.
pub(crate) const REPLICAS: [(Component, [&str; 2]); 5] = [
    (Component::Scheduler, ["kai-scheduler/a", "kai-scheduler/b"]),
    (Component::Binder, ["binder/a", "binder/b"]),
    (Component::PodGrouper, ["pod-grouper/a", "pod-grouper/b"]),
    (Component::PodGroupController, ["podgroup-controller/a", "podgroup-controller/b"]),
    (Component::QueueController, ["queue-controller/a", "queue-controller/b"]),
];

/// Sets the clock of each replica.
pub(crate) type Clocks = BTreeMap<&'static str, Setter>;

/// Counts how often a replica became leader.
pub(crate) type Terms = Arc<AtomicU32>;

/// Starts a cluster with two replicas of every component.
pub(crate) async fn start(
    seed: u64,
    nodes: impl IntoIterator<Item = NodeGroup>,
    options: &ComponentOptions,
) -> (TestCluster, Terms) {
    let terms = Terms::default();
    let cluster = TestCluster::with_components(seed, nodes, |cluster| join(cluster, options, &terms)).await;
    (cluster, terms)
}

/// Runs two replicas of every component.
pub(crate) fn join(cluster: &mut Cluster, options: &ComponentOptions, terms: &Terms) -> SchedulerHandle {
    join_with_clocks(cluster, options, terms, &mut Clocks::default())
}

/// As [`join`]; each replica has a clock of its own.
pub(crate) fn join_with_clocks(
    cluster: &mut Cluster,
    options: &ComponentOptions,
    terms: &Terms,
    clocks: &mut Clocks,
) -> SchedulerHandle {
    let scheduler = SchedulerHandle::default();
    for (component, names) in REPLICAS {
        for name in names {
            let (clock, setter) = cluster.clock().settable();
            clocks.insert(name, setter);
            let (options, scheduler, terms) = (options.clone(), scheduler.clone(), Arc::clone(terms));
            cluster.run(name, move |client| {
                let api = Api::new(client, component.name());
                let (options, scheduler, terms) = (options.clone(), scheduler.clone(), Arc::clone(&terms));
                let start = move |process| {
                    terms.fetch_add(1, Ordering::Relaxed);
                    component.run(process, options.clone(), PluginSet::builtin(), scheduler.clone())
                };
                run_with_leader_election(component, name, api, clock, start)
            });
        }
    }
    // The simulated reservation pods have no leader election.
    let reservation = Component::ResourceReservation;
    let (options, reservation_scheduler, clock) = (options.clone(), scheduler.clone(), cluster.clock());
    cluster.run(reservation.name(), move |client| {
        let process = Process::start(Api::new(client, reservation.name()), clock, reservation.name());
        reservation.run(process, options.clone(), PluginSet::builtin(), reservation_scheduler.clone())
    });
    scheduler
}

/// Acquires the lease, runs the component while it is held, and restarts, as the kubelet restarts a container.
async fn run_with_leader_election<F: Future<Output = ()>>(
    component: Component,
    name: &'static str,
    api: Api,
    clock: Clock,
    start: impl Fn(Process) -> F,
) {
    loop {
        let candidate = Candidate {
            lease: Key::new(LEASE_NAMESPACE, component.name()),
            identity: format!("{name}_{}", clock.micro_time()),
            timing: if component == Component::Scheduler {
                kai_scheduler::LEASE_TIMING
            } else {
                Timing::default()
            },
        };
        let work = |leadership| {
            let fenced = api.clone().fenced(leadership);
            start(Process::with(fenced, clock, component.name(), Registry::new(), Health::default()))
        };
        leader_election::run_as_leader(&candidate, &api.isolated(), clock, work).await;
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// The replica that holds the lease of a component.
pub(crate) async fn leader(cluster: &TestCluster, component: Component) -> Option<&'static str> {
    let lease = cluster.api().get_dynamic(&LEASE, &Key::new(LEASE_NAMESPACE, component.name())).await.ok()?;
    let holder = object::str_at(&lease, "/spec/holderIdentity").to_owned();
    let replicas = REPLICAS.iter().find(|(of, _)| *of == component)?.1;
    replicas.into_iter().find(|name| holder.starts_with(&format!("{name}_")))
}

/// A leader that dies without releasing its lease is replaced after at most the lease duration (15 s) and one retry (2 s).
pub(crate) const REPLACED_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn first_pod_is_bound_within_20_seconds_after_all_leaders_died() {
    // The moment of the death within the retry period of the other replicas makes a difference.
    for delay in [0, 700, 1_400, 1_900] {
        let (cluster, _) = start(delay, [NodeGroup::gpu_nodes(1, 8)], &ComponentOptions::simulated()).await;
        cluster.create_pod(crate::test_cluster::PodBuilder::new("before", "default-queue", 1)).await;
        cluster.wait_for_running("before", 1).await;
        cluster.sleep(Duration::from_secs(30) + Duration::from_millis(delay)).await;
        for (component, _) in REPLICAS {
            let leader = leader(&cluster, component).await.expect("each component has a leader");
            cluster.backend.faults().partition(leader);
        }
        let died = tokio::time::Instant::now();
        cluster.create_pod(crate::test_cluster::PodBuilder::new("after", "default-queue", 1)).await;
        cluster.wait_until("the pod is bound", async || cluster.bound_pods("after").await.len() == 1).await;
        assert!(died.elapsed() <= REPLACED_WITHIN, "bound after {:?} (delay {delay} ms)", died.elapsed());
    }
}
