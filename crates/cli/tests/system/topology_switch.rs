//! An installation passes from separate processes to one process and back while pods are bound.

use crate::migration;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::{Config, SchedulingShard};
use kai_clock::Clock;
use kai_components::combined::{Components, StartComponent, Started};
use kai_components::{COMPONENTS, Component, ComponentOptions, MEMBERS, SchedulerHandle, name};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_operator::Images;
use kai_operator::process::{self, Options};
use kai_runtime::Process;
use kai_runtime::api::{Api, Part};
use kai_runtime::health::Health;
use kai_runtime::kind::{self, DEPLOYMENT, Key, POD, ResourceKind};
use kai_runtime::leader_election::{self, Candidate};
use kai_runtime::metrics::components::Registries;
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
const SERVICE: ResourceKind = kind::untyped("", "v1", "Service", "services", true);
/// How long a pod may wait: what needs the binder waits until the other one's pod has ended and a process has started.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// What acts at a moment, by component: how many now, and at most.
#[derive(Clone, Default)]
struct Acting(Arc<Mutex<BTreeMap<&'static str, (usize, usize)>>>);

impl Acting {
    fn begin(&self, component: &'static str) {
        let mut all = self.0.lock();
        let (now, most) = all.entry(component).or_default();
        *now += 1;
        *most = (*most).max(*now);
    }

    fn end(&self, component: &'static str) {
        if let Some((now, _)) = self.0.lock().get_mut(component) {
            *now -= 1;
        }
    }

    fn most(&self, component: &str) -> usize {
        self.0.lock().get(component).map_or(0, |(_, most)| *most)
    }
}

/// What a pod needs to run.
#[derive(Clone)]
struct Node {
    client: kube::Client,
    clock: Clock,
    options: ComponentOptions,
    acting: Acting,
}

/// The components that a pod of the installation runs, by its label.
fn components_of(app: &str) -> Vec<Component> {
    match app {
        name::COMBINED => MEMBERS.to_vec(),
        SCHEDULER => vec![Component::Scheduler],
        other => MEMBERS.into_iter().filter(|member| member.name() == other).collect(),
    }
}

/// What the kubelet does for the pods of the installation: a process for each, from when it runs until it is deleted.
async fn run_pods(node: Node) {
    let api = Api::new(node.client.clone(), "kubelet");
    let mut running: BTreeMap<String, WatchValue<bool>> = BTreeMap::new();
    let mut processes = JoinSet::new();
    loop {
        let pods = api.list_dynamic(&POD, INSTALLATION).await.map(|list| list.items).unwrap_or_default();
        let alive: BTreeMap<String, String> = pods
            .iter()
            .filter(|pod| object::str_at(pod, "/status/phase") == "Running" && !object::is_deleting(pod))
            .map(|pod| (object::name(pod).to_owned(), object::str_at(pod, "/metadata/labels/app").to_owned()))
            .collect();
        running.retain(|pod, stopped| {
            stopped.set(!alive.contains_key(pod));
            alive.contains_key(pod)
        });
        for (pod, app) in alive {
            let components = components_of(&app);
            if components.is_empty() || running.contains_key(&pod) {
                continue;
            }
            let stopped = WatchValue::new(false);
            processes.spawn(run_pod(pod.clone(), components, node.clone(), stopped.clone()));
            running.insert(pod, stopped);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn run_pod(pod: String, components: Vec<Component>, node: Node, stopped: WatchValue<bool>) {
    let Node { client, clock, options, acting } = node;
    let is_combined = components.len() > 1;
    let user_agent = if is_combined { name::COMBINED } else { components[0].name() };
    let mut api = Api::new(client, user_agent);
    let lease_api = api.isolated();
    // With one replica, of the separate processes the scheduler alone takes a lease, as the operator sets them up.
    let candidate = components.contains(&Component::Scheduler).then(|| Candidate {
        lease: Key::new(INSTALLATION, "kai-scheduler"),
        identity: format!("{pod}_1"),
        timing: kai_scheduler::LEASE_TIMING,
    });
    let mut renewal = JoinSet::new();
    if let Some(candidate) = &candidate {
        let leadership = tokio::select! {
            biased;
            () = stopped.wait_for(|stopped| stopped) => return,
            leadership = candidate.acquire(&lease_api, clock) => leadership,
        };
        renewal = leader_election::spawn_renewal(candidate, &lease_api, clock, &leadership);
        api = api.fenced(leadership);
    }
    let process = Process::with(api, clock, user_agent, Registry::new(), Health::default());
    let writer = process.writer.clone();
    for component in &components {
        acting.begin(component.name());
    }
    let start = |component: Component| -> StartComponent {
        let options = options.clone();
        Arc::new(move |process| {
            component.run(process, options.clone(), PluginSet::builtin(), SchedulerHandle::default())
        })
    };
    let running = async {
        if is_combined {
            let registries = Registries::from(process.metrics.clone());
            let started = components.iter().map(|component| Started {
                name: component.name().to_owned(),
                user_agent: component.name(),
                limits: (-1.0, 0),
                lease: None,
                start: start(*component),
            });
            Components::new(started.collect(), registries).run(process).await;
        } else {
            start(components[0])(process).await;
        }
    };
    tokio::select! {
        biased;
        () = stopped.wait_for(|stopped| stopped) => {}
        () = running => panic!("a process of {pod} ended"),
    }
    writer.idle().await;
    for component in &components {
        acting.end(component.name());
    }
    renewal.shutdown().await;
    if let Some(candidate) = &candidate {
        candidate.release(&lease_api, clock).await.unwrap();
    }
}

async fn cluster(acting: &Acting) -> TestCluster {
    let mut options = ComponentOptions::simulated();
    options.scheduler.config_map = Some(Key::new(INSTALLATION, SCHEDULER));
    let cluster = TestCluster::with_components(1, [NodeGroup::gpu_nodes(4, 8)], |cluster| {
        let clock = cluster.clock();
        cluster.run("operator-of-the-installation", move |client| {
            let process = Process::start(Api::new(client, "kai-operator"), clock, "kai-operator");
            let images = Images { repository: "registry.example/ours".to_owned(), tag: "v1".to_owned() };
            process::run(process, Options { namespace: INSTALLATION.to_owned(), images })
        });
        for spec in COMPONENTS.iter().filter(|spec| !MEMBERS.contains(&spec.component)) {
            let options = options.clone();
            cluster.run(spec.name, move |client| {
                let process = Process::start(Api::new(client, spec.name), clock, spec.name);
                let scheduler = SchedulerHandle::default();
                spec.component.run(process, options.clone(), PluginSet::builtin(), scheduler)
            });
        }
        cluster.run("placer", |client| migration::place_components(Api::new(client, "placer")));
        let (options, acting) = (options.clone(), acting.clone());
        cluster.run("kubelet-of-the-installation", move |client| {
            run_pods(Node { client, clock, options: options.clone(), acting: acting.clone() })
        });
        SchedulerHandle::default()
    })
    .await;
    migration::create_installation(&cluster, INSTALLATION).await;
    cluster
}

/// The Deployments of components, and whether Config and shard are ready.
async fn state(cluster: &TestCluster) -> (BTreeSet<String>, bool) {
    let deployments = cluster.api().list_dynamic(&DEPLOYMENT, INSTALLATION).await.unwrap().items;
    let names = deployments.iter().map(|one| object::name(one).to_owned());
    let names = names.filter(|name| !components_of(name).is_empty()).collect();
    let mut ready = true;
    for (kind, name) in
        [(ResourceKind::of::<SchedulingShard>(), "default"), (ResourceKind::of::<Config>(), "kai-config")]
    {
        let owner = cluster.api().get_dynamic(&kind, &Key::new("", name)).await.unwrap();
        let conditions = owner.pointer("/status/conditions").and_then(Value::as_array);
        ready &=
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
    }
    (names, ready)
}

/// Every Service of a webhook leads to a pod that runs.
async fn assert_served(cluster: &TestCluster) {
    let pods = cluster.api().list_dynamic(&POD, INSTALLATION).await.unwrap().items;
    for name in ["admission", "podgroup-controller", "queue-controller"] {
        let service = cluster.api().get_dynamic(&SERVICE, &Key::new(INSTALLATION, name)).await.unwrap();
        let app = object::str_at(&service, "/spec/selector/app").to_owned();
        let serves = pods.iter().any(|pod| {
            object::str_at(pod, "/metadata/labels/app") == app
                && object::str_at(pod, "/status/phase") == "Running"
                && !object::is_deleting(pod)
        });
        assert!(serves, "Service {name} leads to {app}, which does not run: {:?}", names(&pods));
    }
}

fn names(pods: &[Value]) -> Vec<&str> {
    pods.iter().map(object::name).collect()
}

/// Uid and node of the workloads' pods.
async fn placements(cluster: &TestCluster) -> BTreeMap<String, (String, String)> {
    let pods = cluster.list(&POD).await;
    let placement = |pod: &Value| {
        let node = object::str_at(pod, "/spec/nodeName").to_owned();
        (object::name(pod).to_owned(), (object::uid(pod).to_owned(), node))
    };
    pods.iter().filter(|pod| !object::is_deleting(pod)).map(placement).collect()
}

/// Asks for a topology; pods arrive before, during and after the change. Returns the longest time that one waited.
async fn switch(cluster: &TestCluster, topology: &str, expected: &[&str]) -> Duration {
    let key = Key::new("", "kai-config");
    let wanted = if topology == "combined" { "combined" } else { "separate" };
    let patch = json!({"metadata": {"annotations": {"kai.scheduler/process-topology": wanted}}});
    let burst = |number: usize| format!("{topology}-burst-{number}");
    for number in 0..6 {
        cluster.create_pod(PodBuilder::new(&burst(number), "research", 1)).await;
    }
    cluster.api().patch_dynamic(&ResourceKind::of::<Config>(), &key, Part::Main, &patch).await.unwrap();
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let (mut longest, mut number) = (Duration::ZERO, 0);
    while state(cluster).await != (expected.clone(), true) {
        assert!(number < 300, "{topology} is not reached: {:?}", state(cluster).await);
        // Those that share a GPU need the binder, the others do not.
        let name = format!("{topology}-{number}");
        let pod = if number % 2 == 0 {
            PodBuilder::fraction(&name, "research", "0.5")
        } else {
            PodBuilder::new(&name, "research", 1)
        };
        number += 1;
        let created = Instant::now();
        cluster.create_pod(pod).await;
        cluster.wait_for_running(&name, 1).await;
        longest = longest.max(created.elapsed());
        cluster.delete_pod(&name).await;
        assert_served(cluster).await;
    }
    cluster.wait_for_running(&format!("{topology}-burst-"), 6).await;
    longest
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_bound_while_the_installation_passes_to_one_process_and_back() {
    let acting = Acting::default();
    let cluster = cluster(&acting).await;
    let separate =
        ["admission", "binder", SCHEDULER, "pod-grouper", "podgroup-controller", "queue-controller"];
    switch(&cluster, "separate", &separate).await;
    cluster.create_pod(PodBuilder::fraction("half-0", "research", "0.5")).await;
    cluster.wait_for_running("half-0", 1).await;
    let before = placements(&cluster).await;

    let longest = switch(&cluster, "combined", &[name::COMBINED]).await;
    assert!(longest <= WAIT_MAX, "a pod waited for {longest:?}");
    // The second half joins the shared GPU that the other topology's binder reserved.
    cluster.create_pod(PodBuilder::fraction("half-1", "research", "0.5")).await;
    cluster.wait_for_running("half-1", 1).await;
    let during = placements(&cluster).await;
    assert!(before.iter().all(|(pod, placed)| during.get(pod) == Some(placed)), "{before:?} {during:?}");

    let longest = switch(&cluster, "back", &separate).await;
    assert!(longest <= WAIT_MAX, "a pod waited for {longest:?}");
    let after = placements(&cluster).await;
    assert!(during.iter().all(|(pod, placed)| after.get(pod) == Some(placed)), "{during:?} {after:?}");
    let kept: Vec<&String> =
        after.keys().filter(|pod| pod.contains("burst") || pod.starts_with("half")).collect();
    assert_eq!(kept.len(), 20, "three bursts of six and two halves: {kept:?}");
    assert_eq!(cluster.reservations().await.len(), 1, "both halves are on one GPU");
    assert_eq!(cluster.event_messages("Evict", "").await, [""; 0]);
    for component in ["binder", "kai-scheduler"] {
        assert_eq!(acting.most(component), 1, "never two at a time: {component}");
    }
}
