//! Two copies of every component, and leases that get lost: whoever leads no longer writes nothing, and nobody is bound
//! twice.

use super::{GPUS, Judge, NODES, converge, delete_some, in_virtual_time, submit, truth};
use crate::copies::{self, COPIES};
use crate::world::World;
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, LEASE, POD};
use kai_runtime::watch::{self, News, Source};
use kai_sim::{NodeGroup, Rates};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

#[test]
fn seeds_0_to_14_hold_the_laws_while_leases_get_lost() {
    live_through(0..15);
}

#[test]
fn seeds_15_to_29_hold_the_laws_while_leases_get_lost() {
    live_through(15..30);
}

#[test]
fn wanted_seeds_hold_the_laws_while_leases_get_lost() {
    let Ok(text) = std::env::var("KAI_SYSTEM_LEASE_SEEDS") else {
        eprintln!("skipped: `KAI_SYSTEM_LEASE_SEEDS` names no seeds, such as 30..60");
        return;
    };
    let (first, end) = text.split_once("..").expect("a range such as 30..60");
    live_through(first.parse().expect("a number")..end.parse().expect("a number"));
}

fn live_through(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let life = std::panic::AssertUnwindSafe(|| in_virtual_time(live(seed)));
        if let Err(panic) = std::panic::catch_unwind(life) {
            eprintln!(
                "seed {seed} failed; repeat it with\n  KAI_SYSTEM_LEASE_SEEDS={seed}..{} \
                 cargo test -p kai-cli --test system wanted_seeds_hold_the_laws_while_leases",
                seed + 1
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// One life of a cluster in which leaders change.
async fn live(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes = [NodeGroup::gpu_nodes(NODES as usize, u32::try_from(GPUS).unwrap_or(0))];
    let (world, _) = copies::world(seed, nodes, &truth::options()).await;
    world.queue("a", 6).await;
    world.queue("b", 6).await;
    let judge = Judge::watch(&world);
    let bindings = Bindings::watch(&world);
    for name in names() {
        let rates = Rates { crash: rng.next_u32() % 2_000, ..Rates::bad_day() };
        world.cluster.faults().set_rates_of(name, rates);
    }
    let mut submitted = 0;
    for round in 0..6 {
        submitted += submit(&world, &mut rng, round).await;
        unseat(&world, &mut rng).await;
        world.pass(Duration::from_secs(2 + u64::from(rng.next_u32() % 30))).await;
        judge.is_content(seed);
        bindings.are_final(seed);
        if rng.next_u32().is_multiple_of(2) {
            submitted -= delete_some(&world, &mut rng).await;
        }
    }
    heal(&world);
    converge(&world, seed, submitted).await;
    judge.is_content(seed);
    bindings.are_final(seed);
    truth::holds(&world, seed).await;
}

fn names() -> impl Iterator<Item = &'static str> {
    COPIES.into_iter().flat_map(|(_, names)| names)
}

/// Takes the lease away from a leader: it is cut off, or dies, or somebody else writes their name into the lease.
async fn unseat(world: &World, rng: &mut ChaCha8Rng) {
    let (component, _) = COPIES[rng.next_u32() as usize % COPIES.len()];
    let Some(leader) = copies::leader(world, component).await else { return };
    let faults = world.cluster.faults();
    match rng.next_u32() % 4 {
        0 => {
            faults.partition(leader);
            world.pass(Duration::from_secs(5 + u64::from(rng.next_u32() % 40))).await;
            faults.heal(leader);
        }
        1 => faults.crash(leader),
        2 => {
            let key = Key::new("kai-scheduler", component.name());
            let taken = json!({"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 5}});
            world.api().merge(&LEASE, &key, Part::Main, &taken).await.unwrap();
        }
        _ => {}
    }
}

fn heal(world: &World) {
    let faults = world.cluster.faults();
    for name in names() {
        faults.set_rates_of(name, Rates::default());
        faults.heal(name);
    }
}

/// Watches that a pod that has a node keeps it.
struct Bindings {
    complaints: Arc<Mutex<Vec<String>>>,
    _watch: JoinSet<()>,
}

impl Bindings {
    fn watch(world: &World) -> Self {
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let (api, told) = (world.api().clone(), Arc::clone(&complaints));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut nodes: BTreeMap<String, String> = BTreeMap::new();
            let freshness = Health::default().watch("pods");
            watch::follow(&api, &Source::all(POD), &freshness, |news: News<Value>| {
                let (News::Applied(pod) | News::Gone(pod)) = news else { return };
                let node = object::str_at(&pod, "/spec/nodeName").to_owned();
                let known = nodes.entry(object::uid(&pod).to_owned()).or_default();
                if !known.is_empty() && *known != node {
                    let moved = format!("pod {} was on {known} and is on `{node}`", object::name(&pod));
                    told.lock().unwrap().push(moved);
                }
                *known = node;
            })
            .await;
        });
        Self { complaints, _watch: tasks }
    }

    fn are_final(&self, seed: u64) {
        let complaints = self.complaints.lock().unwrap();
        assert!(complaints.is_empty(), "seed {seed}: {complaints:?}");
    }
}
