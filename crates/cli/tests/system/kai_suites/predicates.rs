//! On which nodes a pod can run at all.

use super::embedded;
use super::steps::cpu_pod;
use crate::test_cluster::{PodBuilder, TestCluster};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kai_api::BindRequest;
use kai_api::well_known::label;
use kai_object as object;
use kai_runtime::kind::{
    CONFIG_MAP, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, ResourceKind, STORAGE_CLASS, builtin,
};
use kai_sim::NodeGroup;
use kai_sim::node::Taint;
use serde_json::{Value, json};

const DRIVER: &str = "disks.example.com";
const TAINT: &str = "example.com/reserved";

pub(crate) fn nodes() -> NodeGroup {
    NodeGroup::gpu_nodes(2, 2)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_run_only_where_affinity_taints_config_maps_and_volumes_allow() {
    predicates(&embedded("suite-predicates", nodes()).await).await;
}

/// A node affinity over host names.
fn hosts(operator: &str, names: &[&str]) -> Value {
    let terms =
        json!([{"matchExpressions": [{"key": label::HOSTNAME, "operator": operator, "values": names}]}]);
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
}

fn with_volume(name: &str, volume: &Value) -> PodBuilder {
    let mut pod = PodBuilder::new(name, "a", 0).spec_field("volumes", json!([volume]));
    pod.object["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": volume["name"], "mountPath": "/data"}]);
    pod
}

/// predicate-01 … 08, 13 and 14, on two nodes with two GPUs; one without GPUs is added.
pub(crate) async fn predicates<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", -1).await;
    let taint = Taint { key: TAINT.to_owned(), value: "yes".to_owned(), effect: "NoSchedule".to_owned() };
    let plain = NodeGroup { name: "plain".to_owned(), taints: vec![taint], ..NodeGroup::default() };
    let plain = cluster.add_nodes(plain).await.swap_remove(0);
    let second = cluster.node_name(2);
    let pinned = |name: &str, gpus: u32, node: &str| {
        PodBuilder::new(name, "a", gpus).spec_field("affinity", json!({"nodeAffinity": hosts("In", &[node])}))
    };
    let tolerates = json!([{"key": TAINT, "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]);
    assert_eq!(cluster.runs(pinned("there", 1, &second)).await, second);
    cluster.waits(pinned("no-gpu", 1, &plain).spec_field("tolerations", tolerates.clone())).await;
    cluster.waits(pinned("tainted", 0, &plain)).await;
    assert_eq!(
        cluster.runs(pinned("tolerates", 0, &plain).spec_field("tolerations", tolerates)).await,
        plain
    );
    cluster.clear().await;

    let term = json!({"labelSelector": {"matchLabels": {"x": "y"}}, "topologyKey": label::HOSTNAME});
    let near = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let first = PodBuilder::new("near-0", "a", 1)
        .label("x", "y")
        .spec_field("affinity", json!({"podAffinity": near}));
    let node = cluster.runs(first).await;
    let affinity = json!({"podAffinity": near, "nodeAffinity": hosts("NotIn", &[node.as_str()])});
    cluster.waits(PodBuilder::new("near-1", "a", 1).label("x", "y").spec_field("affinity", affinity)).await;
    cluster.clear().await;

    cluster.create(&CONFIG_MAP, json!({"metadata": {"name": "settings"}, "data": {"a": "b"}})).await;
    let map = |name: &str| json!({"name": "settings", "configMap": {"name": name}});
    cluster.runs(with_volume("configured", &map("settings"))).await;
    cluster.waits(with_volume("unconfigured", &map("missing"))).await;
    cluster.clear().await;
    volumes(cluster).await;
}

/// A claim and the pod that uses it.
async fn claim<B>(cluster: &TestCluster<B>, name: &str, class: &str, storage: &str) -> PodBuilder {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": storage}},
    });
    cluster.create(&PERSISTENT_VOLUME_CLAIM, json!({"metadata": {"name": name}, "spec": spec})).await;
    with_volume(name, &json!({"name": "data", "persistentVolumeClaim": {"claimName": name}}))
}

async fn volumes<B>(cluster: &TestCluster<B>) {
    let disk = json!({"metadata": {"name": "suite-manual"}, "spec": {
        "capacity": {"storage": "10k"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
        "hostPath": {"path": "/tmp/suite-manual"},
    }});
    cluster.create(&PERSISTENT_VOLUME, disk).await;
    let pod = claim(cluster, "manual", "manual", "1k").await;
    cluster
        .wait_until("the claim is bound", async || {
            let claim = cluster.get(&PERSISTENT_VOLUME_CLAIM, "manual").await.unwrap();
            claim["status"]["phase"] == "Bound"
        })
        .await;
    cluster.runs(pod).await;

    let (drivers, capacities): (ResourceKind, ResourceKind) =
        (builtin::<CSIDriver>(), builtin::<CSIStorageCapacity>());
    cluster.create(&drivers, json!({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": true}})).await;
    let class = json!({
        "metadata": {"name": "suite-local"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create(&STORAGE_CLASS, class).await;
    let capacity = json!({
        "metadata": {"name": "suite-capacity"}, "storageClassName": "suite-local", "capacity": "1Gi", "nodeTopology": {},
    });
    cluster.create(&capacities, capacity).await;
    // Half of the capacity: the scheduler decides on a node. No provisioner makes the volume, so the pod is not bound.
    let small = claim(cluster, "small", "suite-local", "512Mi").await;
    cluster.create_pod(small).await;
    cluster
        .wait_until("a node is chosen for the pod with the small claim", async || {
            let requests = cluster.list(&ResourceKind::of::<BindRequest>()).await;
            requests.iter().any(|request| object::str_at(request, "/spec/podName") == "small")
        })
        .await;
    cluster.delete_pod("small").await;
    let huge = claim(cluster, "huge", "suite-local", "2Gi").await;
    cluster.waits(huge).await;
    let unknown = claim(cluster, "classless", "no-such-class", "512Mi").await;
    cluster.waits(unknown).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn only_labelled_nodes_are_used_where_scheduling_is_restricted() {
    restricted(&embedded("suite-restricted-nodes", nodes()).await).await;
}

/// predicate-09 … 12, on two nodes with two GPUs.
pub(crate) async fn restricted<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", -1).await;
    let node = cluster.node_name(1);
    for (worker, other) in [(label::GPU_WORKER, label::CPU_WORKER), (label::CPU_WORKER, label::GPU_WORKER)] {
        cluster.patch(&NODE, &node, &json!({"metadata": {"labels": {worker: "", other: null}}})).await;
        let is_gpu = worker == label::GPU_WORKER;
        let (gpu, cpu) = (PodBuilder::new("gpu", "a", 1), cpu_pod("cpu", "a", "100m"));
        let (fits, waits) = if is_gpu { (gpu, cpu) } else { (cpu, gpu) };
        assert_eq!(cluster.runs(fits).await, node);
        cluster.waits(waits).await;
        cluster.clear().await;
    }
}
