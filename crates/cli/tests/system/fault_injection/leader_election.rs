//! Two replicas of every component, and leases that get lost: a former leader does not write, and no pod is bound twice.

use super::{
    GPUS, InvariantChecker, NODES, assert_no_panic, cache_consistency, converge, delete_pod, in_virtual_time,
    seeds_from, submit,
};
use crate::high_availability::{self, Clocks, REPLICAS, Terms};
use crate::hostile_tenants::observation;
use crate::test_cluster::TestCluster;
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, LEASE, POD};
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_sim::{FaultRates, NodeGroup};
use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

#[test]
fn seeds_0_to_14_keep_invariants_when_leaders_change() {
    run_seeds(0..15);
}

#[test]
fn seeds_15_to_29_keep_invariants_when_leaders_change() {
    run_seeds(15..30);
}

#[test]
#[ignore = "takes long: cargo xtask ci runs it; KAI_SYSTEM_LEASE_SEEDS=30..60 selects the seeds"]
fn further_seeds_keep_invariants_when_leaders_change() {
    run_seeds(seeds_from("KAI_SYSTEM_LEASE_SEEDS", 30..32));
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(|| in_virtual_time(run_seed(seed)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!(
                "seed {seed} failed; repeat it with\n  KAI_SYSTEM_LEASE_SEEDS={seed}..{} \
                 cargo test -p kai-cli --test system -- --ignored further_seeds_keep_invariants_when_leaders",
                seed + 1
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// One run in which leaders change.
async fn run_seed(seed: u64) {
    observation::watch_panics();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes = [NodeGroup::gpu_nodes(NODES as usize, u32::try_from(GPUS).unwrap_or(0))];
    let (mut clocks, options) = (Clocks::default(), cache_consistency::options());
    let cluster = TestCluster::with_components(seed, nodes, |cluster| {
        high_availability::join_with_clocks(cluster, &options, &Terms::default(), &mut clocks)
    })
    .await;
    cluster.create_queue("a", 6).await;
    cluster.create_queue("b", 6).await;
    let checker = InvariantChecker::watch(&cluster);
    let bindings = Bindings::watch(&cluster);
    for name in names() {
        let rates = FaultRates { crash: rng.next_u32() % 2_000, ..FaultRates::mixed() };
        cluster.backend.faults().set_client_rates(name, rates);
    }
    let mut submitted = 0;
    for round in 0..6 {
        submitted += submit(&cluster, &mut rng, round).await;
        depose_leader(&cluster, &mut rng, &clocks).await;
        cluster.sleep(Duration::from_secs(2 + u64::from(rng.next_u32() % 30))).await;
        checker.assert_holds(seed);
        bindings.assert_final(seed);
        if rng.next_u32().is_multiple_of(2) {
            submitted -= delete_pod(&cluster, &mut rng).await;
        }
    }
    heal(&cluster);
    for clock in clocks.values() {
        clock.reset();
    }
    converge(&cluster, seed, submitted).await;
    checker.assert_holds(seed);
    bindings.assert_final(seed);
    cache_consistency::assert_consistent(&cluster, seed).await;
    assert_no_panic(seed);
}

fn names() -> impl Iterator<Item = &'static str> {
    REPLICAS.into_iter().flat_map(|(_, names)| names)
}

/// Makes a leader lose its lease: by a partition, a crash, or another holder in the lease. Or sets the clock of any replica
/// by an hour, which must not matter: machines do not agree on the time.
async fn depose_leader(cluster: &TestCluster, rng: &mut ChaCha8Rng, clocks: &Clocks) {
    let (component, _) = REPLICAS[rng.next_u32() as usize % REPLICAS.len()];
    let Some(leader) = high_availability::leader(cluster, component).await else { return };
    let faults = cluster.backend.faults();
    match rng.next_u32() % 5 {
        0 => {
            faults.partition(leader);
            cluster.sleep(Duration::from_secs(5 + u64::from(rng.next_u32() % 40))).await;
            faults.heal(leader);
        }
        1 => faults.crash(leader),
        2 => {
            let key = Key::new("kai-scheduler", component.name());
            let taken = json!({"spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 5}});
            cluster.api().patch_dynamic(&LEASE, &key, Part::Main, &taken).await.unwrap();
        }
        3 => {
            let (_, replicas) = REPLICAS[rng.next_u32() as usize % REPLICAS.len()];
            let replica = replicas[rng.next_u32() as usize % replicas.len()];
            let hours = if rng.next_u32().is_multiple_of(2) { 1 } else { -1 };
            clocks[replica].jump(hours * 3_600);
        }
        _ => {}
    }
}

fn heal(cluster: &TestCluster) {
    let faults = cluster.backend.faults();
    for name in names() {
        faults.set_client_rates(name, FaultRates::default());
        faults.heal(name);
    }
}

/// Checks that a bound pod keeps its node.
struct Bindings {
    violations: Arc<Mutex<Vec<String>>>,
    _watch: JoinSet<()>,
}

impl Bindings {
    fn watch(cluster: &TestCluster) -> Self {
        let violations = Arc::new(Mutex::new(Vec::new()));
        let (api, found) = (cluster.api().clone(), Arc::clone(&violations));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut nodes: BTreeMap<String, String> = BTreeMap::new();
            let freshness = Health::default().watch("pods");
            watch::list_and_watch(&api, &Source::all(POD), &freshness, |event: WatchEvent<Value>| {
                let (WatchEvent::Applied(pod) | WatchEvent::Deleted(pod)) = event else { return };
                let node = object::str_at(&pod, "/spec/nodeName").to_owned();
                let known = nodes.entry(object::uid(&pod).to_owned()).or_default();
                if !known.is_empty() && *known != node {
                    let moved = format!("pod {} was on {known} and is on `{node}`", object::name(&pod));
                    found.lock().push(moved);
                }
                *known = node;
            })
            .await;
        });
        Self { violations, _watch: tasks }
    }

    fn assert_final(&self, seed: u64) {
        let violations = self.violations.lock();
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    }
}
