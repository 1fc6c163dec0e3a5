//! What happens to components and API servers between two workloads.

use super::WEBHOOK;
use crate::test_cluster::TestCluster;
use kai_apiserver::RestoredRevision;
use kai_clock::Setter;
use kai_components::{COMPONENTS, name, rbac};
use kai_sim::faults::webhook_client;
use kai_sim::{FaultRates, Outage, Right, Rights, controllers, kubelet};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// APIs that a cluster may install late.
const LATE_APIS: [&str; 7] = [
    "/apis/resource.k8s.io",
    "/apis/topology.node.k8s.io",
    "/apis/kai.scheduler",
    "/apis/scheduling.run.ai",
    "/apis/policy",
    "/apis/storage.k8s.io",
    "/apis/batch",
];
const HOUR: i64 = 3_600;

pub(super) fn set_rates(cluster: &TestCluster, rates: FaultRates) {
    for spec in COMPONENTS {
        cluster.backend.faults().set_client_rates(spec.name, rates);
    }
}

fn partition(cluster: &TestCluster) {
    for spec in COMPONENTS {
        cluster.backend.faults().partition(spec.name);
    }
}

pub(super) fn heal(cluster: &TestCluster) {
    for spec in COMPONENTS {
        cluster.backend.faults().heal(spec.name);
    }
}

/// One disturbance. All but some clock jumps end with it.
pub(super) async fn disturb(
    cluster: &TestCluster,
    rng: &mut ChaCha8Rng,
    clocks: &BTreeMap<&'static str, Setter>,
    rates: FaultRates,
) {
    let faults = cluster.backend.faults();
    let component = one_of(rng, COMPONENTS).name;
    match rng.next_u32() % 10 {
        0 => restart_server(cluster, rng, rates).await,
        1 => upgrade_servers(cluster, rng, rates).await,
        2 => take_rights(cluster, rng).await,
        3 => remove_api(cluster, rng, component).await,
        4 => {
            let jump = if is_heads(rng) { HOUR } else { -HOUR };
            clocks[component].jump(jump);
            cluster.sleep(seconds(rng, 30)).await;
            if is_heads(rng) {
                clocks[component].reset();
            }
        }
        5 => {
            faults.set_client_rates(&webhook_client(WEBHOOK), broken_webhook(rng));
            cluster.sleep(seconds(rng, 40)).await;
            faults.set_client_rates(&webhook_client(WEBHOOK), FaultRates::default());
        }
        6 | 7 => restore_backup(cluster, rng).await,
        8 => {
            // Nothing but pages of a load balancer, or half of every response.
            let broken = if is_heads(rng) {
                FaultRates { response_foreign: 1_000_000, ..rates }
            } else {
                FaultRates { response_torn: 1_000_000, ..rates }
            };
            faults.set_client_rates(component, broken);
            cluster.sleep(seconds(rng, 20)).await;
            faults.set_client_rates(component, rates);
        }
        _ => {
            faults.partition(component);
            cluster.sleep(seconds(rng, 20)).await;
            faults.heal(component);
        }
    }
}

fn is_heads(rng: &mut ChaCha8Rng) -> bool {
    rng.next_u32().is_multiple_of(2)
}

fn one_of<'a, T>(rng: &mut ChaCha8Rng, all: &'a [T]) -> &'a T {
    &all[rng.next_u32() as usize % all.len()]
}

fn seconds(rng: &mut ChaCha8Rng, max: u32) -> Duration {
    Duration::from_secs(1 + u64::from(rng.next_u32() % max))
}

fn broken_webhook(rng: &mut ChaCha8Rng) -> FaultRates {
    match rng.next_u32() % 4 {
        0 => FaultRates { webhook_error: 1_000_000, ..FaultRates::default() },
        1 => FaultRates { webhook_garbage: 1_000_000, ..FaultRates::default() },
        2 => FaultRates { webhook_denied: 1_000_000, ..FaultRates::default() },
        _ => FaultRates { slow: 1_000_000, delay_max: Duration::from_secs(10), ..FaultRates::default() },
    }
}

/// Ends the connections of a component.
async fn disconnect(cluster: &TestCluster, component: &str) {
    let faults = cluster.backend.faults();
    faults.partition(component);
    cluster.sleep(Duration::from_millis(1)).await;
    faults.heal(component);
}

/// Takes rights of a component's role away and gives them back: single ones, those to a resource, or all. Open watches
/// continue, unless the component is started anew or has to connect again.
async fn take_rights(cluster: &TestCluster, rng: &mut ChaCha8Rng) {
    let faults = cluster.backend.faults();
    // One process stands in for all reservation pods, and reads more than one of them.
    let specs: Vec<_> = COMPONENTS.iter().filter(|spec| spec.name != name::RESOURCE_RESERVATION).collect();
    let spec = one_of(rng, &specs);
    let granted = Rights::of_roles(&rbac::objects(spec));
    let all: Vec<Right> = granted.iter().map(|(_, right)| right.clone()).collect();
    let left = match rng.next_u32() % 8 {
        0 => Rights::default(),
        1..=3 => {
            let of = one_of(rng, &all);
            granted.without_resource(&of.resource, &of.api_group)
        }
        _ => {
            let taken: Vec<Right> = (0..=rng.next_u32() % 4).map(|_| one_of(rng, &all).clone()).collect();
            granted.without(&taken)
        }
    };
    faults.set_rights(spec.name, Some(left));
    match rng.next_u32() % 3 {
        0 => faults.crash(spec.name),
        1 => disconnect(cluster, spec.name).await,
        _ => {}
    }
    cluster.sleep(seconds(rng, 60)).await;
    faults.set_rights(spec.name, None);
}

/// An API that is not installed when a component starts, or is removed while it runs, and is there later.
async fn remove_api(cluster: &TestCluster, rng: &mut ChaCha8Rng, component: &str) {
    let faults = cluster.backend.faults();
    let api = *one_of(rng, &LATE_APIS);
    if is_heads(rng) {
        faults.crash(component);
    } else {
        disconnect(cluster, component).await;
    }
    faults.set_outage(component, Outage::not_served(api));
    cluster.sleep(seconds(rng, 60)).await;
    faults.heal(component);
}

/// The API server restarts: no connection, then not ready, then ready with a watch cache that begins anew, so that watches
/// cannot be resumed.
async fn restart_server(cluster: &TestCluster, rng: &mut ChaCha8Rng, rates: FaultRates) {
    partition(cluster);
    cluster.sleep(seconds(rng, 15)).await;
    heal(cluster);
    for spec in COMPONENTS {
        cluster.backend.faults().set_outage(spec.name, Outage::all_requests(503).retry_after(1));
    }
    cluster.sleep(seconds(rng, 5)).await;
    set_rates(cluster, FaultRates { expired: 1_000_000, ..rates });
    heal(cluster);
    cluster.sleep(seconds(rng, 5)).await;
    set_rates(cluster, rates);
}

/// A rolling upgrade of two servers: one client after another has to connect to the other server, whose watch cache is
/// behind.
async fn upgrade_servers(cluster: &TestCluster, rng: &mut ChaCha8Rng, rates: FaultRates) {
    let faults = cluster.backend.faults();
    for _ in 0..2 {
        for spec in COMPONENTS {
            faults.set_client_rates(spec.name, FaultRates { watch_lagging: 1_000_000, ..rates });
            disconnect(cluster, spec.name).await;
            cluster.sleep(seconds(rng, 3)).await;
        }
    }
    set_rates(cluster, rates);
}

/// etcd is restored from a backup that is some seconds old, and the API servers restart. Where the revision is not raised
/// as Kubernetes recommends, resource versions are used again, and every client is restarted as well.
async fn restore_backup(cluster: &TestCluster, rng: &mut ChaCha8Rng) {
    let server = cluster.backend.server();
    let backup = server.back_up();
    cluster.sleep(seconds(rng, 30)).await;
    partition(cluster);
    if rng.next_u32().is_multiple_of(4) {
        server.restore(&backup, RestoredRevision::AsSaved);
        let clients = COMPONENTS.iter().map(|spec| spec.name);
        for client in clients.chain([controllers::CLIENT, kubelet::CLIENT]) {
            cluster.backend.faults().crash(client);
        }
    } else {
        server.restore(&backup, RestoredRevision::Bumped);
    }
    cluster.sleep(seconds(rng, 15)).await;
    heal(cluster);
}
