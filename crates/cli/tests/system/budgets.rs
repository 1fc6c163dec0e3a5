//! Disruption budgets: who is protected by one gives no way, and what the server refuses is told.

use crate::world::{Pod, World};
use kai_runtime::kind::POD_DISRUPTION_BUDGET;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_a_budget_protects_are_no_victims() {
    protected(&World::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn an_eviction_that_the_server_refuses_is_told_and_tried_again() {
    refused(&World::new(1).await).await;
}

/// On one node of eight GPUs.
pub(crate) async fn protected<B>(world: &World<B>) {
    world.queue("a", 8).await;
    world.gang("plain", "a", 4, 1, json!({"priorityClassName": "train"})).await;
    world.runs("plain", 4).await;
    shielded(world, 4, 1).await;
    budget(world, "shield", 4, 0).await;

    // The younger group would go first, were it not for its budget.
    world.gang("high", "a", 1, 4, json!({"priorityClassName": "build"})).await;
    world.runs("high", 1).await;
    assert_eq!((world.running("shielded").await, world.running("plain").await), (4, 0));
    world.gang("higher", "a", 1, 4, json!({"priorityClassName": "build"})).await;
    world.says("higher", "Resources were not found").await;
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.running("shielded").await, 4, "nobody else could go");
    world.delete(&POD_DISRUPTION_BUDGET, "shield").await;
    world.runs("higher", 1).await;
    assert_eq!(world.running("shielded").await, 0);
}

/// On one node of eight GPUs. A pod with two budgets cannot be evicted at all, which only the server knows.
pub(crate) async fn refused<B>(world: &World<B>) {
    world.queue("a", 8).await;
    shielded(world, 2, 4).await;
    budget(world, "one", 0, 2).await;
    budget(world, "another", 0, 2).await;
    world.gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    world.says("high", "more than one PodDisruptionBudget").await;
    assert_eq!(world.running("shielded").await, 2);
    world.delete(&POD_DISRUPTION_BUDGET, "another").await;
    world.runs("high", 1).await;
}

/// A gang whose pods budgets can select.
async fn shielded<B>(world: &World<B>, pods: usize, gpus: u32) {
    let pod = |name: &str| Pod::new(name, "a", gpus).labelled("app", "shielded");
    world.group("shielded", "a", pods, json!({"priorityClassName": "train"}), pod).await;
    world.runs("shielded", pods).await;
}

/// A budget for them that leaves so many to be evicted.
async fn budget<B>(world: &World<B>, name: &str, available: usize, allowed: i64) {
    let selector = json!({"matchLabels": {"app": "shielded"}});
    let spec = json!({"minAvailable": available, "selector": selector});
    world.create(&POD_DISRUPTION_BUDGET, json!({"metadata": {"name": name}, "spec": spec})).await;
    let counted = format!("budget `{name}` allows {allowed} disruptions");
    world
        .comes(&counted, async || {
            let status = world.get(&POD_DISRUPTION_BUDGET, name).await.unwrap()["status"].clone();
            status["observedGeneration"] == 1
                && status["disruptionsAllowed"] == allowed
                && status["expectedPods"] != 0
        })
        .await;
}
