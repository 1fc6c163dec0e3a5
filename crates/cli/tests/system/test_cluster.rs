//! A cluster with all components, and the operations and waits that tests use.

mod node_pool;

use kai_admission::pod;
use kai_api::well_known::annotation::SHARED_GPU_CONFIG_MAP;
use kai_api::well_known::name::RESOURCE_RESERVATION;
use kai_cli::embedded::{self, admission};
use kai_components::{ComponentOptions, SchedulerHandle, install};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::api::{self, Api, DeleteOptions, Part};
use kai_runtime::kind::{self, Key, POD, ResourceKind};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE};
use kai_sim::{Builder, Cluster, NodeGroup};
use kai_units::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a test waits for an expected state, in virtual time.
const TIMEOUT: Duration = Duration::from_mins(10);

/// A cluster with all components. Several tests may share a real one; each then has its own [`TestScope`].
pub(crate) struct TestCluster<B = Cluster> {
    /// The embedded cluster or the real control plane.
    pub(crate) backend: B,
    api: Api,
    scope: TestScope,
    /// Metrics and query endpoints of the scheduler, where it runs in this process.
    pub(crate) scheduler: SchedulerHandle,
}

/// The namespace, nodes and node pool of one test.
#[derive(Clone, Debug)]
pub(crate) struct TestScope {
    pub(crate) namespace: String,
    /// Prefix of the node names.
    pub(crate) node_prefix: String,
    /// Node pool and its scheduler shard, where each test has its own.
    pub(crate) pool: Option<String>,
    pub(crate) timeout: Duration,
}

/// Tests that inject faults into the client of one component, or count its requests: there it has one of its own.
const OF_ONE_COMPONENT: [&str; 25] = [
    "autoscaling::",
    "bind_failures::bind_request_that_a_webhook_refuses",
    "bind_failures::failed_bind_request_whose_deletion",
    "direct_binding::",
    "fault_injection::",
    "gpu_sharing::pod_is_not_sent_to_a_gpu",
    "high_availability::",
    "historical_usage::",
    "hostile_tenants::",
    "implicit_groups::crashes_of_all_components",
    "implicit_groups::minimum_run_time_protects",
    "kai_roles::",
    "kai_suites::devices::",
    "late_conditions::",
    "lost_responses::",
    "migration::",
    "plugins::",
    "robustness::api_server_errors::",
    "robustness::churn::",
    "robustness::lease_write_failures::",
    "shard_changes::",
    "shard_rollout::",
    "time_limits::limit_is_counted",
    "what_if::",
    "write_budget::",
];

/// Whether the scenario of this thread runs with all components in one process.
fn runs_combined() -> bool {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    std::env::var("KAI_TEST_TOPOLOGY").is_ok_and(|topology| topology == "combined")
        && !OF_ONE_COMPONENT.iter().any(|other| test.starts_with(other))
}

impl TestCluster {
    /// Starts a cluster of nodes with eight GPUs each.
    pub(crate) async fn new(nodes: u32) -> Self {
        Self::with_options(1, [NodeGroup::gpu_nodes(nodes as usize, 8)], &ComponentOptions::simulated()).await
    }

    /// As [`TestCluster::new`], with a bind request for every pod, as in KAI.
    pub(crate) async fn with_bind_requests(nodes: u32) -> Self {
        let mut options = ComponentOptions::simulated();
        options.scheduler.binding = kai_scheduler::Binding::Requests;
        Self::with_options(1, [NodeGroup::gpu_nodes(nodes as usize, 8)], &options).await
    }

    pub(crate) async fn with_options(
        seed: u64,
        nodes: impl IntoIterator<Item = NodeGroup>,
        options: &ComponentOptions,
    ) -> Self {
        let join = if runs_combined() { embedded::join_combined } else { embedded::join };
        Self::with_components(seed, nodes, |cluster| join(cluster, options, &PluginSet::builtin())).await
    }

    /// Starts a cluster of nodes with eight GPUs each and the admission webhooks of an installation. Pods that share a GPU
    /// have to be prepared by them.
    pub(crate) async fn with_admission(nodes: usize, pods: pod::Options) -> Self {
        Self::with_admission_of(nodes, 8, pods).await
    }

    pub(crate) async fn with_admission_of(nodes: usize, gpus: u32, pods: pod::Options) -> Self {
        let options = ComponentOptions::default();
        let nodes = [NodeGroup::gpu_nodes(nodes, gpus)];
        let cluster = Self::with_options(1, nodes, &options).await;
        admission::install(&cluster.backend, pods).await.unwrap();
        cluster
    }

    /// Starts a cluster whose components the caller adds.
    pub(crate) async fn with_components(
        seed: u64,
        nodes: impl IntoIterator<Item = NodeGroup>,
        join: impl FnOnce(&mut Cluster) -> SchedulerHandle,
    ) -> Self {
        Self::built(Cluster::builder().seed(seed).nodes(nodes), join).await
    }

    /// Starts a cluster that is built so.
    pub(crate) async fn built(builder: Builder, join: impl FnOnce(&mut Cluster) -> SchedulerHandle) -> Self {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut backend = builder.starting_at(epoch).start().await.unwrap();
        install::install(backend.api()).await.unwrap();
        let scheduler = join(&mut backend);
        let api = backend.api().clone();
        let scope = TestScope {
            namespace: "default".to_owned(),
            node_prefix: "node".to_owned(),
            pool: None,
            timeout: TIMEOUT,
        };
        let cluster = Self { scheduler, ..Self::attach(backend, api, scope).await };
        cluster.create(&kind::CONFIG_MAP, json!({"metadata": {"name": "kube-root-ca.crt"}})).await;
        cluster
    }
}

impl<B> TestCluster<B> {
    /// Uses a part of a cluster that already runs all components.
    pub(crate) async fn attach(backend: B, api: Api, scope: TestScope) -> Self {
        let cluster = Self { backend, api, scope, scheduler: SchedulerHandle::default() };
        let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        cluster.create_queue_under(None, "teams", &unlimited, json!({})).await;
        if cluster.scope.pool.is_some() {
            let zero_quota = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
            cluster.create_queue_under(Some("teams"), "default-queue", &zero_quota, json!({})).await;
        }
        cluster
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.scope.namespace
    }

    /// The node pool, where the test has its own.
    pub(crate) fn pool(&self) -> Option<&str> {
        self.scope.pool.as_deref()
    }

    /// Nodes are numbered from 1.
    pub(crate) fn node_name(&self, number: usize) -> String {
        format!("{}-{number}", self.scope.node_prefix)
    }

    /// The name of a queue in the cluster: each node pool has its own queues.
    pub(crate) fn queue_name(&self, name: &str) -> String {
        self.scope.pool.as_ref().map_or_else(|| name.to_owned(), |pool| format!("{pool}-{name}"))
    }

    fn key(&self, kind: &ResourceKind, name: &str) -> Key {
        let name = if *kind == *QUEUE { self.queue_name(name) } else { name.to_owned() };
        Key::new(if kind.namespaced { self.namespace() } else { "" }, &name)
    }

    /// The object with its kind, and with the pool and the queue names of the test.
    pub(crate) fn complete(&self, kind: &ResourceKind, mut object: Value) -> Value {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        if let Some(pool) = &self.scope.pool {
            node_pool::assign(&mut object, pool, &|queue| self.queue_name(queue));
        }
        object
    }

    pub(crate) async fn create(&self, kind: &ResourceKind, object: Value) -> Value {
        self.try_create(kind, object).await.unwrap()
    }

    pub(crate) async fn try_create(&self, kind: &ResourceKind, object: Value) -> api::Result<Value> {
        let object = self.complete(kind, object);
        let namespace = if kind.namespaced { self.namespace() } else { "" };
        self.api().create_dynamic(kind, namespace, &object).await
    }

    /// Applies a merge patch.
    pub(crate) async fn patch(&self, kind: &ResourceKind, name: &str, patch: &Value) {
        self.try_patch(kind, name, patch).await.unwrap();
    }

    pub(crate) async fn try_patch(
        &self,
        kind: &ResourceKind,
        name: &str,
        patch: &Value,
    ) -> api::Result<Value> {
        self.api().patch_dynamic(kind, &self.key(kind, name), Part::Main, patch).await
    }

    /// Creates a leaf queue with a GPU quota, under a parent with unlimited quota.
    pub(crate) async fn create_queue(&self, name: &str, quota: i64) {
        let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
        self.create_queue_under(Some("teams"), name, &gpu, json!({})).await;
    }

    /// Creates a queue with these GPU resources; `extra` is merged into its spec.
    pub(crate) async fn create_queue_under(
        &self,
        parent: Option<&str>,
        name: &str,
        gpu: &Value,
        extra: Value,
    ) {
        let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let mut spec = json!({"resources": {"gpu": gpu, "cpu": unlimited, "memory": unlimited}});
        if let Some(parent) = parent {
            spec["parentQueue"] = Value::from(parent);
        }
        json_merge(&mut spec, &extra);
        self.create(&QUEUE, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub(crate) async fn create_pod(&self, pod: PodBuilder) -> Value {
        self.try_create_pod(pod).await.unwrap()
    }

    pub(crate) async fn try_create_pod(&self, pod: PodBuilder) -> api::Result<Value> {
        self.try_create(&POD, pod.object).await
    }

    /// Creates a `PodGroup` and its pods.
    pub(crate) async fn create_gang(&self, name: &str, queue: &str, pods: usize, gpus: u32, spec: Value) {
        self.create_group(name, queue, pods, spec, |pod| PodBuilder::new(pod, queue, gpus)).await;
    }

    /// Creates a `PodGroup` and as many pods as `pod` builds.
    pub(crate) async fn create_group(
        &self,
        name: &str,
        queue: &str,
        pods: usize,
        spec: Value,
        pod: impl Fn(&str) -> PodBuilder,
    ) {
        let mut group = json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}},
            "spec": {"minMember": pods, "queue": queue},
        });
        json_merge(&mut group["spec"], &spec);
        self.create(&POD_GROUP, group).await;
        for number in 0..pods {
            self.create_pod(pod(&format!("{name}-{number}")).pod_group(name)).await;
        }
    }

    /// Lists the objects of a kind in the test's namespace, or in the cluster where the kind is cluster-scoped.
    pub(crate) async fn list(&self, kind: &ResourceKind) -> Vec<Value> {
        let namespace = if kind.namespaced { self.namespace() } else { "" };
        self.api().list_dynamic(kind, namespace).await.unwrap().items
    }

    /// Reservation pods on the nodes of the test.
    pub(crate) async fn reservations(&self) -> Vec<Value> {
        let pods = self.api().list_dynamic(&POD, RESOURCE_RESERVATION).await.unwrap().items;
        let ours = |pod: &Value| object::str_at(pod, "/spec/nodeName").starts_with(&self.scope.node_prefix);
        pods.into_iter().filter(ours).collect()
    }

    pub(crate) async fn get(&self, kind: &ResourceKind, name: &str) -> Option<Value> {
        self.api().get_dynamic(kind, &self.key(kind, name)).await.ok()
    }

    pub(crate) async fn delete(&self, kind: &ResourceKind, name: &str) {
        self.try_delete(kind, name).await.unwrap();
    }

    pub(crate) async fn try_delete(&self, kind: &ResourceKind, name: &str) -> api::Result<()> {
        let how = DeleteOptions::default().propagate("Background");
        self.api().delete_dynamic(kind, &self.key(kind, name), &how).await.map(drop)
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.delete(&POD, name).await;
    }

    /// Name and node of the bound pods with this name prefix.
    pub(crate) async fn bound_pods(&self, prefix: &str) -> Vec<(String, String)> {
        let pods = self.list(&POD).await;
        let ours =
            pods.iter().filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod));
        ours.map(|pod| (object::name(pod).to_owned(), object::str_at(pod, "/spec/nodeName").to_owned()))
            .filter(|(_, node)| !node.is_empty())
            .collect()
    }

    pub(crate) async fn nodes_of(&self, prefix: &str) -> BTreeSet<String> {
        self.bound_pods(prefix).await.into_iter().map(|(_, node)| node).collect()
    }

    pub(crate) async fn running(&self, prefix: &str) -> usize {
        let pods = self.list(&POD).await;
        let ours =
            pods.iter().filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod));
        ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count()
    }

    /// Message of the scheduling condition of a `PodGroup`; empty where there is none.
    pub(crate) async fn condition(&self, group: &str) -> String {
        let group = self.get(&POD_GROUP, group).await.unwrap_or_default();
        object::str_at(&group, "/status/schedulingConditions/0/message").to_owned()
    }

    /// Waits until the scheduling condition of a `PodGroup` contains a text; returns the whole message.
    pub(crate) async fn wait_for_condition(&self, group: &str, text: &str) -> String {
        let message = std::cell::RefCell::new(String::new());
        let what = format!("the condition of group `{group}` contains `{text}`");
        self.wait_until(&what, async || {
            let condition = self.condition(group).await;
            let matches = condition.contains(text);
            message.replace(condition);
            matches
        })
        .await;
        message.into_inner()
    }

    /// Reason and message of the `PodScheduled` condition.
    pub(crate) async fn pod_condition(&self, pod: &str) -> (String, String) {
        let pod = self.get(&POD, pod).await.unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
        let text = |field: &str| scheduled.map_or("", |found| object::str_at(found, field)).to_owned();
        (text("/reason"), text("/message"))
    }

    /// The timestamp in an annotation of a `PodGroup`.
    pub(crate) async fn annotation_time(&self, group: &str, annotation: &str) -> Option<Timestamp> {
        let group = self.get(&POD_GROUP, group).await?;
        group["metadata"]["annotations"][annotation].as_str()?.parse().ok()
    }

    /// Waits until exactly `count` pods with this name prefix run.
    pub(crate) async fn wait_for_running(&self, prefix: &str, count: usize) {
        let what = format!("{count} pods `{prefix}*` run");
        self.wait_until(&what, async || self.running(prefix).await == count).await;
    }

    /// Polls until a condition holds; fails with a dump of the cluster after the timeout.
    pub(crate) async fn wait_until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = tokio::time::Instant::now() + self.scope.timeout;
        while !holds().await {
            let late = tokio::time::Instant::now() > deadline;
            let dump = if late { self.dump().await } else { String::new() };
            assert!(!late, "timed out waiting until {what}\n{dump}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Messages of events with this reason whose involved object's name has this prefix.
    pub(crate) async fn event_messages(&self, reason: &str, prefix: &str) -> Vec<String> {
        let events = self.list(&kind::EVENT).await;
        let about = events.iter().filter(|event| event["reason"] == reason);
        let about = about.filter(|event| object::str_at(event, "/involvedObject/name").starts_with(prefix));
        about.map(|event| object::str_at(event, "/message").to_owned()).collect()
    }

    /// Pods, bind requests, groups and events as text, for the message of a failed test.
    pub(crate) async fn dump(&self) -> String {
        let mut lines = Vec::new();
        for pod in self.list(&POD).await {
            lines.push(format!(
                "pod {} phase={} node={} group={}",
                object::name(&pod),
                object::str_at(&pod, "/status/phase"),
                object::str_at(&pod, "/spec/nodeName"),
                object::str_at(&pod, "/metadata/annotations/pod-group-name"),
            ));
        }
        for request in self.list(&BIND_REQUEST).await {
            lines.push(format!("bind {} {} {}", object::name(&request), request["spec"], request["status"]));
        }
        for group in self.list(&POD_GROUP).await {
            lines.push(format!("group {} {} {}", object::name(&group), group["spec"], group["status"]));
        }
        for event in self.list(&kind::EVENT).await {
            lines.push(format!(
                "event {} {}: {}",
                object::str_at(&event, "/involvedObject/name"),
                object::str_at(&event, "/reason"),
                object::str_at(&event, "/message")
            ));
        }
        lines.join("\n")
    }
}

pub(crate) struct PodBuilder {
    pub(crate) object: Value,
}

impl PodBuilder {
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

    /// A pod that requests a fraction of a GPU, as users write it.
    pub(crate) fn unprepared_fraction(name: &str, queue: &str, fraction: &str) -> Self {
        Self::new(name, queue, 0).annotation("gpu-fraction", fraction)
    }

    /// A pod with a fraction of a GPU and the prefix of its config maps; without a webhook, it has no references to them.
    pub(crate) fn fraction(name: &str, queue: &str, fraction: &str) -> Self {
        let pod = Self::unprepared_fraction(name, queue, fraction);
        pod.annotation(SHARED_GPU_CONFIG_MAP, &format!("{name}-shared-gpu"))
    }

    pub(crate) fn annotation(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][name] = Value::from(value);
        self
    }

    pub(crate) fn pod_group(self, group: &str) -> Self {
        self.annotation("pod-group-name", group)
    }

    pub(crate) fn label(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["labels"][name] = Value::from(value);
        self
    }

    pub(crate) fn node_selector(mut self, label: &str, value: &str) -> Self {
        self.object["spec"]["nodeSelector"] = json!({label: value});
        self
    }

    pub(crate) fn priority_class(mut self, class: &str) -> Self {
        self.object["spec"]["priorityClassName"] = Value::from(class);
        self
    }

    /// Sets a field of the spec.
    pub(crate) fn spec_field(mut self, field: &str, value: Value) -> Self {
        self.object["spec"][field] = value;
        self
    }

    pub(crate) fn on_node(self, node: &str) -> Self {
        self.spec_field("nodeSelector", json!({"kubernetes.io/hostname": node}))
    }

    /// The pod as a pod template.
    pub(crate) fn template(mut self) -> Value {
        let metadata = self.object["metadata"].as_object_mut().unwrap();
        metadata.remove("name");
        self.object
    }
}

/// Replaces top-level fields of `to` by those of `from`.
pub(crate) fn json_merge(to: &mut Value, from: &Value) {
    for (name, value) in from.as_object().into_iter().flatten() {
        to[name] = value.clone();
    }
}
