//! Faults of the network and of the API servers: silent, torn and half-closed watches, caches that lag, lists in late and
//! expiring pages, restarts, rolling upgrades, restored backups of etcd, rights and kinds that are missing for a while,
//! webhooks that fail, and clocks that jump by an hour.
//!
//! The same invariants hold as with the other seeds. `KAI_NETWORK_SEEDS=100..200` selects other seeds.

use super::{
    COMPONENTS, GPUS, InvariantChecker, NODES, cache_consistency, converge, delete_pod, in_virtual_time,
    seeds_from, submit,
};
use crate::test_cluster::TestCluster;
use axum::body::Bytes;
use kai_apiserver::RestoredRevision;
use kai_clock::Setter;
use kai_components::{COMPONENTS as TABLE, SchedulerHandle};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::kind::VALIDATING_WEBHOOK_CONFIGURATION;
use kai_sim::faults::webhook_client;
use kai_sim::journal::Digest;
use kai_sim::{Cluster, FaultRates, NodeGroup, Outage};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The host of a webhook.
const WEBHOOK: &str = "hook.default.svc";
/// Parts of the paths of what a component may lose its rights to; the empty one is everything.
const RIGHTS: [&str; 16] = [
    "",
    "/pods",
    "/podgroups",
    "/bindrequests",
    "/queues",
    "/nodes",
    "/configmaps",
    "/events",
    "/binding",
    "/status",
    "/persistentvolumes",
    "/priorityclasses",
    "/resourceclaims",
    "/poddisruptionbudgets",
    "/topologies",
    "/namespaces",
];
/// APIs that a cluster may install late.
const LATE_APIS: [&str; 3] = ["/apis/resource.k8s.io", "/apis/topology.node.k8s.io", "/apis/kai.scheduler"];
const HOUR: i64 = 3_600;

#[test]
fn network_seeds_0_to_24_keep_invariants_and_converge() {
    run_seeds(0..25);
}

#[test]
fn network_seeds_25_to_49_keep_invariants_and_converge() {
    run_seeds(25..50);
}

#[test]
#[ignore = "takes long: cargo xtask ci runs it; KAI_NETWORK_SEEDS=100..200 selects the seeds"]
fn further_network_seeds_keep_invariants_and_converge() {
    run_seeds(seeds_from("KAI_NETWORK_SEEDS", 50..55));
}

#[test]
fn same_network_seed_produces_the_same_journal() {
    let digests: Vec<Digest> = (0..2).map(|_| in_virtual_time(run_seed(3))).collect();
    assert_eq!(digests[0], digests[1]);
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| in_virtual_time(run_seed(seed))) {
            eprintln!(
                "seed {seed} failed; repeat it with\n  \
                 KAI_NETWORK_SEEDS={seed}..{} cargo test -p kai-cli --test system -- --ignored further_network_seeds",
                seed + 1
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// One run: a phase with faults, then one without. Returns the digest of the journal.
async fn run_seed(seed: u64) -> Digest {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes = [NodeGroup::gpu_nodes(NODES as usize, u32::try_from(GPUS).unwrap_or(0))];
    let mut clocks = BTreeMap::new();
    let cluster = TestCluster::with_components(seed, nodes, |cluster| join(seed, cluster, &mut clocks)).await;
    install_webhook(&cluster, rng.next_u32().is_multiple_of(2)).await;
    cluster.create_queue("a", 6).await;
    cluster.create_queue("b", 6).await;
    let checker = InvariantChecker::watch(&cluster);
    let rates = FaultRates { page_objects: 1 + rng.next_u32() % 4, ..FaultRates::network() };
    set_rates(&cluster, rates);
    let mut submitted = 0;
    for round in 0..6 {
        submitted += submit(&cluster, &mut rng, round).await;
        disturb(&cluster, &mut rng, &clocks, rates).await;
        cluster.sleep(Duration::from_secs(2 + u64::from(rng.next_u32() % 20))).await;
        checker.assert_holds(seed);
        if rng.next_u32().is_multiple_of(2) {
            submitted -= delete_pod(&cluster, &mut rng).await;
        }
    }
    set_rates(&cluster, FaultRates::default());
    heal(&cluster);
    for clock in clocks.values() {
        clock.reset();
    }
    converge(&cluster, seed, submitted).await;
    checker.assert_holds(seed);
    cache_consistency::assert_consistent(&cluster, seed).await;
    cluster.backend.journal().digest()
}

fn set_rates(cluster: &TestCluster, rates: FaultRates) {
    for name in COMPONENTS {
        cluster.backend.faults().set_client_rates(name, rates);
    }
}

fn partition(cluster: &TestCluster) {
    for name in COMPONENTS {
        cluster.backend.faults().partition(name);
    }
}

fn heal(cluster: &TestCluster) {
    for name in COMPONENTS {
        cluster.backend.faults().heal(name);
    }
}

/// Runs every component with a clock of its own.
fn join(seed: u64, cluster: &mut Cluster, clocks: &mut BTreeMap<&'static str, Setter>) -> SchedulerHandle {
    let (options, scheduler) = (cache_consistency::options(seed), SchedulerHandle::default());
    for spec in TABLE {
        let (clock, setter) = cluster.clock().settable();
        clocks.insert(spec.name, setter);
        let (options, scheduler) = (options.clone(), scheduler.clone());
        cluster.run(spec.name, move |client| {
            let process = Process::start(Api::new(client, spec.name), clock, spec.name);
            spec.component.run(process, options.clone(), PluginSet::builtin(), scheduler.clone())
        });
    }
    scheduler
}

/// A webhook for what the components write. It allows everything, until it gets faults.
async fn install_webhook(cluster: &TestCluster, fails_closed: bool) {
    let answer = async |review: Bytes| {
        let review: Value = serde_json::from_slice(&review).unwrap_or_default();
        let response = json!({"uid": review["request"]["uid"], "allowed": true});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
    };
    let router = axum::Router::new().route("/", axum::routing::post(answer));
    cluster.backend.server().core().webhooks.serve(WEBHOOK, router);
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]});
    let webhook = json!({
        "name": "binds.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "failurePolicy": if fails_closed { "Fail" } else { "Ignore" },
        "clientConfig": {"service": {"name": "hook", "namespace": "default", "path": "/"}},
        "rules": [
            rule("scheduling.run.ai", "bindrequests"), rule("scheduling.run.ai", "podgroups"),
            rule("", "pods/binding"), rule("", "pods"), rule("", "configmaps"),
        ],
    });
    let configuration = json!({"metadata": {"name": "binds"}, "webhooks": [webhook]});
    cluster.create(&VALIDATING_WEBHOOK_CONFIGURATION, configuration).await;
}

fn broken_webhook(rng: &mut ChaCha8Rng) -> FaultRates {
    match rng.next_u32() % 4 {
        0 => FaultRates { webhook_error: 1_000_000, ..FaultRates::default() },
        1 => FaultRates { webhook_garbage: 1_000_000, ..FaultRates::default() },
        2 => FaultRates { webhook_denied: 1_000_000, ..FaultRates::default() },
        _ => FaultRates { slow: 1_000_000, delay_max: Duration::from_secs(10), ..FaultRates::default() },
    }
}

/// One disturbance. All but some clock jumps end with it.
async fn disturb(
    cluster: &TestCluster,
    rng: &mut ChaCha8Rng,
    clocks: &BTreeMap<&'static str, Setter>,
    rates: FaultRates,
) {
    let faults = cluster.backend.faults();
    let component = COMPONENTS[rng.next_u32() as usize % COMPONENTS.len()];
    match rng.next_u32() % 9 {
        0 => restart_server(cluster, rng).await,
        1 => upgrade_servers(cluster, rng, rates).await,
        2 => {
            let right = RIGHTS[rng.next_u32() as usize % RIGHTS.len()];
            faults.set_outage(component, Outage::forbidden(right));
            if rng.next_u32().is_multiple_of(2) {
                faults.crash(component);
            }
            cluster.sleep(seconds(rng, 60)).await;
            faults.heal(component);
        }
        3 => {
            let api = LATE_APIS[rng.next_u32() as usize % LATE_APIS.len()];
            faults.set_outage(component, Outage::not_served(api));
            faults.crash(component);
            cluster.sleep(seconds(rng, 60)).await;
            faults.heal(component);
        }
        4 => {
            let jump = if rng.next_u32().is_multiple_of(2) { HOUR } else { -HOUR };
            clocks[component].jump(jump);
            cluster.sleep(seconds(rng, 30)).await;
            if rng.next_u32().is_multiple_of(2) {
                clocks[component].reset();
            }
        }
        5 => {
            faults.set_client_rates(&webhook_client(WEBHOOK), broken_webhook(rng));
            cluster.sleep(seconds(rng, 40)).await;
            faults.set_client_rates(&webhook_client(WEBHOOK), FaultRates::default());
        }
        6 | 7 => restore_backup(cluster, rng).await,
        _ => {
            faults.partition(component);
            cluster.sleep(seconds(rng, 20)).await;
            faults.heal(component);
        }
    }
}

fn seconds(rng: &mut ChaCha8Rng, max: u32) -> Duration {
    Duration::from_secs(1 + u64::from(rng.next_u32() % max))
}

/// The API server restarts: no connection, then not ready, then ready.
async fn restart_server(cluster: &TestCluster, rng: &mut ChaCha8Rng) {
    partition(cluster);
    cluster.sleep(seconds(rng, 15)).await;
    heal(cluster);
    for name in COMPONENTS {
        cluster.backend.faults().set_outage(name, Outage::all_requests(503).retry_after(1));
    }
    cluster.sleep(seconds(rng, 5)).await;
    heal(cluster);
}

/// A rolling upgrade of two servers: one client after another has to connect to the other server, whose watch cache is
/// behind.
async fn upgrade_servers(cluster: &TestCluster, rng: &mut ChaCha8Rng, rates: FaultRates) {
    let faults = cluster.backend.faults();
    for _ in 0..2 {
        for name in COMPONENTS {
            faults.set_client_rates(name, FaultRates { watch_lagging: 1_000_000, ..rates });
            faults.partition(name);
            cluster.sleep(Duration::from_millis(1)).await;
            faults.heal(name);
            cluster.sleep(seconds(rng, 4)).await;
        }
    }
    set_rates(cluster, rates);
}

/// etcd is restored from a backup that is some seconds old, with a higher revision as Kubernetes recommends, and the API
/// servers restart. Where resource versions are used again, every client has to be restarted as well.
async fn restore_backup(cluster: &TestCluster, rng: &mut ChaCha8Rng) {
    let server = cluster.backend.server();
    let backup = server.back_up();
    cluster.sleep(seconds(rng, 30)).await;
    partition(cluster);
    server.restore(&backup, RestoredRevision::Bumped);
    cluster.sleep(seconds(rng, 15)).await;
    heal(cluster);
}
