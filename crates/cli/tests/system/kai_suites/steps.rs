//! Steps that the suites share.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, label};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::kind::{
    DEVICE_CLASS, JOB, NODE, NODE_RESOURCE_TOPOLOGY, POD, PRIORITY_CLASS, RESOURCE_SLICE,
};
use kai_scheduler::resources::POD_GROUP;
use kai_sim::{NodeGroup, node};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a state must hold: the next two cycles that may evict.
const STAYS: Duration = Duration::from_millis(2_200);

/// Quota, limit and weight of one resource.
pub(super) fn bounds(quota: i64, limit: i64, weight: i64) -> Value {
    json!({"quota": quota, "limit": limit, "overQuotaWeight": weight})
}

/// A pod with a CPU limit, such as `500m`, and no GPU.
pub(super) fn cpu_pod(name: &str, queue: &str, cpu: &str) -> PodBuilder {
    let mut pod = PodBuilder::new(name, queue, 0);
    pod.object["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
    pod
}

/// A Job of one pod.
pub(super) fn job(name: &str, pod: PodBuilder) -> Value {
    let mut template = pod.label("app", name).template();
    let queue = template["metadata"]["labels"][label::QUEUE].clone();
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"metadata": {"name": name, "labels": {label::QUEUE: queue}}, "spec": {"backoffLimit": 50, "template": template}})
}

/// `PodScheduled` of a pod: its status and reason.
fn scheduled(pod: &Value) -> (&str, &str) {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == "PodScheduled");
    found.map_or(("", ""), |found| (object::str_at(found, "/status"), object::str_at(found, "/reason")))
}

impl<B> TestCluster<B> {
    /// Creates a leaf queue whose CPU quota and limit are these milli-cores.
    pub(super) async fn cpu_queue(&self, name: &str, milli: i64) {
        self.cpu_queue_under("teams", name, milli, milli).await;
    }

    pub(super) async fn cpu_queue_under(&self, parent: &str, name: &str, quota: i64, limit: i64) {
        let unlimited = bounds(-1, -1, 1);
        let resources = json!({"gpu": unlimited, "cpu": bounds(quota, limit, 1), "memory": unlimited});
        self.create_queue_under(Some(parent), name, &unlimited, json!({"resources": resources})).await;
    }

    /// The name of a priority class with this value.
    pub(super) async fn class(&self, value: i32) -> String {
        let name = format!("value-{value}");
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        self.api().ensure_dynamic(&PRIORITY_CLASS, "", &class).await.unwrap();
        name
    }

    /// Adds nodes to those of the scenario; their names get the prefix of the scenario's nodes.
    pub(super) async fn add_nodes(&self, group: NodeGroup) -> Vec<String> {
        let prefix = self.node_name(0);
        let name = format!("{}-{}", prefix.trim_end_matches("-0"), group.name);
        let mut group = NodeGroup { name, ..group };
        if let Some(pool) = self.pool() {
            group.labels.insert(label::NODE_POOL.to_owned(), pool.to_owned());
        }
        for at in 0..group.count {
            let made = node::node(&group, at, &Clock::system().time());
            let made = self.api().create_dynamic(&NODE, "", &made).await.unwrap();
            if group.dra {
                self.api().ensure_dynamic(&DEVICE_CLASS, "", &node::device_class()).await.unwrap();
                self.api().ensure_dynamic(&RESOURCE_SLICE, "", &node::slice(&group, &made)).await.unwrap();
            }
            if group.numa_zones > 1 {
                let zones = node::topology(&group, object::name(&made));
                self.api().ensure_dynamic(&NODE_RESOURCE_TOPOLOGY, "", &zones).await.unwrap();
            }
        }
        let names: Vec<String> = group.names().collect();
        self.wait_until("the new nodes are ready", async || {
            let nodes = self.list(&NODE).await;
            let is_ready = |name: &String| {
                nodes.iter().any(|node| {
                    object::name(node) == name
                        && node["spec"]["taints"].as_array().is_none_or(|all| all.len() == group.taints.len())
                })
            };
            names.iter().all(is_ready)
        })
        .await;
        names
    }

    async fn named(&self, prefix: &str) -> Vec<Value> {
        let pods = self.list(&POD).await;
        pods.into_iter()
            .filter(|pod| object::name(pod).starts_with(prefix) && !object::is_deleting(pod))
            .collect()
    }

    /// How many pods with this name prefix are scheduled, and how many are reported as unschedulable.
    pub(super) async fn states(&self, prefix: &str) -> (usize, usize) {
        let pods = self.named(prefix).await;
        let count = |wanted: (&str, &str)| {
            pods.iter()
                .filter(|pod| scheduled(pod) == wanted || wanted.1.is_empty() && scheduled(pod).0 == wanted.0)
                .count()
        };
        (count(("True", "")), count(("False", "Unschedulable")))
    }

    /// Waits until so many pods with this name prefix are scheduled and unschedulable, and checks that this does not
    /// change.
    #[track_caller]
    pub(super) fn settles<'a>(
        &'a self,
        prefix: &'a str,
        scheduled: usize,
        unschedulable: usize,
    ) -> impl Future<Output = ()> + 'a {
        let line = std::panic::Location::caller();
        async move {
            let expected = (scheduled, unschedulable);
            let what = format!(
                "{scheduled} pods `{prefix}*` are scheduled and {unschedulable} unschedulable ({line})"
            );
            self.wait_until(&what, async || self.states(prefix).await == expected).await;
            self.sleep(STAYS).await;
            let now = self.states(prefix).await;
            assert_eq!(now, expected, "{line}: it changes\n{}", self.dump().await);
        }
    }

    /// Waits until a pod is scheduled.
    #[track_caller]
    pub(super) fn scheduled<'a>(&'a self, pod: &'a str) -> impl Future<Output = ()> + 'a {
        let line = std::panic::Location::caller();
        async move {
            let what = format!("pod `{pod}` is scheduled ({line})");
            self.wait_until(&what, async || {
                let pod = self.get(&POD, pod).await.unwrap_or_default();
                scheduled(&pod).0 == "True" && !object::is_deleting(&pod)
            })
            .await;
        }
    }

    /// Waits until a pod is reported as unschedulable, and checks that it stays so.
    #[track_caller]
    pub(super) fn unschedulable<'a>(&'a self, pod: &'a str) -> impl Future<Output = ()> + 'a {
        let line = std::panic::Location::caller();
        async move {
            let state = async || {
                let pod = self.get(&POD, pod).await.unwrap_or_default();
                scheduled(&pod) == ("False", "Unschedulable")
            };
            self.wait_until(&format!("pod `{pod}` is unschedulable ({line})"), state).await;
            self.sleep(STAYS).await;
            assert!(state().await, "{line}: pod `{pod}` is scheduled later\n{}", self.dump().await);
        }
    }

    /// Creates a pod and waits until it is scheduled.
    #[track_caller]
    pub(super) fn runs(&self, pod: PodBuilder) -> impl Future<Output = String> + '_ {
        let line = std::panic::Location::caller();
        async move {
            let name = object::name(&pod.object).to_owned();
            self.create_pod(pod).await;
            let what = format!("pod `{name}` is scheduled ({line})");
            self.wait_until(&what, async || self.states(&name).await.0 == 1).await;
            self.node_of(&name).await
        }
    }

    /// Creates a pod and waits until it is reported as unschedulable.
    #[track_caller]
    pub(super) fn waits(&self, pod: PodBuilder) -> impl Future<Output = ()> + '_ {
        let line = std::panic::Location::caller();
        async move {
            let name = object::name(&pod.object).to_owned();
            self.create_pod(pod).await;
            let state = async || self.states(&name).await == (0, 1);
            self.wait_until(&format!("pod `{name}` is unschedulable ({line})"), state).await;
            self.sleep(STAYS).await;
            assert!(state().await, "{line}: pod `{name}` is scheduled later\n{}", self.dump().await);
        }
    }

    pub(super) async fn node_of(&self, pod: &str) -> String {
        object::str_at(&self.get(&POD, pod).await.unwrap_or_default(), "/spec/nodeName").to_owned()
    }

    /// Creates an own group of these pods.
    pub(super) async fn own_group(&self, name: &str, queue: &str, spec: Value, pods: Vec<PodBuilder>) {
        self.group_alone(name, queue, spec).await;
        for pod in pods {
            self.create_pod(pod.pod_group(name).label(annotation::POD_GROUP, name)).await;
        }
    }

    pub(super) async fn group_alone(&self, name: &str, queue: &str, spec: Value) {
        let mut group = json!({
            "metadata": {"name": name, "labels": {label::QUEUE: queue}}, "spec": {"queue": queue},
        });
        crate::test_cluster::json_merge(&mut group["spec"], &spec);
        self.create(&POD_GROUP, group).await;
    }

    /// Fills capacity with one-pod Jobs, and checks that one more does not fit.
    pub(super) async fn fill(&self, prefix: &str, count: usize, pod: impl Fn(&str) -> PodBuilder) {
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            self.create(&JOB, job(&name, pod(&name))).await;
        }
        let what = format!("{count} pods `{prefix}-*` are scheduled");
        self.wait_until(&what, async || self.states(&format!("{prefix}-")).await.0 == count).await;
        self.waits(pod("one-more")).await;
        self.delete_pod("one-more").await;
    }

    /// Deletes all workloads of the scenario; no pod and no reservation may be left.
    pub(super) async fn clear(&self) {
        for job in self.list(&JOB).await {
            // A Job that is already gone.
            let _ = self.try_delete(&JOB, object::name(&job)).await;
        }
        for kind in [&POD_GROUP, &POD] {
            self.api().delete_collection_dynamic(kind, self.namespace()).await.unwrap();
        }
        self.wait_until("the pods are gone", async || {
            let left = self.list(&POD).await;
            if left.iter().any(|pod| !object::is_deleting(pod)) {
                self.api().delete_collection_dynamic(&POD, self.namespace()).await.unwrap();
            }
            left.is_empty() && self.list(&JOB).await.is_empty() && self.reservations().await.is_empty()
        })
        .await;
    }
}
