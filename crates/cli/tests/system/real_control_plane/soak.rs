//! Random workloads on the real control plane while its programs and the components are killed: `cargo xtask soak`.
//!
//! Every component runs twice, as processes. One after another is killed with SIGKILL, kube-apiserver and etcd are killed and
//! restarted, and leases change hands. The [`observer`] checks the laws from watches and from the audit log, without any
//! code of the components. `KAI_SOAK_MINUTES` sets the duration, `KAI_SOAK_SEED` the random numbers.

mod observer;

use super::control_plane::{NAMESPACE, Plane};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::{Killed, Programs};
use kai_object as object;
use kai_runtime::api::{self, DeleteOptions, Part};
use kai_runtime::kind::{JOB, Key, LEASE, POD, ResourceKind};
use kai_scheduler::resources::POD_GROUP;
use kai_sim::NodeGroup;
use observer::Observer;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const POOL: &str = "soak";
const NODES: usize = 3;
const GPUS: u32 = 4;
/// Workloads that exist at a time; together they request more than the nodes have.
const WORKLOADS_MAX: usize = 14;
/// How long the cluster may take to become quiet at the end: a lost lease, restarts, backoff.
const QUIET_WITHIN: Duration = Duration::from_mins(3);
/// How long a write is repeated while the API server is down.
const WRITE_WITHIN: Duration = Duration::from_mins(1);

type Soak = TestCluster<Arc<Plane>>;

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it for two minutes; cargo xtask soak --minutes N for longer"]
fn laws_hold_while_workloads_run_and_processes_are_killed() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    let number = |variable: &str, default: u64| match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("`{variable}` is no number: {text}")),
        Err(_) => default,
    };
    let (minutes, seed) = (number("KAI_SOAK_MINUTES", 2), number("KAI_SOAK_SEED", 1));
    println!("seed {seed}, {minutes} minutes");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "soak").await);
        let cluster = plane.test_cluster(POOL, NodeGroup::gpu_nodes(NODES, GPUS)).await;
        for (queue, quota) in [("a", 8), ("b", 4)] {
            cluster.create_queue(queue, quota).await;
        }
        plane.start_second_replicas();
        let observer = Observer::start(&plane, i64::from(GPUS));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let watch = Stopwatch::start();
        let mut rounds = 0;
        let mut workloads = Vec::new();
        while watch.elapsed() < Duration::from_secs(60 * minutes) {
            rounds += 1;
            change_workloads(&cluster, &mut rng, rounds, &mut workloads).await;
            if rounds % 4 == 0 {
                let what = disturb(&cluster, &mut rng).await;
                println!("{:6.1} s {what}", watch.elapsed().as_secs_f64());
            }
            cluster.sleep(Duration::from_millis(500 + u64::from(rng.next_u32() % 1_500))).await;
            for name in plane.start_ended_again() {
                println!("{:6.1} s {name} ended and is started again", watch.elapsed().as_secs_f64());
            }
            observer.assert_holds();
        }
        println!("{:6.1} s no more faults", watch.elapsed().as_secs_f64());
        end(&cluster, &observer, &workloads).await;
        for name in plane.component_names() {
            let log = plane.log_of(&name);
            let panic = log.lines().find(|line| line.contains("panicked at"));
            assert_eq!(panic, None, "{name}");
        }
        println!("{:6.1} s passed: {}", watch.elapsed().as_secs_f64(), observer.summary());
    });
}

/// A submitted workload and the names of what it consists of.
struct Workload {
    name: String,
    kind: &'static str,
}

/// Creates or deletes a workload.
async fn change_workloads(cluster: &Soak, rng: &mut ChaCha8Rng, round: usize, workloads: &mut Vec<Workload>) {
    if workloads.len() >= WORKLOADS_MAX || (!workloads.is_empty() && rng.next_u32().is_multiple_of(4)) {
        let gone = workloads.swap_remove(rng.next_u32() as usize % workloads.len());
        delete(cluster, &gone).await;
        return;
    }
    let queue = if rng.next_u32().is_multiple_of(2) { "a" } else { "b" };
    let kind = ["one", "one", "half", "half", "gang", "job", "two"][rng.next_u32() as usize % 7];
    let name = format!("{kind}-{round}");
    match kind {
        "gang" => {
            let members = 2 + rng.next_u32() as usize % 3;
            let metadata = json!({"name": name, "labels": {"kai.scheduler/queue": queue}});
            create(
                cluster,
                &POD_GROUP,
                json!({"metadata": metadata, "spec": {"minMember": members, "queue": queue}}),
            )
            .await;
            for number in 0..members {
                let pod = PodBuilder::new(&format!("{name}-{number}"), queue, 1).pod_group(&name);
                create(cluster, &POD, pod.object).await;
            }
        }
        "job" => {
            let mut template = PodBuilder::new("x", queue, 1).template();
            template["spec"]["restartPolicy"] = Value::from("Never");
            let spec = json!({"parallelism": 2, "completions": 2, "template": template});
            let metadata = json!({"name": name, "labels": {"kai.scheduler/queue": queue}});
            create(cluster, &JOB, json!({"metadata": metadata, "spec": spec})).await;
        }
        "half" => create(cluster, &POD, PodBuilder::fraction(&name, queue, "0.5").object).await,
        "two" => create(cluster, &POD, PodBuilder::new(&name, queue, 2).object).await,
        _ => create(cluster, &POD, PodBuilder::new(&name, queue, 1).object).await,
    }
    workloads.push(Workload { name, kind });
}

async fn delete(cluster: &Soak, workload: &Workload) {
    match workload.kind {
        "gang" => {
            for number in 0..4 {
                remove(cluster, &POD, &format!("{}-{number}", workload.name)).await;
            }
            remove(cluster, &POD_GROUP, &workload.name).await;
        }
        "job" => remove(cluster, &JOB, &workload.name).await,
        _ => remove(cluster, &POD, &workload.name).await,
    }
}

/// Creates an object, however long the API server is down. That it exists already means that a response was lost.
async fn create(cluster: &Soak, kind: &ResourceKind, object: Value) {
    let object = cluster.complete(kind, object);
    let namespace = cluster.namespace();
    repeat(async || match cluster.api().create_dynamic(kind, namespace, &object).await {
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    })
    .await;
}

async fn remove(cluster: &Soak, kind: &ResourceKind, name: &str) {
    let (key, how) = (Key::new(cluster.namespace(), name), DeleteOptions::default().propagate("Background"));
    repeat(async || match cluster.api().delete_dynamic(kind, &key, &how).await {
        // It was evicted, or never accepted.
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    })
    .await;
}

async fn repeat(write: impl AsyncFn() -> api::Result<()>) {
    let watch = Stopwatch::start();
    while let Err(error) = write().await {
        assert!(watch.elapsed() < WRITE_WITHIN, "a write fails for a minute: {error}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Kills or deposes something; returns what.
async fn disturb(cluster: &Soak, rng: &mut ChaCha8Rng) -> String {
    let plane = &cluster.backend;
    let pause = Duration::from_millis(u64::from(rng.next_u32() % 3_000));
    match rng.next_u32() % 8 {
        0 => {
            plane.control().restart(Killed::ApiServer, pause).await.unwrap();
            "kube-apiserver was killed and is ready again".to_owned()
        }
        1 => {
            plane.control().restart(Killed::Store, pause).await.unwrap();
            "etcd was killed and is ready again".to_owned()
        }
        2 => {
            let leases = cluster.api().list_dynamic(&LEASE, NAMESPACE).await;
            let Some(lease) = leases.ok().and_then(|leases| {
                let count = leases.items.len().max(1);
                leases.items.into_iter().nth(rng.next_u32() as usize % count)
            }) else {
                return "no lease could be read".to_owned();
            };
            let taken = json!({"spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 2}});
            let written =
                cluster.api().patch_dynamic(&LEASE, &kai_runtime::key_of(&lease), Part::Main, &taken).await;
            format!("the lease {} was taken: {}", object::name(&lease), written.is_ok())
        }
        _ => {
            let names = plane.component_names();
            let name = &names[rng.next_u32() as usize % names.len()];
            plane.kill_component(name);
            tokio::time::sleep(pause).await;
            plane.start_again(name);
            format!("{name} was killed")
        }
    }
}

/// Without faults and with fewer workloads than fit, all of them run, and nothing else remains.
async fn end(cluster: &Soak, observer: &Observer, workloads: &[Workload]) {
    cluster.backend.start_ended_again();
    let (kept, gone): (Vec<&Workload>, Vec<&Workload>) =
        workloads.iter().partition(|workload| matches!(workload.kind, "one" | "half"));
    for workload in gone.into_iter().chain(kept.iter().copied().skip(NODES * GPUS as usize)) {
        delete(cluster, workload).await;
    }
    observer.wait_until_quiet(QUIET_WITHIN).await;
    observer.assert_holds();
    observer.check_audit_log().await;
    for workload in kept {
        delete(cluster, workload).await;
    }
    observer.wait_until_empty(QUIET_WITHIN).await;
    observer.assert_holds();
}
