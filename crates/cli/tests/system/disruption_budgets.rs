//! `PodDisruptionBudgets`: protected pods are not evicted, and evictions that the API server rejects are reported.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::ComponentOptions;
use kai_engine::policy::DisruptionBudgets;
use kai_runtime::kind::POD_DISRUPTION_BUDGET;
use kai_sim::NodeGroup;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_protected_by_a_budget_are_not_evicted() {
    budget_protects_pods(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn rejected_eviction_is_reported_and_retried() {
    eviction_is_rejected(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn budgets_are_ignored_where_the_configuration_says_so() {
    let mut options = ComponentOptions::simulated();
    options.scheduler.config.engine.disruption_budgets = DisruptionBudgets::Ignore;
    let cluster = TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 8)], &options).await;
    cluster.create_queue("a", 8).await;
    shielded(&cluster, 2, 4).await;
    budget(&cluster, "shield", 2, 0).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_running("high", 1).await;
    assert_eq!(cluster.event_messages("Evict", "shielded").await.len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn group_whose_evictions_are_refused_takes_capacity_that_becomes_free() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    shielded(&cluster, 2, 4).await;
    budget(&cluster, "one", 0, 2).await;
    budget(&cluster, "another", 0, 2).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    // The backoff has grown to minutes by then.
    cluster.sleep(Duration::from_mins(3)).await;
    let message = cluster.wait_for_condition("high", "more than one PodDisruptionBudget").await;
    assert!(message.contains("no evictions for it before"), "{message}");
    for pod in ["shielded-0", "shielded-1"] {
        cluster.delete_pod(pod).await;
    }
    let freed = tokio::time::Instant::now();
    cluster.wait_for_running("high", 1).await;
    // Pods terminate within 30 seconds.
    assert!(freed.elapsed() < Duration::from_secs(45), "{:?}", freed.elapsed());
}

/// On one node of eight GPUs.
pub(crate) async fn budget_protects_pods<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    cluster.create_gang("plain", "a", 4, 1, json!({"priorityClassName": "train"})).await;
    cluster.wait_for_running("plain", 4).await;
    shielded(cluster, 4, 1).await;
    budget(cluster, "shield", 4, 0).await;

    // Without the budget, the younger group would be the first victim.
    cluster.create_gang("high", "a", 1, 4, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_running("high", 1).await;
    assert_eq!((cluster.running("shielded").await, cluster.running("plain").await), (4, 0));
    cluster.create_gang("higher", "a", 1, 4, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_condition("higher", "Resources were not found").await;
    cluster.sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.running("shielded").await, 4, "there is no other victim");
    cluster.delete(&POD_DISRUPTION_BUDGET, "shield").await;
    cluster.wait_for_running("higher", 1).await;
    assert_eq!(cluster.running("shielded").await, 0);
}

/// On one node of eight GPUs. The API server rejects the eviction of a pod with two budgets; the scheduler does not model that.
pub(crate) async fn eviction_is_rejected<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    shielded(cluster, 2, 4).await;
    budget(cluster, "one", 0, 2).await;
    budget(cluster, "another", 0, 2).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_condition("high", "more than one PodDisruptionBudget").await;
    assert_eq!(cluster.running("shielded").await, 2);
    cluster.delete(&POD_DISRUPTION_BUDGET, "another").await;
    cluster.wait_for_running("high", 1).await;
}

/// Creates a gang whose pods the budgets select.
pub(crate) async fn shielded<B>(cluster: &TestCluster<B>, pods: usize, gpus: u32) {
    let pod = |name: &str| PodBuilder::new(name, "a", gpus).label("app", "shielded");
    cluster.create_group("shielded", "a", pods, json!({"priorityClassName": "train"}), pod).await;
    cluster.wait_for_running("shielded", pods).await;
}

/// Creates a budget for that gang, and waits until the controller allows this many disruptions.
pub(crate) async fn budget<B>(cluster: &TestCluster<B>, name: &str, available: usize, allowed: i64) {
    let selector = json!({"matchLabels": {"app": "shielded"}});
    let spec = json!({"minAvailable": available, "selector": selector});
    cluster.create(&POD_DISRUPTION_BUDGET, json!({"metadata": {"name": name}, "spec": spec})).await;
    let what = format!("budget `{name}` allows {allowed} disruptions");
    cluster
        .wait_until(&what, async || {
            let status = cluster.get(&POD_DISRUPTION_BUDGET, name).await.unwrap()["status"].clone();
            status["observedGeneration"] == 1
                && status["disruptionsAllowed"] == allowed
                && status["expectedPods"] != 0
        })
        .await;
}
