//! The controllers on the embedded cluster, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod fault_injection;
mod grouper;
mod grouper_cost;
mod node_scale;
mod podgroup;
mod queue;
mod real_control_plane;

use kai_controllers::node_scale::Options as ScaleOptions;
use kai_controllers::podgroup::Options as StatusOptions;
use kai_controllers::queue::Options as QueueOptions;
use kai_object as object;
use kai_podgrouper::Options as GroupOptions;
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::health::Health;
use kai_runtime::kind::{CUSTOM_RESOURCE_DEFINITION, JOB, Key, POD, PRIORITY_CLASS, ResourceKind};
use kai_runtime::process::Process;
use kai_sim::{Builder, Cluster, NodeGroup};
use prometheus::Registry;
use serde_json::{Value, json};
use std::pin::Pin;
use std::time::Duration;

/// How long a test waits for a condition, in virtual time.
const TIMEOUT: Duration = Duration::from_mins(10);

/// A component that runs.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A cluster with KAI's CRDs, some priority classes and the components under test.
struct TestCluster {
    cluster: Cluster,
    metrics: Registry,
}

/// The components, each with its own client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Component {
    Grouper,
    PodGroup,
    Queue,
    NodeScale,
}

impl Component {
    async fn run(self, process: Process) {
        match self {
            Self::Grouper => kai_podgrouper::run(process, GroupOptions::default()).await,
            Self::PodGroup => kai_controllers::podgroup::run(process, StatusOptions::default()).await,
            Self::Queue => kai_controllers::queue::run(process, QueueOptions::default()).await,
            Self::NodeScale => kai_controllers::node_scale::run(process, ScaleOptions::default()).await,
        }
    }

    /// Those that work together.
    const ALL: [Self; 3] = [Self::Grouper, Self::PodGroup, Self::Queue];

    fn client(self) -> &'static str {
        match self {
            Self::Grouper => "pod-grouper",
            Self::PodGroup => "podgroup-controller",
            Self::Queue => "queue-controller",
            Self::NodeScale => "node-scale-adjuster",
        }
    }
}

fn builder() -> Builder {
    let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
    Cluster::builder().seed(1).starting_at(epoch).keep_lines().nodes([NodeGroup::gpu_nodes(2, 8)])
}

impl TestCluster {
    async fn new(components: &[Component]) -> Self {
        Self::of(builder(), components).await
    }

    async fn of(builder: Builder, components: &[Component]) -> Self {
        Self::with_crds(builder, crds(), components).await
    }

    async fn with_crds(builder: Builder, crds: Vec<Value>, components: &[Component]) -> Self {
        let cluster = builder.start().await.unwrap();
        let mut test = Self { cluster, metrics: Registry::new() };
        for definition in crds {
            test.cluster.api().create_dynamic(&CUSTOM_RESOURCE_DEFINITION, "", &definition).await.unwrap();
        }
        for (name, value) in [("train", 50), ("inference", 125)] {
            let class = json!({"metadata": {"name": name}, "value": value});
            test.create(&PRIORITY_CLASS, class).await;
        }
        for component in components {
            test.start(*component);
        }
        test.sleep(1.0).await;
        test
    }

    fn start(&mut self, component: Component) {
        self.run(component.client(), move |process| Box::pin(component.run(process)));
    }

    /// Starts a pod grouper with options of its own.
    fn start_grouper(&mut self, client: &'static str, options: GroupOptions) {
        self.run(client, move |process| Box::pin(kai_podgrouper::run(process, options.clone())));
    }

    fn run(&mut self, client: &'static str, run: impl Fn(Process) -> Running + Send + Sync + 'static) {
        let (clock, metrics) = (self.cluster.clock(), self.metrics.clone());
        self.cluster.run(client, move |connection| {
            let api = Api::new(connection, client);
            run(Process::with(api, clock, client, metrics.clone(), Health::default()))
        });
    }

    async fn create(&self, kind: &ResourceKind, mut object: Value) -> Value {
        let namespace = if kind.namespaced { "default" } else { "" };
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        self.cluster.api().create_dynamic(kind, namespace, &object).await.unwrap()
    }

    async fn find(&self, kind: &ResourceKind, name: &str) -> Option<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster.api().get_dynamic(kind, &Key::new(namespace, name)).await.ok()
    }

    async fn list(&self, kind: &ResourceKind) -> Vec<Value> {
        self.cluster.api().list_dynamic(kind, "").await.unwrap().items
    }

    async fn patch(&self, kind: &ResourceKind, name: &str, patch: Value) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster.api().patch_dynamic(kind, &Key::new(namespace, name), Part::Main, &patch).await.unwrap();
    }

    async fn delete(&self, kind: &ResourceKind, name: &str) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster
            .api()
            .delete_dynamic(kind, &Key::new(namespace, name), &DeleteOptions::default().immediately())
            .await
            .unwrap();
    }

    async fn bind(&self, pod: &str, node: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let path = POD.path_of(&Key::new("default", pod)) + "/binding";
        self.cluster.api().send("POST", &path, Some(("application/json", &binding))).await.unwrap();
    }

    /// Waits until the object satisfies the predicate, and returns it.
    async fn until(&self, kind: &ResourceKind, name: &str, predicate: impl Fn(&Value) -> bool) -> Value {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.find(kind, name).await;
            if let Some(found) = &found
                && predicate(found)
            {
                return found.clone();
            }
            let waited = begin.elapsed();
            assert!(waited < TIMEOUT, "{} {name} stays {:#}", kind.kind, found.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for the assignment of a pod.
    async fn group_of(&self, pod: &str) -> String {
        let pod = self.until(&POD, pod, |pod| !group_name(pod).is_empty()).await;
        group_name(&pod).to_owned()
    }

    async fn sleep(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Method and path of the requests of a component.
    fn requests(&self, component: Component) -> Vec<String> {
        let lines = self.cluster.journal().lines();
        let requests = lines.iter().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (client, verb) = (words.next()?, words.next()?);
            let (method, path) = (words.next()?, words.next()?);
            (client == component.client() && verb == "request").then(|| format!("{method} {path}"))
        });
        requests.collect()
    }

    /// Method and path of the writes of a component.
    fn writes(&self, component: Component) -> Vec<String> {
        let mut requests = self.requests(component);
        requests.retain(|request| !request.starts_with("GET "));
        requests
    }
}

fn group_name(pod: &Value) -> &str {
    object::str_at(pod, "/metadata/annotations/pod-group-name")
}

/// A pod of KAI's scheduler with one GPU.
fn pod(name: &str, labels: &Value, annotations: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": pod_spec()})
}

fn pod_spec() -> Value {
    let resources =
        json!({"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1", "cpu": "500m"}});
    json!({
        "schedulerName": "kai-scheduler", "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "resources": resources}],
    })
}

fn job(name: &str, pods: u32, labels: &Value, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec()}},
    })
}

fn queue(name: &str, parent: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": {}}})
}

/// Amounts of a resource in the status of a pod group: requested, allocated, allocated and not preemptible.
fn counts<'a>(group: &'a Value, resource: &str) -> [&'a str; 3] {
    let resource = resource.replace('/', "~1");
    ["requested", "allocated", "allocatedNonPreemptible"]
        .map(|field| object::str_at(group, &format!("/status/resourcesStatus/{field}/{resource}")))
}

/// The same in the status of a queue.
fn queue_counts<'a>(queue: &'a Value, resource: &str) -> [&'a str; 2] {
    let resource = resource.replace('/', "~1");
    ["requested", "allocated"].map(|field| object::str_at(queue, &format!("/status/{field}/{resource}")))
}

/// KAI's CRDs as JSON.
fn crds() -> Vec<Value> {
    let crds = kai_api::crds().into_iter().filter(|crd| crd.spec.group == "scheduling.run.ai");
    crds.map(|crd| serde_json::to_value(crd).unwrap()).collect()
}

/// The kinds of every test.
mod k {
    pub(crate) use super::{JOB, POD, PRIORITY_CLASS};
    use kai_runtime::ResourceKind;
    use std::sync::LazyLock;

    pub(crate) static POD_GROUP: LazyLock<ResourceKind> =
        LazyLock::new(ResourceKind::of::<kai_api::PodGroup>);
    pub(crate) static QUEUE: LazyLock<ResourceKind> = LazyLock::new(ResourceKind::of::<kai_api::Queue>);
}
