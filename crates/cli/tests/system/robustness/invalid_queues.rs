//! Queues that do not exist, form a cycle, or have no parent.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_object as object;
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::json;
use std::time::Duration;

/// Scheduling condition of the `PodGroup` of a single pod.
async fn group_condition(cluster: &TestCluster, pod: &str) -> String {
    let groups = cluster.list(&POD_GROUP).await;
    let prefix = format!("pg-{pod}-");
    let group =
        groups.iter().find(|group| object::name(group).starts_with(&prefix)).expect("the pod has a group");
    object::str_at(group, "/status/schedulingConditions/0/message").to_owned()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn missing_queue_is_reported_and_the_group_is_scheduled_once_it_exists() {
    let cluster = TestCluster::new(1).await;
    cluster.create_pod(PodBuilder::new("lost", "later", 1)).await;
    cluster.create_pod(PodBuilder::new("good", "default-queue", 1)).await;
    cluster.wait_for_running("good", 1).await;
    cluster.sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.bound_pods("lost").await, []);
    let message = group_condition(&cluster, "lost").await;
    assert!(message.contains("later"), "{message}");
    cluster.create_queue("later", 4).await;
    cluster.wait_for_running("lost", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_cycle_is_reported_and_groups_are_scheduled_once_it_is_broken() {
    let cluster = TestCluster::new(1).await;
    for (name, parent) in [("egg", "hen"), ("hen", "egg"), ("chick", "egg"), ("self", "self")] {
        cluster
            .create_queue_under(
                Some(parent),
                name,
                &json!({"quota": 1, "limit": -1, "overQuotaWeight": 1}),
                json!({}),
            )
            .await;
    }
    cluster.create_pod(PodBuilder::new("round", "chick", 1)).await;
    cluster.create_pod(PodBuilder::new("good", "default-queue", 1)).await;
    cluster.wait_for_running("good", 1).await;
    cluster.sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.bound_pods("round").await, []);
    for queue in ["egg", "hen", "self"] {
        let events = cluster.event_messages("InvalidInput", queue).await;
        assert!(events.iter().any(|text| text.contains("its own ancestor")), "{queue}: {events:?}");
    }
    let message = group_condition(&cluster, "round").await;
    assert!(message.contains("chick"), "{message}");
    cluster.patch(&QUEUE, "hen", &json!({"spec": {"parentQueue": "teams"}})).await;
    cluster.wait_for_running("round", 1).await;
    cluster.sleep(Duration::from_secs(5)).await;
    let queue = cluster.get(&QUEUE, "hen").await.unwrap();
    assert_eq!(
        queue["status"]["allocated"]["nvidia.com/gpu"], "1",
        "allocations are added up to the parent queue: {queue}"
    );
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn missing_parent_queue_is_reported_and_the_queue_is_used_once_it_exists() {
    let cluster = TestCluster::new(1).await;
    let gpu = json!({"quota": 1, "limit": -1, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("cloud"), "drop", &gpu, json!({})).await;
    cluster.create_pod(PodBuilder::new("rain", "drop", 1)).await;
    cluster.create_pod(PodBuilder::new("good", "default-queue", 1)).await;
    cluster.wait_for_running("good", 1).await;
    cluster.sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.bound_pods("rain").await, []);
    let events = cluster.event_messages("InvalidInput", "drop").await;
    assert!(events.iter().any(|text| text.contains("`cloud` does not exist")), "{events:?}");
    cluster.create_queue_under(None, "cloud", &gpu, json!({})).await;
    cluster.wait_for_running("rain", 1).await;
}
