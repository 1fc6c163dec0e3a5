//! A cluster with all components, and what tests say about it.

use kai_api::well_known::annotation::SHARED_GPU_CONFIG_MAP;
use kai_cli::stack::{self, Insight};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::api::{Api, Deletion, Part};
use kai_runtime::kind::{self, Key, Kind, POD};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE};
use kai_sim::{Builder, Cluster, NodeGroup};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a test waits for what must happen, in the cluster's time.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);

/// A cluster with all components, embedded or real, and a namespace of it in which a test works.
pub(crate) struct World<B = Cluster> {
    pub(crate) cluster: B,
    api: Api,
    namespace: String,
    /// What the scheduler says of itself, where it runs in this process.
    pub(crate) insight: Insight,
}

impl World {
    /// Nodes with eight GPUs each.
    pub(crate) async fn new(nodes: u32) -> Self {
        Self::of(1, [NodeGroup::gpu_nodes(nodes as usize, 8)], &stack::Options::simulated()).await
    }

    pub(crate) async fn of(
        seed: u64,
        nodes: impl IntoIterator<Item = NodeGroup>,
        options: &stack::Options,
    ) -> Self {
        Self::joined(seed, nodes, |cluster| stack::join(cluster, options, &PluginSet::builtin())).await
    }

    /// A cluster that components join as they like.
    pub(crate) async fn joined(
        seed: u64,
        nodes: impl IntoIterator<Item = NodeGroup>,
        join: impl FnOnce(&mut Cluster) -> Insight,
    ) -> Self {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let builder: Builder = Cluster::builder().seed(seed).starting_at(epoch).nodes(nodes);
        let mut cluster = builder.start().await.unwrap();
        stack::install(cluster.api()).await.unwrap();
        let insight = join(&mut cluster);
        let api = cluster.api().clone();
        let world = Self { insight, ..Self::on(cluster, api, "default").await };
        world.create(&kind::CONFIG_MAP, json!({"metadata": {"name": "kube-root-ca.crt"}})).await;
        world
    }
}

impl<B> World<B> {
    /// A namespace of a cluster that has all components.
    pub(crate) async fn on(cluster: B, api: Api, namespace: &str) -> Self {
        let (namespace, insight) = (namespace.to_owned(), Insight::default());
        let world = Self { cluster, api, namespace, insight };
        world.queue_in(None, "teams", &json!({"quota": -1, "limit": -1, "overQuotaWeight": 1})).await;
        world
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where objects of a kind are.
    fn place(&self, kind: &Kind) -> &str {
        if kind.namespaced { &self.namespace } else { "" }
    }

    pub(crate) async fn create(&self, kind: &Kind, mut object: Value) -> Value {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        self.api().create(kind, self.place(kind), &object).await.unwrap()
    }

    /// A leaf queue with this many GPUs of quota, below a parent that is entitled to everything.
    pub(crate) async fn queue(&self, name: &str, quota: i64) {
        let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
        self.queue_in(Some("teams"), name, &gpu).await;
    }

    /// A queue with this entitlement to GPUs, below a parent or at the top.
    pub(crate) async fn queue_in(&self, parent: Option<&str>, name: &str, gpu: &Value) {
        let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let spec = json!({"parentQueue": parent, "resources": {"gpu": gpu, "cpu": free, "memory": free}});
        self.create(&QUEUE, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// A pod on its own.
    pub(crate) async fn pod(&self, pod: Pod) -> Value {
        self.create(&POD, pod.object).await
    }

    /// A group that was made by hand, with so many pods.
    pub(crate) async fn gang(&self, name: &str, queue: &str, pods: usize, gpus: u32, spec: Value) {
        let mut group = json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}},
            "spec": {"minMember": pods, "queue": queue},
        });
        json_merge(&mut group["spec"], &spec);
        self.create(&POD_GROUP, group).await;
        for number in 0..pods {
            self.pod(Pod::new(&format!("{name}-{number}"), queue, gpus).in_group(name)).await;
        }
    }

    /// All objects of a kind, wherever they are.
    pub(crate) async fn list(&self, kind: &Kind) -> Vec<Value> {
        self.api().list(kind, "").await.unwrap().items
    }

    pub(crate) async fn get(&self, kind: &Kind, name: &str) -> Option<Value> {
        self.api().get(kind, &Key::new(self.place(kind), name)).await.ok()
    }

    pub(crate) async fn merge(&self, kind: &Kind, name: &str, patch: &Value) {
        let key = Key::new(self.place(kind), name);
        self.api().merge(kind, &key, Part::Main, patch).await.unwrap();
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.api().delete(&POD, &Key::new(&self.namespace, name), &Deletion::default()).await.unwrap();
    }

    /// The node of each pod of our namespace whose name begins so, by name.
    pub(crate) async fn placed(&self, prefix: &str) -> Vec<(String, String)> {
        let pods = self.list(&POD).await;
        let ours = pods.iter().filter(|pod| object::namespace(pod) == self.namespace);
        let ours = ours.filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod));
        ours.map(|pod| (object::name(pod).to_owned(), object::str_at(pod, "/spec/nodeName").to_owned()))
            .filter(|(_, node)| !node.is_empty())
            .collect()
    }

    pub(crate) async fn running(&self, prefix: &str) -> usize {
        let pods = self.list(&POD).await;
        let ours =
            pods.iter().filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod));
        ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count()
    }

    /// Waits until so many pods whose names begin so run.
    pub(crate) async fn runs(&self, prefix: &str, count: usize) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let running = self.running(prefix).await;
            if running == count {
                return;
            }
            let late = tokio::time::Instant::now() > deadline;
            let story = if late { self.story().await } else { String::new() };
            assert!(!late, "{running} of {count} pods `{prefix}*` run\n{story}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// A condition of a pod: its reason and its message.
    pub(crate) async fn condition(&self, pod: &str, type_: &str) -> Option<(String, String)> {
        let pod = self.get(&POD, pod).await?;
        let conditions = pod["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|condition| condition["type"] == type_)?;
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        Some((text("reason"), text("message")))
    }

    /// Messages of events with this reason, about whatever name begins so.
    pub(crate) async fn events(&self, reason: &str, prefix: &str) -> Vec<String> {
        let events = self.list(&kind::EVENT).await;
        let about = events.iter().filter(|event| event["reason"] == reason);
        let about = about.filter(|event| object::str_at(event, "/involvedObject/name").starts_with(prefix));
        about.map(|event| object::str_at(event, "/message").to_owned()).collect()
    }

    /// What there is, for a test that failed.
    pub(crate) async fn story(&self) -> String {
        let mut story = Vec::new();
        for pod in self.list(&POD).await {
            story.push(format!(
                "pod {} phase={} node={} group={}",
                object::name(&pod),
                object::str_at(&pod, "/status/phase"),
                object::str_at(&pod, "/spec/nodeName"),
                object::str_at(&pod, "/metadata/annotations/pod-group-name"),
            ));
        }
        for request in self.list(&BIND_REQUEST).await {
            story.push(format!("bind {} {} {}", object::name(&request), request["spec"], request["status"]));
        }
        for group in self.list(&POD_GROUP).await {
            story.push(format!("group {} {} {}", object::name(&group), group["spec"], group["status"]));
        }
        for event in self.list(&kind::EVENT).await {
            story.push(format!(
                "event {} {}: {}",
                object::str_at(&event, "/involvedObject/name"),
                object::str_at(&event, "/reason"),
                object::str_at(&event, "/message")
            ));
        }
        story.join("\n")
    }
}

/// A pod to be made.
pub(crate) struct Pod {
    pub(crate) object: Value,
}

impl Pod {
    pub(crate) fn new(name: &str, queue: &str, gpus: u32) -> Self {
        let resources = json!({"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": gpus.to_string()}});
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}, "annotations": {}},
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "image": "busybox", "resources": resources}],
            },
        });
        if gpus == 0 {
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        }
        Self { object: pod }
    }

    /// A part of a GPU, prepared as the webhook does it.
    pub(crate) fn fraction(name: &str, queue: &str, fraction: &str) -> Self {
        let pod = Self::new(name, queue, 0).annotated("gpu-fraction", fraction);
        pod.annotated(SHARED_GPU_CONFIG_MAP, &format!("{name}-shared-gpu"))
    }

    pub(crate) fn annotated(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][name] = Value::from(value);
        self
    }

    pub(crate) fn in_group(self, group: &str) -> Self {
        self.annotated("pod-group-name", group)
    }

    pub(crate) fn selecting(mut self, label: &str, value: &str) -> Self {
        self.object["spec"]["nodeSelector"] = json!({label: value});
        self
    }

    pub(crate) fn class(mut self, class: &str) -> Self {
        self.object["spec"]["priorityClassName"] = Value::from(class);
        self
    }
}

/// Puts the fields of `from` into `to`.
pub(crate) fn json_merge(to: &mut Value, from: &Value) {
    for (name, value) in from.as_object().into_iter().flatten() {
        to[name] = value.clone();
    }
}
