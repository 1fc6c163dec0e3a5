//! A change that needs another pod of the scheduler rolls with a hand-over of the lease, while pods are bound.

use crate::migration;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::SchedulingShard;
use kai_clock::Clock;
use kai_components::{COMPONENTS, Component, ComponentOptions, SchedulerHandle};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_operator::Images;
use kai_operator::process::{self, Options};
use kai_runtime::Process;
use kai_runtime::api::{Api, Part};
use kai_runtime::health::Health;
use kai_runtime::kind::{DEPLOYMENT, Key, POD, ResourceKind};
use kai_runtime::leader_election::{self, Candidate};
use kai_runtime::watch_value::WatchValue;
use kai_sim::NodeGroup;
use parking_lot::Mutex;
use prometheus::Registry;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const INSTALLATION: &str = "kai-scheduler";
const SCHEDULER: &str = "kai-scheduler-default";
/// How long a pod may wait while the scheduler is replaced.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The pods that have led, in order.
type Leaders = Arc<Mutex<Vec<String>>>;

/// What the kubelet does for the pods of the scheduler: a process for each, from when it runs until it is deleted.
async fn run_pods(client: kube::Client, clock: Clock, options: ComponentOptions, leaders: Leaders) {
    let api = Api::new(client.clone(), "kubelet");
    let mut running: BTreeMap<String, WatchValue<bool>> = BTreeMap::new();
    let mut processes = JoinSet::new();
    loop {
        let pods = api.list_dynamic(&POD, INSTALLATION).await.map(|list| list.items).unwrap_or_default();
        let alive: BTreeSet<String> = pods
            .iter()
            .filter(|pod| object::str_at(pod, "/metadata/labels/app") == SCHEDULER)
            .filter(|pod| object::str_at(pod, "/status/phase") == "Running" && !object::is_deleting(pod))
            .map(|pod| object::name(pod).to_owned())
            .collect();
        running.retain(|pod, stopped| {
            stopped.set(!alive.contains(pod));
            alive.contains(pod)
        });
        for pod in alive {
            running.entry(pod.clone()).or_insert_with(|| {
                let stopped = WatchValue::new(false);
                let api = Api::new(client.clone(), Component::Scheduler.name());
                processes.spawn(run_scheduler(
                    pod,
                    api,
                    clock,
                    options.clone(),
                    stopped.clone(),
                    Arc::clone(&leaders),
                ));
                stopped
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn run_scheduler(
    pod: String,
    api: Api,
    clock: Clock,
    options: ComponentOptions,
    stopped: WatchValue<bool>,
    leaders: Leaders,
) {
    let candidate = Candidate {
        lease: Key::new(INSTALLATION, "kai-scheduler"),
        identity: format!("{pod}_1"),
        timing: kai_scheduler::LEASE_TIMING,
    };
    let lease_api = api.isolated();
    let leadership = tokio::select! {
        biased;
        () = stopped.wait_for(|stopped| stopped) => return,
        leadership = candidate.acquire(&lease_api, clock) => leadership,
    };
    leaders.lock().push(pod);
    let mut renewal = leader_election::spawn_renewal(&candidate, &lease_api, clock, &leadership);
    let api = api.fenced(leadership);
    let name = Component::Scheduler.name();
    let process = Process::with(api, clock, name, Registry::new(), Health::default());
    let writer = process.writer.clone();
    let scheduler =
        Component::Scheduler.run(process, options, PluginSet::builtin(), SchedulerHandle::default());
    tokio::select! {
        biased;
        () = stopped.wait_for(|stopped| stopped) => writer.idle().await,
        () = scheduler => {}
    }
    renewal.shutdown().await;
    candidate.release(&lease_api, clock).await.unwrap();
}

async fn cluster(leaders: &Leaders) -> TestCluster {
    let mut options = ComponentOptions::simulated();
    options.scheduler.config_map = Some(Key::new(INSTALLATION, SCHEDULER));
    let cluster = TestCluster::with_components(1, [NodeGroup::gpu_nodes(4, 8)], |cluster| {
        let clock = cluster.clock();
        cluster.run("operator-of-the-installation", move |client| {
            let process = Process::start(Api::new(client, "kai-operator"), clock, "kai-operator");
            let images = Images { repository: "registry.example/ours".to_owned(), tag: "v1".to_owned() };
            process::run(process, Options { namespace: INSTALLATION.to_owned(), images })
        });
        for spec in COMPONENTS.iter().filter(|spec| spec.component != Component::Scheduler) {
            let options = options.clone();
            cluster.run(spec.name, move |client| {
                let process = Process::start(Api::new(client, spec.name), clock, spec.name);
                let scheduler = SchedulerHandle::default();
                spec.component.run(process, options.clone(), PluginSet::builtin(), scheduler)
            });
        }
        cluster.run("placer", |client| migration::place_components(Api::new(client, "placer")));
        let (options, leaders) = (options.clone(), Arc::clone(leaders));
        cluster.run("kubelet-of-the-installation", move |client| {
            run_pods(client, clock, options.clone(), Arc::clone(&leaders))
        });
        SchedulerHandle::default()
    })
    .await;
    migration::create_installation(&cluster, INSTALLATION).await;
    cluster.wait_until("a pod of the scheduler leads", async || !leaders.lock().is_empty()).await;
    cluster
}

/// Whether the last change runs in all pods.
async fn is_rolled_out(cluster: &TestCluster, flag: &str) -> bool {
    let key = Key::new(INSTALLATION, SCHEDULER);
    let Ok(deployment) = cluster.api().get_dynamic(&DEPLOYMENT, &key).await else { return false };
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let args = deployment.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    args.is_some_and(|args| args.iter().any(|arg| arg == flag))
        && number("/status/observedGeneration") == number("/metadata/generation")
        && number("/status/updatedReplicas") == 1
        && number("/status/replicas") == 1
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_bound_while_the_scheduler_of_a_shard_is_replaced() {
    let leaders = Leaders::default();
    let cluster = cluster(&leaders).await;
    let (mut number, mut longest) = (0, Duration::ZERO);
    for verbosity in ["4", "5", "6"] {
        let terms = leaders.lock().len();
        let shards = ResourceKind::of::<SchedulingShard>();
        let patch = json!({"spec": {"args": {"v": verbosity}}});
        cluster.api().patch_dynamic(&shards, &Key::new("", "default"), Part::Main, &patch).await.unwrap();
        let flag = format!("--v={verbosity}");
        // Pods arrive all the time, before, during and after the hand-over.
        while !(is_rolled_out(&cluster, &flag).await && leaders.lock().len() > terms) {
            let name = format!("pod-{number}");
            number += 1;
            let created = Instant::now();
            cluster.create_pod(PodBuilder::new(&name, "research", 1)).await;
            cluster.wait_for_running(&name, 1).await;
            longest = longest.max(created.elapsed());
            cluster.delete_pod(&name).await;
            assert!(number < 300, "change {verbosity} is not rolled out: {:?}", leaders.lock());
        }
    }
    let leaders = leaders.lock().clone();
    assert_eq!(leaders.len(), 4, "each change replaces the leader once: {leaders:?}");
    assert_eq!(leaders.iter().collect::<BTreeSet<_>>().len(), 4, "{leaders:?}");
    assert!(number >= 6, "{number} pods were bound");
    assert!(longest <= WAIT_MAX, "a pod waited for {longest:?}");
}
