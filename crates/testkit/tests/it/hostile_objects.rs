//! Unexpected objects through the cache and the planner, without a server: whatever the objects contain and in whichever
//! order they come and go, nothing panics, no decision breaks an invariant, and the cluster model equals a rebuilt one.
//!
//! A seed takes a tenth of a second; `KAI_HOSTILE_MODEL_SEEDS=0..10000` selects others. The whole system gets the same objects in
//! `crates/cli/tests/system/hostile_tenants.rs`.

use kai_cache::object::device::ResourceClaim;
use kai_cache::object::{BindRequest, Node, Pod, PodGroup, Queue, Topology};
use kai_cache::object::{ConfigMap, PersistentVolumeClaim, PodDisruptionBudget};
use kai_cache::{Cache, Object, Settings, Store};
use kai_engine::plugin::PluginSet;
use kai_engine::{Config, Cycle, Outcome, Params, Policy, audit, plan};
use kai_testkit::hostile::{self, HostileObject, NAMESPACE};
use kai_units::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The first of July 2026.
const NOW: Timestamp = Timestamp(1_782_864_000_000_000);
/// Changes of one seed, and changes between two cycles.
const CHANGES: usize = 120;
const CYCLE_EVERY: usize = 12;
/// Phases of pods, and one that does not exist.
const PHASES: [&str; 6] = ["Pending", "Running", "Succeeded", "Failed", "Unknown", "Absurd"];
const NODES: [&str; 3] = ["n0", "n1", "no-such-node"];

fn decode<T: DeserializeOwned + Into<Object>>(object: Value) -> Option<Object> {
    serde_json::from_value::<T>(object).ok().map(Into::into)
}

/// An object as the scheduler's informers store it; none for kinds that it does not watch, and for what does not
/// deserialise.
fn stored(kind: &str, object: Value) -> Option<Object> {
    match kind {
        "Pod" => decode::<Pod>(object),
        "Node" => decode::<Node>(object),
        "Queue" => decode::<Queue>(object),
        "PodGroup" => decode::<PodGroup>(object),
        "BindRequest" => decode::<BindRequest>(object),
        "Topology" => decode::<Topology>(object),
        "ConfigMap" => decode::<ConfigMap>(object),
        "PersistentVolumeClaim" => decode::<PersistentVolumeClaim>(object),
        "PodDisruptionBudget" => decode::<PodDisruptionBudget>(object),
        "ResourceClaim" => decode::<ResourceClaim>(object),
        _ => None,
    }
}

/// The random stream of a seed.
struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Two nodes and a queue: something can be placed.
fn basics() -> Vec<Object> {
    let node = |name: &str| {
        let capacity = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
        json!({"metadata": {"name": name, "labels": {"nvidia.com/gpu.memory": "40960"}}, "status": {
            "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}],
        }})
    };
    let share = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
    let queue = json!({"metadata": {"name": "good"}, "spec": {"resources": {
        "cpu": share, "memory": share, "gpu": share,
    }}});
    let objects = [stored("Node", node("n0")), stored("Node", node("n1")), stored("Queue", queue)];
    objects.into_iter().flatten().collect()
}

/// An object of the seed as the server may have it at some time: bound, ended, or half deleted.
fn state_of(random: &mut Random, generated: &HostileObject, number: usize) -> Value {
    let mut object = generated.object.clone();
    if let Some(status) = &generated.status {
        object["status"] = status.clone();
    }
    object["metadata"]["uid"] = json!(format!("u{number}"));
    object["metadata"]["creationTimestamp"] = json!("2026-06-30T00:00:00Z");
    if random.below(8) == 0 {
        object["metadata"]["deletionTimestamp"] = json!("2026-06-30T23:59:00Z");
    }
    match generated.resource.kind {
        "Pod" => {
            let phase = *random.pick(&PHASES);
            if !object["status"].is_object() {
                object["status"] = json!({});
            }
            object["status"]["phase"] = json!(phase);
            if phase != "Pending" || random.below(4) == 0 {
                object["spec"]["nodeName"] = json!(random.pick(&NODES));
            }
            if random.below(3) == 0 {
                object["metadata"]["labels"]["runai-gpu-group"] = json!(format!("g{}", random.below(3)));
            }
        }
        "BindRequest" if random.below(2) == 0 => {
            object["spec"]["selectedNode"] = json!(random.pick(&NODES));
        }
        _ => {}
    }
    object
}

fn cycle(cache: &mut Cache, policy: &Policy, seed: u64) -> Outcome {
    let cluster = cache.cluster_mut();
    let outcome = plan(cluster, policy, Cycle { now: NOW, seed: 7 });
    assert_eq!(audit::audit(cluster, policy, &outcome), [], "seed {seed}: no invariant is violated");
    assert!(
        !outcome.verdicts.iter().any(|verdict| format!("{:?}", verdict.leading).starts_with("Quarantined")),
        "seed {seed}: a panic was caught: {:?}",
        outcome.verdicts
    );
    outcome
}

fn run(seed: u64) {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed ^ 0x5eed));
    let generated = hostile::generate(seed).objects;
    let policy = Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin());
    let mut cache = Cache::new(Settings::default());
    for object in basics() {
        cache.apply(object);
    }
    let mut applied = 0;
    for change in 0..CHANGES {
        let number = random.below(generated.len());
        let of = &generated[number];
        let object = state_of(&mut random, of, number);
        let Some(object) = stored(of.resource.kind, object) else { continue };
        if random.below(5) == 0 {
            cache.delete(object.kind(), &object.key());
        } else {
            cache.apply(object);
            applied += 1;
        }
        if change % CYCLE_EVERY == 0 {
            cycle(&mut cache, &policy, seed);
        }
    }
    assert!(applied > CHANGES / 8, "seed {seed}: only {applied} objects of {NAMESPACE} were stored");
    let kept = cycle(&mut cache, &policy, seed);
    let _ = (cache.findings(), cache.obsolete_bind_requests());
    let mut rebuilt = Cache::of(Store::of(Settings::default(), cache.store().objects().clone()));
    assert_eq!(
        kept.hash,
        cycle(&mut rebuilt, &policy, seed).hash,
        "seed {seed}: the model equals a rebuilt one"
    );
}

#[test]
fn unexpected_objects_neither_panic_nor_break_an_invariant() {
    let seeds = match std::env::var("KAI_HOSTILE_MODEL_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("a range such as 0..100");
            from.parse().expect("a number")..to.parse().expect("a number")
        }
        Err(_) => 0..100,
    };
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!(
                "seed {seed} failed; repeat it with\n  KAI_HOSTILE_MODEL_SEEDS={seed}..{} cargo test -p kai-testkit --test it \
                 hostile_objects",
                seed + 1
            );
            std::panic::resume_unwind(panic);
        }
    }
}
