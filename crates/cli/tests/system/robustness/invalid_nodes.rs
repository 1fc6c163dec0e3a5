//! Nodes with invalid or extreme allocatable amounts.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_runtime::api::Part;
use kai_runtime::kind::{Key, NODE};
use serde_json::{Value, json};
use std::time::Duration;

/// Creates a node with this status; returns whether the API server accepts the status.
async fn create_node(cluster: &TestCluster, name: &str, allocatable: Value) -> bool {
    cluster.create(&NODE, json!({"metadata": {"name": name}})).await;
    let status = json!({"status": {
        "capacity": allocatable, "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    cluster.api().patch_dynamic(&NODE, &Key::new("", name), Part::Status, &status).await.is_ok()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nodes_with_invalid_allocatable_are_reported_and_do_not_affect_other_nodes() {
    let cluster = TestCluster::new(1).await;
    let huge = json!({
        "cpu": "9E", "memory": "9223372036854775807", "pods": "9223372036854775807",
        "nvidia.com/gpu": "9223372036854775807", "example.com/thing": "9E",
    });
    assert!(create_node(&cluster, "huge", huge).await);
    let none = json!({"cpu": "64", "memory": "1Ti", "pods": "0", "nvidia.com/gpu": "64"});
    assert!(create_node(&cluster, "none", none).await);
    assert!(create_node(&cluster, "empty", json!({})).await);
    let negative = json!({"cpu": "-64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "-8"});
    assert!(create_node(&cluster, "negative", negative).await);
    let nonsense = json!({"cpu": "lots", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "many"});
    assert!(
        !create_node(&cluster, "nonsense", nonsense).await,
        "the API server rejects values that are not quantities"
    );
    // Only the simulated node and `huge` fit these. The amounts of `huge` are clamped.
    for number in 0..8 {
        cluster.create_pod(PodBuilder::new(&format!("pod-{number}"), "default-queue", 1)).await;
    }
    cluster.wait_for_running("pod-", 8).await;
    cluster
        .create_pod(
            PodBuilder::new("nine", "default-queue", 9).node_selector("kubernetes.io/hostname", "none"),
        )
        .await;
    cluster.sleep(Duration::from_secs(20)).await;
    let placed = cluster.bound_pods("").await;
    let on = |name: &str| placed.iter().filter(|(_, node)| node == name).count();
    assert_eq!((on("none"), on("empty"), on("negative"), on("nonsense")), (0, 0, 0, 0), "{placed:?}");
    let events = cluster.event_messages("InvalidInput", "huge").await;
    for what in ["cpu", "memory", "nvidia.com/gpu"] {
        let cut = format!("`status.allocatable.{what}`");
        assert!(events.iter().any(|text| text.contains(&cut)), "{what}: {events:?}");
    }
    let events = cluster.event_messages("InvalidInput", "negative").await;
    assert!(events.iter().any(|text| text.contains("`-8` is negative")), "{events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn node_without_allocatable_keeps_its_pods_and_accepts_no_new_ones() {
    let cluster = TestCluster::new(1).await;
    cluster.create_pod(PodBuilder::new("first", "default-queue", 4)).await;
    cluster.wait_for_running("first", 1).await;
    let node = cluster.bound_pods("first").await[0].1.clone();
    let status = json!({"status": {"allocatable": {"nvidia.com/gpu": "0", "pods": "0"}}});
    cluster.api().patch_dynamic(&NODE, &Key::new("", &node), Part::Status, &status).await.unwrap();
    cluster.create_pod(PodBuilder::new("second", "default-queue", 1)).await;
    cluster.sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.bound_pods("second").await, []);
    assert_eq!(cluster.running("first").await, 1);
    let status = json!({"status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}}});
    cluster.api().patch_dynamic(&NODE, &Key::new("", &node), Part::Status, &status).await.unwrap();
    cluster.wait_for_running("second", 1).await;
}
