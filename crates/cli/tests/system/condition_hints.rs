//! Hints in the conditions of pod groups: `--condition-hints` of the scheduler.

use crate::test_cluster::TestCluster;
use kai_components::ComponentOptions;
use kai_scheduler::resources::QUEUE;
use kai_sim::NodeGroup;
use serde_json::json;
use std::time::Duration;

async fn cluster(condition_hints: bool) -> TestCluster {
    let mut options = ComponentOptions::simulated();
    options.scheduler.condition_hints = condition_hints;
    let cluster = TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 8)], &options).await;
    let gpus = json!({"quota": 2, "limit": 2, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "team", &gpus, json!({})).await;
    cluster.create_gang("late", "team", 1, 3, json!({})).await;
    cluster
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn group_beyond_a_limit_gets_the_hint_that_runs_it_after_what_kai_writes() {
    let cluster = cluster(true).await;
    let without = cluster.wait_for_condition("late", "limit").await;
    assert!(!without.contains("Hint"), "the group is not pending for long: {without}");
    let with = cluster.wait_for_condition("late", "Hint").await;
    assert_eq!(with, format!("{} Hint: set the GPU limit of queue `team` to 3 (now 2).", without.trim_end()));
    let events = cluster.event_messages("Unschedulable", "late").await;
    assert!(!events.iter().any(|event| event.contains("Hint")), "events are KAI's: {events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn hint_of_a_condition_runs_the_group_when_it_is_followed() {
    let cluster = cluster(true).await;
    cluster.wait_for_condition("late", "Hint: set the GPU limit of queue `team` to 3 (now 2).").await;
    cluster.patch(&QUEUE, "team", &json!({"spec": {"resources": {"gpu": {"limit": 3}}}})).await;
    cluster.wait_for_running("late", 1).await;
    cluster.wait_until("the condition is gone", async || cluster.condition("late").await.is_empty()).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn condition_has_no_hint_by_default() {
    let cluster = cluster(false).await;
    cluster.wait_for_condition("late", "limit").await;
    cluster.sleep(Duration::from_mins(5)).await;
    let message = cluster.condition("late").await;
    assert!(!message.contains("Hint"), "{message}");
}
