//! Pods with one kind of request each.

use super::embedded;
use super::steps::cpu_pod;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_sim::NodeGroup;
use serde_json::{Value, json};

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_with_requests_of_every_kind_run() {
    requests(&embedded("suite-resources", NodeGroup::gpu_nodes(1, 4)).await).await;
}

/// resource-01 … 07, on one node with four GPUs.
pub(crate) async fn requests<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", -1).await;
    let plain = |name: &str, requests: Value| {
        let mut pod = PodBuilder::new(name, "a", 0);
        pod.object["spec"]["containers"][0]["resources"] = json!({"requests": requests});
        pod
    };
    cluster.runs(plain("none", json!({}))).await;
    cluster.runs(PodBuilder::new("gpu", "a", 1)).await;
    cluster.runs(PodBuilder::unprepared_fraction("half", "a", "0.5")).await;
    cluster.runs(cpu_pod("memory-of-gpu", "a", "1").annotation("gpu-memory", "500")).await;
    cluster.runs(plain("cpu", json!({"cpu": "1"}))).await;
    cluster.runs(plain("memory", json!({"memory": "100M"}))).await;
    cluster.runs(plain("disk", json!({"ephemeral-storage": "100M"}))).await;
    cluster.wait_for_running("", 7).await;
    // Each request counts: what exceeds the node waits.
    cluster.waits(plain("disk-too-big", json!({"ephemeral-storage": "100Ti"}))).await;
    cluster.waits(plain("memory-too-big", json!({"memory": "100Ti"}))).await;
}
