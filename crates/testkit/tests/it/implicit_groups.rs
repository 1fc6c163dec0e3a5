//! Groups without an object decide as those that the pod grouper creates.

use kai_cache::object::{Node, Objects, Pod, PodGroup, PriorityClass, Queue};
use kai_cache::{ImplicitGroups, Object, Settings, Store};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::Config;
use kai_engine::{ClusterState, Cycle, Outcome, Params, Policy};
use kai_podgrouper::{Options, offline};
use kai_units::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};

const CLUSTERS: u64 = 200;

fn pick<'a, T>(rng: &mut ChaCha8Rng, from: &'a [T]) -> &'a T {
    &from[rng.next_u32() as usize % from.len()]
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    from_value(value).expect("a readable object")
}

fn queue(name: &str, quota: u32, limit: i64) -> Value {
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    json!({
        "metadata": {"name": name},
        "spec": {
            "parentQueue": "all",
            "resources": {
                "cpu": unlimited, "memory": unlimited,
                "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1},
            },
        },
    })
}

/// Queues, nodes and classes, by their kinds.
fn surroundings(rng: &mut ChaCha8Rng) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let all = json!({
        "metadata": {"name": "all"},
        "spec": {"resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}},
    });
    objects.push(read::<Queue>(all).into());
    for name in ["a", "b", "default-queue"] {
        let limit = *pick(rng, &[-1, 3, 6]);
        objects.push(read::<Queue>(queue(name, rng.next_u32() % 6, limit)).into());
    }
    for number in 0..=rng.next_u32() % 3 {
        let amounts = json!({"nvidia.com/gpu": "4", "cpu": "64", "memory": "64Gi", "pods": "100"});
        let node = json!({
            "metadata": {"name": format!("n{number}")},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        objects.push(read::<Node>(node).into());
    }
    for (name, value) in [("train", 50), ("build", 100), ("inference", 125)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        objects.push(read::<PriorityClass>(class).into());
    }
    objects
}

fn pod(rng: &mut ChaCha8Rng, number: u32) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("p{number}"), "namespace": "team", "uid": format!("0000-{number}"),
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", rng.next_u32() % 60),
            "labels": {}, "annotations": {},
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {
                "requests": {"cpu": "1", "nvidia.com/gpu": (1 + rng.next_u32() % 3).to_string()},
            }}],
        },
        "status": {"phase": "Pending"},
    });
    let labels = &mut pod["metadata"]["labels"];
    match rng.next_u32() % 6 {
        0 => {}
        1 => labels["project"] = json!("a"),
        other => labels["kai.scheduler/queue"] = json!(if other % 2 == 0 { "a" } else { "b" }),
    }
    match rng.next_u32() % 4 {
        0 => labels["priorityClassName"] = json!(*pick(rng, &["build", "inference", "", "train"])),
        1 => pod["spec"]["priorityClassName"] = json!(*pick(rng, &["build", "train"])),
        _ => {}
    }
    if rng.next_u32().is_multiple_of(4) {
        let text = *pick(rng, &["preemptible", "non-preemptible", "", "unknown"]);
        pod["metadata"]["labels"]["kai.scheduler/preemptibility"] = json!(text);
    }
    if rng.next_u32().is_multiple_of(3) {
        pod["spec"]["nodeName"] = json!(*pick(rng, &["n0", "n1"]));
        pod["status"]["phase"] = json!("Running");
    }
    if rng.next_u32().is_multiple_of(10) {
        // Such a pod keeps its object.
        pod["metadata"]["annotations"]["kai.scheduler/preemption-delay"] = json!("1h");
    }
    pod
}

fn outcome(mut store: Store) -> Outcome {
    let policy = Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin());
    let mut cluster = ClusterState::new();
    store.drain_into(&mut cluster);
    kai_engine::plan(&mut cluster, &policy, Cycle { now: Timestamp(1_780_000_000_000_000), seed: 7 })
}

#[test]
fn implicit_groups_decide_as_those_of_the_pod_grouper() {
    let (mut placed, mut evicted, mut implicit_groups) = (0, 0, 0);
    for seed in 0..CLUSTERS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut explicit = Objects::default();
        for object in surroundings(&mut rng) {
            explicit.insert(object);
        }
        let mut implicit = explicit.clone();
        for number in 0..12 {
            let pod = pod(&mut rng, number);
            let report = offline::group(std::slice::from_ref(&pod), &Options::default());
            assert_eq!((report.groups.len(), report.problems.len()), (1, 0), "seed {seed}: {report:?}");
            let mut group = report.groups[0].object();
            group["metadata"]["creationTimestamp"] = pod["metadata"]["creationTimestamp"].clone();
            group["metadata"]["uid"] = pod["metadata"]["uid"].clone();
            let group: PodGroup = from_value(group).unwrap();
            let needs_object = pod["metadata"]["annotations"] != json!({});
            let pod: Pod = from_value(pod).unwrap();
            explicit.insert(group.clone().into());
            explicit.insert(pod.clone().into());
            implicit.insert(pod.into());
            if needs_object {
                implicit.insert(group.into());
            }
        }
        let mode = Settings { implicit_groups: ImplicitGroups::OfAllPods, ..Settings::default() };
        let store = Store::of(mode, implicit);
        implicit_groups += store.implicit_groups().count();
        let (explicit, implicit) = (outcome(Store::of(Settings::default(), explicit)), outcome(store));
        assert_eq!(implicit.decisions, explicit.decisions, "seed {seed}");
        assert_eq!(implicit.verdicts, explicit.verdicts, "seed {seed}");
        assert_eq!(implicit.hash, explicit.hash, "seed {seed}");
        placed += implicit.decisions.len();
        evicted +=
            implicit.decisions.iter().filter(|of| matches!(of, kai_engine::Decision::Evict { .. })).count();
    }
    assert!(placed > 200 && evicted > 20 && implicit_groups > 2_000, "{placed} {evicted} {implicit_groups}");
}
