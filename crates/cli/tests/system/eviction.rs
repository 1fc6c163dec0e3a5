//! Reclaim between queues and preemption within a queue.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_scheduler::resources::POD_GROUP;
use serde_json::json;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_below_its_fair_share_reclaims_from_one_above() {
    reclaim(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn reclaim<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 4).await;
    cluster.create_queue("b", 4).await;
    for number in 0..8 {
        cluster.create_pod(PodBuilder::new(&format!("a-{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("a-", 8).await;
    cluster.create_pod(PodBuilder::new("b-0", "b", 2)).await;
    cluster.wait_for_running("b-", 1).await;
    assert_eq!(cluster.running("a-").await, 6);
    let events = cluster.event_messages("Evict", "pg-a-").await;
    assert_eq!(events.len(), 2, "{events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn group_with_higher_priority_preempts_within_its_queue() {
    preemption(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn preemption<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    cluster.create_gang("low", "a", 8, 1, json!({"minMember": 8, "priorityClassName": "train"})).await;
    cluster.wait_for_running("low", 8).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_running("high", 1).await;
    let group = cluster.get(&POD_GROUP, "low").await.unwrap();
    assert!(group["metadata"]["annotations"]["kai.scheduler/last-eviction-timestamp"].is_string(), "{group}");
}
