//! Random workloads on bad days: whatever fails, the laws hold at every moment, and after healing everything runs.
//!
//! Each seed draws a workload, and faults for every component: crashes between any two requests, answers that do not
//! come, watches that break, conflicts, partitions. `KAI_SYSTEM_SEEDS=200..300` runs others, and a failure prints the
//! command that repeats it.

mod leases;
mod truth;

use crate::world::{Pod, World};
use kai_cli::stack;
use kai_object as object;
use kai_runtime::api::Deletion;
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, POD};
use kai_runtime::watch::{self, News, Source};
use kai_scheduler::resources::BIND_REQUEST;
use kai_sim::journal::Digest;
use kai_sim::{NodeGroup, Rates};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NODES: u32 = 3;
const GPUS: i64 = 4;
const COMPONENTS: [&str; 5] = [
    stack::name::SCHEDULER,
    stack::name::BINDER,
    stack::name::GROUPER,
    stack::name::POD_GROUP_CONTROLLER,
    stack::name::QUEUE_CONTROLLER,
];

#[test]
fn seeds_0_to_49_hold_the_laws_and_run_in_the_end() {
    live_through(0..50);
}

#[test]
fn seeds_50_to_99_hold_the_laws_and_run_in_the_end() {
    live_through(50..100);
}

#[test]
fn seeds_100_to_149_hold_the_laws_and_run_in_the_end() {
    live_through(100..150);
}

#[test]
fn seeds_150_to_199_hold_the_laws_and_run_in_the_end() {
    live_through(150..200);
}

#[test]
fn wanted_seeds_hold_the_laws_and_run_in_the_end() {
    let Ok(text) = std::env::var("KAI_SYSTEM_SEEDS") else {
        eprintln!("skipped: `KAI_SYSTEM_SEEDS` names no seeds, such as 200..300");
        return;
    };
    let (first, end) = text.split_once("..").expect("a range such as 200..300");
    live_through(first.parse().expect("a number")..end.parse().expect("a number"));
}

/// Without this a seed that failed could not be repeated.
#[test]
fn the_same_seed_is_lived_the_same_way() {
    let lives: Vec<Digest> = (0..3).map(|_| in_virtual_time(live(7))).collect();
    assert!(lives.iter().all(|life| *life == lives[0]), "{lives:?}");
}

fn in_virtual_time<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(life)
}

/// Runs seeds one after the other, each on its own virtual clock.
fn live_through(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let lived = std::panic::catch_unwind(|| in_virtual_time(live(seed)));
        if let Err(panic) = lived {
            eprintln!(
                "seed {seed} failed; repeat it with\n  \
                 KAI_SYSTEM_SEEDS={seed}..{} cargo test -p kai-cli --test system wanted_seeds",
                seed + 1
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// One life of a cluster: trouble, then healing. Says what the whole history amounts to.
async fn live(seed: u64) -> Digest {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes = [NodeGroup::gpu_nodes(NODES as usize, u32::try_from(GPUS).unwrap_or(0))];
    let world = World::of(seed, nodes, &truth::options()).await;
    world.queue("a", 6).await;
    world.queue("b", 6).await;
    let judge = Judge::watch(&world);
    for name in COMPONENTS {
        let rates = Rates { crash: 2_000 + rng.next_u32() % 8_000, ..Rates::bad_day() };
        world.cluster.faults().set_rates_of(name, rates);
    }
    let mut submitted = 0;
    for round in 0..6 {
        submitted += submit(&world, &mut rng, round).await;
        if rng.next_u32().is_multiple_of(3) {
            let cut = COMPONENTS[rng.next_u32() as usize % COMPONENTS.len()];
            world.cluster.faults().partition(cut);
            world.pass(Duration::from_secs(5 + u64::from(rng.next_u32() % 20))).await;
            world.cluster.faults().heal(cut);
        }
        world.pass(Duration::from_secs(2 + u64::from(rng.next_u32() % 20))).await;
        judge.is_content(seed);
        if rng.next_u32().is_multiple_of(2) {
            submitted -= delete_some(&world, &mut rng).await;
        }
    }
    for name in COMPONENTS {
        world.cluster.faults().set_rates_of(name, Rates::default());
        world.cluster.faults().heal(name);
    }
    converge(&world, seed, submitted).await;
    judge.is_content(seed);
    truth::holds(&world, seed).await;
    world.cluster.journal().digest()
}

/// Submits something; says how many pods that is.
async fn submit(world: &World, rng: &mut ChaCha8Rng, round: u32) -> usize {
    let queue = if rng.next_u32().is_multiple_of(2) { "a" } else { "b" };
    match rng.next_u32() % 3 {
        0 => {
            let count = 1 + rng.next_u32() as usize % 2;
            for number in 0..count {
                world.pod(Pod::fraction(&format!("half-{round}-{number}"), queue, "0.5")).await;
            }
            count
        }
        1 => {
            world.gang(&format!("gang-{round}"), queue, 2, 1, json!({"priorityClassName": "train"})).await;
            2
        }
        _ => {
            world.pod(Pod::new(&format!("one-{round}"), queue, 1)).await;
            1
        }
    }
}

/// Deletes one pod on its own, if there is one; says how many that is.
async fn delete_some(world: &World, rng: &mut ChaCha8Rng) -> usize {
    let pods = world.list(&POD).await;
    let alone = |pod: &&Value| {
        let name = object::name(pod);
        (name.starts_with("one-") || name.starts_with("half-")) && !object::is_deleting(pod)
    };
    let pods: Vec<&Value> = pods.iter().filter(alone).collect();
    if pods.is_empty() {
        return 0;
    }
    let victim = pods[rng.next_u32() as usize % pods.len()];
    world.api().delete(&POD, &Key::of(victim), &Deletion::default()).await.unwrap();
    1
}

/// After healing everything that was submitted runs: it all fits. Nothing is left of what is gone.
async fn converge(world: &World, seed: u64, submitted: usize) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(20);
    loop {
        let mut pods = world.list(&POD).await;
        pods.extend(world.reservations().await);
        let ours = pods.iter().filter(|pod| object::namespace(pod) == "default" && !object::is_deleting(pod));
        let running = ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count();
        let orphans = orphans(&pods);
        let requests = world.list(&BIND_REQUEST).await;
        let open = requests.iter().filter(|request| request["status"]["phase"] != "Succeeded");
        let open: Vec<&str> = open.map(object::name).collect();
        if running == submitted && orphans.is_empty() && open.is_empty() {
            return;
        }
        let late = tokio::time::Instant::now() > deadline;
        let story = if late { world.story().await } else { String::new() };
        assert!(
            !late,
            "seed {seed}: {running} of {submitted} pods run, reservations without a use: {orphans:?}, bind requests \
             that nobody finished: {open:?}\n{story}"
        );
        world.pass(Duration::from_secs(5)).await;
    }
}

/// Reservation pods of GPU groups that no pod uses.
fn orphans(pods: &[Value]) -> Vec<String> {
    let group = |pod: &Value| object::str_at(pod, "/metadata/labels/runai-gpu-group").to_owned();
    let reserves = |pod: &&Value| object::namespace(pod) == "kai-resource-reservation";
    let used: Vec<String> = pods.iter().filter(|pod| !reserves(pod)).map(group).collect();
    pods.iter().filter(reserves).map(group).filter(|group| !used.contains(group)).collect()
}

/// Watches every change and finds what must not be.
pub(crate) struct Judge {
    complaints: Arc<Mutex<Vec<String>>>,
    _watch: tokio::task::JoinSet<()>,
}

impl Judge {
    pub(crate) fn watch(world: &World) -> Self {
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let (api, told) = (world.api().clone(), Arc::clone(&complaints));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let mut pods: BTreeMap<Key, Value> = BTreeMap::new();
            let freshness = Health::default().watch("pods");
            let source = Source::all(POD);
            watch::follow(&api, &source, &freshness, |news: News<Value>| {
                see(&mut pods, news);
                told.lock().unwrap().extend(broken_laws(&pods));
            })
            .await;
        });
        Self { complaints, _watch: tasks }
    }

    pub(crate) fn is_content(&self, seed: u64) {
        let complaints = self.complaints.lock().unwrap();
        assert!(complaints.is_empty(), "seed {seed}: {complaints:?}");
    }
}

fn see(pods: &mut BTreeMap<Key, Value>, news: News<Value>) {
    match news {
        News::All(all, _) => *pods = all.into_iter().map(|pod| (Key::of(&pod), pod)).collect(),
        News::Applied(pod) => {
            pods.insert(Key::of(&pod), pod);
        }
        News::Gone(pod) => {
            pods.remove(&Key::of(&pod));
        }
        News::Unreadable(key, why) => panic!("{key}: {why}"),
    }
}

/// No node gives more GPUs than it has, and no GPU more than itself.
fn broken_laws(pods: &BTreeMap<Key, Value>) -> Vec<String> {
    let mut by_node: BTreeMap<&str, i64> = BTreeMap::new();
    let mut by_group: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for pod in pods.values() {
        let (node, phase) = (object::str_at(pod, "/spec/nodeName"), object::str_at(pod, "/status/phase"));
        if node.is_empty() || matches!(phase, "Succeeded" | "Failed") {
            continue;
        }
        let gpus = object::str_at(pod, "/spec/containers/0/resources/limits/nvidia.com~1gpu");
        *by_node.entry(node).or_default() += gpus.parse::<i64>().unwrap_or(0);
        let group = object::str_at(pod, "/metadata/labels/runai-gpu-group");
        if !group.is_empty() && object::namespace(pod) == "default" {
            *by_group.entry((node, group)).or_default() += 1;
        }
    }
    let nodes = by_node.into_iter().filter(|(_, gpus)| *gpus > GPUS);
    let nodes = nodes.map(|(node, gpus)| format!("{gpus} GPUs are given on {node}, which has {GPUS}"));
    let groups = by_group.into_iter().filter(|(_, halves)| *halves > 2);
    let groups = groups.map(|((node, group), halves)| format!("{halves} halves of GPU {group} on {node}"));
    nodes.chain(groups).collect()
}
