//! Nodes that become not ready or are deleted: their pods run elsewhere, and their GPU reservations are released.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_runtime::kind::{JOB, NODE};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_not_ready_node_run_elsewhere() {
    not_ready(&TestCluster::new(2).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_deleted_node_run_elsewhere() {
    deleted(&TestCluster::new(2).await).await;
}

/// On two nodes of eight GPUs.
pub(crate) async fn not_ready<B>(cluster: &TestCluster<B>) {
    let (lost, left) = occupy_one_node(cluster).await;
    fail(cluster, &lost, json!("not-ready")).await;
    assert_moved(cluster, &left).await;
    fail(cluster, &lost, Value::Null).await;
    // The scheduler counts all GPUs of the node as free again.
    cluster.create_pod(PodBuilder::new("whole", "default-queue", 8).on_node(&lost)).await;
    cluster.wait_for_running("whole", 1).await;
}

/// On two nodes of eight GPUs.
pub(crate) async fn deleted<B>(cluster: &TestCluster<B>) {
    let (lost, left) = occupy_one_node(cluster).await;
    cluster.delete(&NODE, &lost).await;
    assert_moved(cluster, &left).await;
}

/// Runs a job and two half-GPU pods on one node; returns that node and the other.
async fn occupy_one_node<B>(cluster: &TestCluster<B>) -> (String, String) {
    let template = short_toleration(
        PodBuilder::new("x", "default-queue", 4).spec_field("restartPolicy", json!("Never")),
    )
    .template();
    // One pod only: the Job controller backs off longer for every failed pod.
    let job = json!({
        "metadata": {"name": "work", "labels": {"kai.scheduler/queue": "default-queue"}},
        "spec": {"template": template},
    });
    cluster.create(&JOB, job).await;
    cluster.wait_for_running("work-", 1).await;
    for name in ["half-0", "half-1"] {
        cluster.create_pod(short_toleration(PodBuilder::fraction(name, "default-queue", "0.5"))).await;
    }
    cluster.wait_for_running("half-", 2).await;
    let used = &cluster.nodes_of("work-").await | &cluster.nodes_of("half-").await;
    assert_eq!(used.len(), 1, "the pods are packed: {used:?}");
    assert_eq!(cluster.reservations().await.len(), 1, "the halves share a GPU");
    let lost = used.first().unwrap().clone();
    let left = [cluster.node_name(1), cluster.node_name(2)].into_iter().find(|node| *node != lost);
    (lost, left.unwrap())
}

/// Tolerates a failed node for one second only.
fn short_toleration(pod: PodBuilder) -> PodBuilder {
    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
    let tolerations = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(toleration);
    pod.spec_field("tolerations", json!(tolerations))
}

/// The job runs on the other node, the half-GPU pods are deleted, and new ones share a GPU there.
async fn assert_moved<B>(cluster: &TestCluster<B>, left: &str) {
    let expected = BTreeSet::from([left.to_owned()]);
    cluster
        .wait_until("the job runs on the other node", async || {
            cluster.running("work-").await == 1 && cluster.nodes_of("work-").await == expected
        })
        .await;
    cluster.wait_until("the halves are gone", async || cluster.bound_pods("half-").await.is_empty()).await;
    cluster
        .wait_until("their GPU reservation is released", async || cluster.reservations().await.is_empty())
        .await;
    for name in ["new-half-0", "new-half-1"] {
        cluster.create_pod(PodBuilder::fraction(name, "default-queue", "0.5")).await;
    }
    cluster.wait_for_running("new-half-", 2).await;
    assert_eq!(cluster.nodes_of("new-half-").await, expected);
    assert_eq!(cluster.reservations().await.len(), 1);
}

/// Sets the failure mode of a simulated node; `null` ends it.
async fn fail<B>(cluster: &TestCluster<B>, node: &str, mode: Value) {
    cluster
        .patch(&NODE, node, &json!({"metadata": {"annotations": {"sim.kai.scheduler/failure": mode}}}))
        .await;
}
