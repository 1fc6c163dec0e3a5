//! Random workloads on the real control plane while its programs, the components and the nodes fail: `cargo xtask soak`.
//!
//! Every component runs twice, as processes. They are killed with SIGKILL or stopped for a while, leases change hands,
//! kube-apiserver, etcd and kube-controller-manager are killed and restarted, and nodes fail. The [`observer`] checks the
//! [`laws`] from watches and from the audit log, without any code of the components. After every phase of faults the
//! workloads are reduced to what fits, and the cluster must become quiet. Phases alternate between direct binding and bind
//! requests.
//!
//! `KAI_SOAK_MINUTES` sets the duration, `KAI_SOAK_SEED` the random numbers.

#![expect(clippy::print_stdout, reason = "a run of minutes prints its progress")]

mod audit_log;
mod faults;
mod laws;
mod memory;
mod observer;
mod workloads;

use super::control_plane::{NAMESPACE, Plane};
use crate::test_cluster::TestCluster;
use audit_log::AuditLog;
use faults::Faults;
use futures::FutureExt as _;
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::Programs;
use kai_sim::NodeGroup;
use kai_sim::node::Taint;
use memory::Memory;
use observer::Observer;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use workloads::{DEVICES_TAINT, Workloads};

const POOL: &str = "soak";
const NODES: usize = 4;
const GPUS: u32 = 4;
/// Devices of the node that publishes them in a `ResourceSlice`.
const DEVICES: u32 = 3;
/// Faults occur for so long before the cluster must become quiet.
const PHASE: Duration = Duration::from_secs(75);
/// Time between faults; changes of the workloads are more frequent.
const FAULT_PERIOD: Duration = Duration::from_secs(4);
const PROGRESS_PERIOD: Duration = Duration::from_secs(15);
/// How long the cluster may take to become quiet: failed nodes, lost leases, restarts, backoff.
const QUIET_WITHIN: Duration = Duration::from_mins(4);

type Soak = TestCluster<Arc<Plane>>;

struct Random(ChaCha8Rng);

impl Random {
    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.0.next_u32() as usize % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

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
        let run = soak(&plane, Duration::from_secs(60 * minutes), seed);
        if let Err(panic) = AssertUnwindSafe(run).catch_unwind().await {
            let kept = plane.folder().join("audit.log");
            let copied = std::fs::copy(plane.control().audit_file(), &kept);
            println!("logs and observed events are in {} ({copied:?})", plane.folder().display());
            std::panic::resume_unwind(panic);
        }
    });
}

async fn soak(plane: &Arc<Plane>, time: Duration, seed: u64) {
    let nodes = NodeGroup { racks: 2, cpu: "16".to_owned(), ..NodeGroup::gpu_nodes(NODES, GPUS) };
    let cluster = plane.test_cluster(POOL, nodes).await;
    let with_claims = plane.serves_resource_claims().await;
    if with_claims {
        let name = format!("{POOL}-devices");
        let (key, value) = (DEVICES_TAINT.to_owned(), String::new());
        let taints = vec![Taint { key, value, effect: "NoSchedule".to_owned() }];
        let nodes = NodeGroup { name, dra: true, taints, ..NodeGroup::gpu_nodes(1, DEVICES) };
        plane.add_pool_nodes(POOL, nodes).await;
    } else {
        println!("no claims: the server has no resource.k8s.io/v1");
    }
    plane.start_second_replicas();
    let observer = Observer::start(plane, plane.folder(), with_claims);
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    let mut workloads = Workloads::prepare(&cluster, with_claims).await;
    let mut faults = Faults::new();
    let mut memory = Memory::default();
    let watch = Stopwatch::start();
    let (mut phases, mut quiet_times) = (0, Vec::new());
    while watch.elapsed() < time {
        phases += 1;
        // Each way of binding takes over what the other one left behind.
        let binds_directly = phases % 2 == 1;
        plane.switch_binding(POOL, binds_directly);
        let way = if binds_directly { "direct binding" } else { "bind requests" };
        println!("{:7.1} s phase {phases}: workloads and faults with {way}", watch.elapsed().as_secs_f64());
        let end = (watch.elapsed() + PHASE).min(time);
        let mut run =
            Run { random: &mut random, workloads: &mut workloads, faults: &mut faults, memory: &mut memory };
        disturb(&cluster, &observer, &mut run, (&watch, end)).await;
        println!("{:7.1} s no more faults", watch.elapsed().as_secs_f64());
        let becoming_quiet = Stopwatch::start();
        become_quiet(&cluster, &observer, &mut workloads, &mut faults).await;
        quiet_times.push(becoming_quiet.elapsed().as_secs());
        memory.quiet(plane);
        println!("{:7.1} s quiet: {}", watch.elapsed().as_secs_f64(), observer.progress());
    }
    workloads.delete_all(&cluster).await;
    observer.wait_until_empty(QUIET_WITHIN).await;
    observer.assert_holds();
    plane.assert_no_panic();
    let log = AuditLog::read(&plane.control().audit_file(), NAMESPACE);
    log.assert_bound_once();
    println!(
        "{:7.1} s passed; {phases} phases of faults, quiet after {quiet_times:?} s",
        watch.elapsed().as_secs_f64()
    );
    println!("  workloads: {}", workloads.summary());
    println!("  faults: {}", faults.summary());
    println!("  observed: {}", observer.summary());
    println!("  audit log: {}", log.summary());
    println!("  memory: {}", memory.summary());
    memory.assert_bounded();
}

/// What changes during a run.
struct Run<'a> {
    random: &'a mut Random,
    workloads: &'a mut Workloads,
    faults: &'a mut Faults,
    memory: &'a mut Memory,
}

/// Changes workloads and causes faults until `end`.
async fn disturb(
    cluster: &Soak,
    observer: &Observer,
    run: &mut Run<'_>,
    (watch, end): (&Stopwatch, Duration),
) {
    let Run { random, workloads, faults, memory } = run;
    let say = |what: &str| println!("{:7.1} s {what}", watch.elapsed().as_secs_f64());
    let (mut next_fault, mut next_progress) =
        (watch.elapsed() + FAULT_PERIOD, watch.elapsed() + PROGRESS_PERIOD);
    while watch.elapsed() < end {
        workloads.change(cluster, random).await;
        if watch.elapsed() >= next_fault {
            memory.begin(&cluster.backend);
            let caused = faults.cause(cluster, random).await;
            say(&caused);
            memory.name(&caused);
            next_fault = watch.elapsed() + FAULT_PERIOD;
        }
        for what in faults.end_due(cluster).await {
            say(&what);
        }
        cluster.backend.control().start_controllers_again().unwrap();
        for name in cluster.backend.start_ended_again() {
            faults.count("EndedWithoutLease");
            say(&format!("{name} lost its lease and is started again"));
        }
        if watch.elapsed() >= next_progress {
            say(&observer.progress());
            next_progress = watch.elapsed() + PROGRESS_PERIOD;
        }
        observer.assert_holds();
        cluster.sleep(Duration::from_millis(300 + random.below(700) as u64)).await;
    }
}

/// Ends all faults and deletes workloads until all others fit: then all of them run, and nothing else remains.
async fn become_quiet(cluster: &Soak, observer: &Observer, workloads: &mut Workloads, faults: &mut Faults) {
    faults.end_all(cluster).await;
    workloads.reduce(cluster).await;
    let plane = &cluster.backend;
    let incomplete = || {
        plane.control().start_controllers_again().unwrap();
        for name in plane.start_ended_again() {
            println!("          {name} lost its lease and is started again");
        }
        workloads.incomplete(observer)
    };
    observer.wait_until_quiet(QUIET_WITHIN, incomplete).await;
    observer.assert_holds();
    plane.assert_no_panic();
}
