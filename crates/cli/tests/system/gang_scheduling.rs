//! Gang scheduling and elastic groups.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_object as object;
use kai_runtime::kind::POD;
use kai_scheduler::resources::POD_GROUP;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gang_is_not_bound_until_all_members_fit() {
    all_or_nothing(&TestCluster::new(2).await).await;
}

/// On two nodes.
pub(crate) async fn all_or_nothing<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 16).await;
    cluster.create_pod(PodBuilder::new("first", "a", 1).priority_class("inference")).await;
    cluster.wait_for_running("first", 1).await;
    cluster.create_gang("gang", "a", 2, 8, json!({})).await;
    cluster.wait_for_condition("gang", "gang scheduling").await;
    cluster.sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.bound_pods("gang").await, [], "one node has only seven GPUs left");
    cluster.delete_pod("first").await;
    cluster.wait_for_running("gang", 2).await;
    cluster.wait_until("the condition is cleared", async || cluster.condition("gang").await.is_empty()).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn elastic_group_uses_free_capacity_and_is_reduced_by_reclaim() {
    elastic(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn elastic<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 4).await;
    cluster.create_queue("b", 4).await;
    cluster.create_gang("early", "b", 1, 4, json!({"priorityClassName": "train"})).await;
    cluster.wait_for_running("early", 1).await;
    cluster.create_gang("elastic", "a", 8, 1, json!({"minMember": 2, "priorityClassName": "train"})).await;
    cluster.wait_for_running("elastic", 4).await;
    cluster.delete_pod("early-0").await;
    cluster.wait_for_running("elastic", 8).await;
    cluster.create_gang("other", "b", 4, 1, json!({"priorityClassName": "train"})).await;
    cluster.wait_for_running("other", 4).await;
    cluster.wait_for_running("elastic", 4).await;
    assert_eq!(cluster.list(&POD).await.len(), 8, "only the evicted pods are gone");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gang_completed_by_a_late_pod_reports_why_it_is_unschedulable() {
    let cluster = TestCluster::new(1).await;
    let spec = json!({"minMember": 2, "queue": "default-queue"});
    cluster.create(&POD_GROUP, json!({"metadata": {"name": "late"}, "spec": spec})).await;
    cluster.create_pod(PodBuilder::new("late-0", "default-queue", 8).pod_group("late")).await;
    cluster.sleep(Duration::from_secs(5)).await;
    cluster.create_pod(PodBuilder::new("late-1", "default-queue", 8).pod_group("late")).await;
    cluster.sleep(Duration::from_secs(20)).await;
    let group = cluster.get(&POD_GROUP, "late").await.unwrap();
    let message = object::str_at(&group, "/status/schedulingConditions/0/message");
    assert!(message.contains("gang scheduling"), "{group}");
}
