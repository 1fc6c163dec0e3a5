//! A cluster with all components, and what tests say about it.

mod pools;

use kai_api::well_known::annotation::SHARED_GPU_CONFIG_MAP;
use kai_api::well_known::name::RESOURCE_RESERVATION;
use kai_cli::stack::{self, Insight};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::api::{Api, Deletion, Part};
use kai_runtime::kind::{self, Key, Kind, POD};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE};
use kai_sim::{Builder, Cluster, NodeGroup};
use kai_units::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a test waits for what must happen, in the cluster's time.
const PATIENCE: Duration = Duration::from_mins(10);

/// A cluster with all components, embedded or real, and a part of it in which a test works.
pub(crate) struct World<B = Cluster> {
    pub(crate) cluster: B,
    api: Api,
    place: Place,
    /// What the scheduler says of itself, where it runs in this process.
    pub(crate) insight: Insight,
}

/// The part of a cluster that belongs to one test.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    /// The group of nodes; their names begin so.
    pub(crate) nodes: String,
    /// The node pool, where tests have one each.
    pub(crate) pool: Option<String>,
    /// How long to wait for what must happen.
    pub(crate) patience: Duration,
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
        let place = Place {
            namespace: "default".to_owned(),
            nodes: "node".to_owned(),
            pool: None,
            patience: PATIENCE,
        };
        let world = Self { insight, ..Self::on(cluster, api, place).await };
        world.create(&kind::CONFIG_MAP, json!({"metadata": {"name": "kube-root-ca.crt"}})).await;
        world
    }
}

impl<B> World<B> {
    /// A part of a cluster that has all components.
    pub(crate) async fn on(cluster: B, api: Api, place: Place) -> Self {
        let world = Self { cluster, api, place, insight: Insight::default() };
        let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        world.queue_below(None, "teams", &free, json!({})).await;
        if world.place.pool.is_some() {
            let none = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
            world.queue_below(Some("teams"), "default-queue", &none, json!({})).await;
        }
        world
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.place.namespace
    }

    /// The name of a node, counted from 1.
    pub(crate) fn node(&self, number: usize) -> String {
        format!("{}-{number}", self.place.nodes)
    }

    /// What a queue is called in the cluster; pools have queues of their own.
    pub(crate) fn queue_name(&self, name: &str) -> String {
        self.place.pool.as_ref().map_or_else(|| name.to_owned(), |pool| format!("{pool}-{name}"))
    }

    /// Where an object is.
    fn key(&self, kind: &Kind, name: &str) -> Key {
        let name = if *kind == QUEUE { self.queue_name(name) } else { name.to_owned() };
        Key::new(if kind.namespaced { self.namespace() } else { "" }, &name)
    }

    pub(crate) async fn create(&self, kind: &Kind, mut object: Value) -> Value {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        if let Some(pool) = &self.place.pool {
            pools::settle(&mut object, pool, &|queue| self.queue_name(queue));
        }
        let namespace = if kind.namespaced { self.namespace() } else { "" };
        self.api().create(kind, namespace, &object).await.unwrap()
    }

    /// Changes an object.
    pub(crate) async fn change(&self, kind: &Kind, name: &str, patch: &Value) {
        self.api().merge(kind, &self.key(kind, name), Part::Main, patch).await.unwrap();
    }

    /// A leaf queue with this many GPUs of quota, below a parent that is entitled to everything.
    pub(crate) async fn queue(&self, name: &str, quota: i64) {
        let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
        self.queue_below(Some("teams"), name, &gpu, json!({})).await;
    }

    /// A queue with these GPUs and whatever else is given.
    pub(crate) async fn queue_below(&self, parent: Option<&str>, name: &str, gpu: &Value, more: Value) {
        let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let mut spec = json!({"resources": {"gpu": gpu, "cpu": free, "memory": free}});
        if let Some(parent) = parent {
            spec["parentQueue"] = Value::from(parent);
        }
        json_merge(&mut spec, &more);
        self.create(&QUEUE, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// A pod on its own.
    pub(crate) async fn pod(&self, pod: Pod) -> Value {
        self.create(&POD, pod.object).await
    }

    /// A group that was made by hand, with so many pods.
    pub(crate) async fn gang(&self, name: &str, queue: &str, pods: usize, gpus: u32, spec: Value) {
        self.group(name, queue, pods, spec, |pod| Pod::new(pod, queue, gpus)).await;
    }

    /// A group that was made by hand, with so many pods like this.
    pub(crate) async fn group(
        &self,
        name: &str,
        queue: &str,
        pods: usize,
        spec: Value,
        pod: impl Fn(&str) -> Pod,
    ) {
        let mut group = json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}},
            "spec": {"minMember": pods, "queue": queue},
        });
        json_merge(&mut group["spec"], &spec);
        self.create(&POD_GROUP, group).await;
        for number in 0..pods {
            self.pod(pod(&format!("{name}-{number}")).in_group(name)).await;
        }
    }

    /// All objects of a kind in our namespace, or in the cluster where they have none.
    pub(crate) async fn list(&self, kind: &Kind) -> Vec<Value> {
        let namespace = if kind.namespaced { self.namespace() } else { "" };
        self.api().list(kind, namespace).await.unwrap().items
    }

    /// The pods that reserve GPUs of our nodes.
    pub(crate) async fn reservations(&self) -> Vec<Value> {
        let pods = self.api().list(&POD, RESOURCE_RESERVATION).await.unwrap().items;
        let ours = |pod: &Value| object::str_at(pod, "/spec/nodeName").starts_with(&self.place.nodes);
        pods.into_iter().filter(ours).collect()
    }

    pub(crate) async fn get(&self, kind: &Kind, name: &str) -> Option<Value> {
        self.api().get(kind, &self.key(kind, name)).await.ok()
    }

    pub(crate) async fn delete(&self, kind: &Kind, name: &str) {
        let how = Deletion::default().propagate("Background");
        self.api().delete(kind, &self.key(kind, name), &how).await.unwrap();
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.delete(&POD, name).await;
    }

    /// The node of each pod whose name begins so, by name.
    pub(crate) async fn placed(&self, prefix: &str) -> Vec<(String, String)> {
        let pods = self.list(&POD).await;
        let ours =
            pods.iter().filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod));
        ours.map(|pod| (object::name(pod).to_owned(), object::str_at(pod, "/spec/nodeName").to_owned()))
            .filter(|(_, node)| !node.is_empty())
            .collect()
    }

    /// The nodes of all pods whose names begin so.
    pub(crate) async fn nodes_of(&self, prefix: &str) -> BTreeSet<String> {
        self.placed(prefix).await.into_iter().map(|(_, node)| node).collect()
    }

    pub(crate) async fn running(&self, prefix: &str) -> usize {
        let pods = self.list(&POD).await;
        let ours =
            pods.iter().filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod));
        ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count()
    }

    /// Why a group says it waits.
    pub(crate) async fn condition(&self, group: &str) -> String {
        let group = self.get(&POD_GROUP, group).await.unwrap_or_default();
        object::str_at(&group, "/status/schedulingConditions/0/message").to_owned()
    }

    /// Waits until a group says that it waits for this; says all that it says.
    pub(crate) async fn says(&self, group: &str, words: &str) -> String {
        let said = std::cell::RefCell::new(String::new());
        let what = format!("group `{group}` says `{words}`");
        self.comes(&what, async || {
            let condition = self.condition(group).await;
            let says = condition.contains(words);
            said.replace(condition);
            says
        })
        .await;
        said.into_inner()
    }

    /// Why a pod says it waits: in a word, and in a sentence.
    pub(crate) async fn pod_condition(&self, pod: &str) -> (String, String) {
        let pod = self.get(&POD, pod).await.unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
        let text = |field: &str| scheduled.map_or("", |found| object::str_at(found, field)).to_owned();
        (text("/reason"), text("/message"))
    }

    /// The time in an annotation of a group.
    pub(crate) async fn time_of(&self, group: &str, annotation: &str) -> Option<Timestamp> {
        let group = self.get(&POD_GROUP, group).await?;
        group["metadata"]["annotations"][annotation].as_str()?.parse().ok()
    }

    /// Waits until so many pods whose names begin so run.
    pub(crate) async fn runs(&self, prefix: &str, count: usize) {
        let what = format!("{count} pods `{prefix}*` run");
        self.comes(&what, async || self.running(prefix).await == count).await;
    }

    /// Waits until something holds.
    pub(crate) async fn comes(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = tokio::time::Instant::now() + self.place.patience;
        while !holds().await {
            let late = tokio::time::Instant::now() > deadline;
            let story = if late { self.story().await } else { String::new() };
            assert!(!late, "it never comes that {what}\n{story}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
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

    pub(crate) fn labelled(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["labels"][name] = Value::from(value);
        self
    }

    pub(crate) fn selecting(mut self, label: &str, value: &str) -> Self {
        self.object["spec"]["nodeSelector"] = json!({label: value});
        self
    }

    pub(crate) fn class(mut self, class: &str) -> Self {
        self.object["spec"]["priorityClassName"] = Value::from(class);
        self
    }

    /// Sets a field of the specification.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Self {
        self.object["spec"][field] = value;
        self
    }

    /// Only on this node.
    pub(crate) fn on(self, node: &str) -> Self {
        self.with("nodeSelector", json!({"kubernetes.io/hostname": node}))
    }

    /// The same as a template of pods.
    pub(crate) fn template(mut self) -> Value {
        let metadata = self.object["metadata"].as_object_mut().unwrap();
        metadata.remove("name");
        self.object
    }
}

/// Puts the fields of `from` into `to`.
pub(crate) fn json_merge(to: &mut Value, from: &Value) {
    for (name, value) in from.as_object().into_iter().flatten() {
        to[name] = value.clone();
    }
}
