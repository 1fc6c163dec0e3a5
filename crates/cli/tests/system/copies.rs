//! Every component as two copies, of which one leads: what a cluster has that wants no gaps.

use crate::world::World;
use kai_cli::stack::{self, Component, Insight};
use kai_clock::Clock;
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, LEASE};
use kai_runtime::lease::{self, Candidate, Timing};
use kai_sim::{Cluster, NodeGroup};
use prometheus::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The namespace of leases.
const NAMESPACE: &str = "kai-scheduler";
/// How long a process that ended takes to come back.
const RESTART: Duration = Duration::from_secs(5);

/// The copies of each component, by what they are called to the server.
pub(crate) const COPIES: [(Component, [&str; 2]); 5] = [
    (Component::Scheduler, ["kai-scheduler/a", "kai-scheduler/b"]),
    (Component::Binder, ["binder/a", "binder/b"]),
    (Component::Grouper, ["pod-grouper/a", "pod-grouper/b"]),
    (Component::PodGroups, ["podgroup-controller/a", "podgroup-controller/b"]),
    (Component::Queues, ["queue-controller/a", "queue-controller/b"]),
];

/// How often copies began to work, which is once for each time that one got the lease.
pub(crate) type Terms = Arc<AtomicU32>;

/// A cluster with two copies of every component.
pub(crate) async fn world(
    seed: u64,
    nodes: impl IntoIterator<Item = NodeGroup>,
    options: &stack::Options,
) -> (World, Terms) {
    let terms = Terms::default();
    let world = World::joined(seed, nodes, |cluster| join(cluster, options, &terms)).await;
    (world, terms)
}

fn join(cluster: &mut Cluster, options: &stack::Options, terms: &Terms) -> Insight {
    let (clock, insight) = (cluster.clock(), Insight::default());
    for (component, names) in COPIES {
        for name in names {
            let (options, insight, terms) = (options.clone(), insight.clone(), Arc::clone(terms));
            cluster.run(name, move |client| {
                let api = Api::new(client, component.name());
                let (options, insight, terms) = (options.clone(), insight.clone(), Arc::clone(&terms));
                let start = move |process| {
                    terms.fetch_add(1, Ordering::Relaxed);
                    component.run(process, options.clone(), PluginSet::builtin(), insight.clone())
                };
                stand_for_election(component, name, api, clock, start)
            });
        }
    }
    // What speaks for simulated nodes is no component of ours.
    let reservation = Component::Reservation;
    let (options, found) = (options.clone(), insight.clone());
    cluster.run(reservation.name(), move |client| {
        let process = Process::start(Api::new(client, reservation.name()), clock, reservation.name());
        reservation.run(process, options.clone(), PluginSet::builtin(), found.clone())
    });
    insight
}

/// Waits for the lease, works while it is held, ends, and comes back, as a process in a cluster does.
async fn stand_for_election<F: Future<Output = ()>>(
    component: Component,
    name: &'static str,
    api: Api,
    clock: Clock,
    start: impl Fn(Process) -> F,
) {
    loop {
        let candidate = Candidate {
            lease: Key::new(NAMESPACE, component.name()),
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
        lease::lead(&candidate, &api.apart(), clock, work).await;
        tokio::time::sleep(RESTART).await;
    }
}

/// Which copy holds the lease of a component, if any does.
pub(crate) async fn leader(world: &World, component: Component) -> Option<&'static str> {
    let lease = world.api().get(&LEASE, &Key::new(NAMESPACE, component.name())).await.ok()?;
    let holder = object::str_at(&lease, "/spec/holderIdentity").to_owned();
    let copies = COPIES.iter().find(|(of, _)| *of == component)?.1;
    copies.into_iter().find(|name| holder.starts_with(&format!("{name}_")))
}
