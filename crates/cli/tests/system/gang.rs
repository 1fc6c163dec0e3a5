//! Groups that run together or not at all.

use crate::world::{Pod, World};
use kai_object as object;
use kai_runtime::kind::POD;
use kai_scheduler::resources::POD_GROUP;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gang_waits_until_all_of_it_fits() {
    all_or_nothing(&World::new(2).await).await;
}

/// On two nodes.
pub(crate) async fn all_or_nothing<B>(world: &World<B>) {
    world.queue("a", 16).await;
    world.pod(Pod::new("first", "a", 1).class("inference")).await;
    world.runs("first", 1).await;
    world.gang("gang", "a", 2, 8, json!({})).await;
    world.says("gang", "gang scheduling").await;
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.placed("gang").await, [], "one node has only seven GPUs left");
    world.delete_pod("first").await;
    world.runs("gang", 2).await;
    world.comes("what is over is cleared", async || world.condition("gang").await.is_empty()).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn an_elastic_group_grows_into_free_room_and_shrinks_for_others() {
    elastic(&World::new(1).await).await;
}

/// On one node.
pub(crate) async fn elastic<B>(world: &World<B>) {
    world.queue("a", 4).await;
    world.queue("b", 4).await;
    world.gang("early", "b", 1, 4, json!({"priorityClassName": "train"})).await;
    world.runs("early", 1).await;
    world.gang("elastic", "a", 8, 1, json!({"minMember": 2, "priorityClassName": "train"})).await;
    world.runs("elastic", 4).await;
    world.delete_pod("early-0").await;
    world.runs("elastic", 8).await;
    world.gang("other", "b", 4, 1, json!({"priorityClassName": "train"})).await;
    world.runs("other", 4).await;
    world.runs("elastic", 4).await;
    assert_eq!(world.list(&POD).await.len(), 8, "those that gave way are gone, and nobody else");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gang_whose_last_pod_comes_late_is_told_why_it_waits() {
    let world = World::new(1).await;
    let spec = json!({"minMember": 2, "queue": "default-queue"});
    world.create(&POD_GROUP, json!({"metadata": {"name": "late"}, "spec": spec})).await;
    world.pod(Pod::new("late-0", "default-queue", 8).in_group("late")).await;
    world.pass(Duration::from_secs(5)).await;
    world.pod(Pod::new("late-1", "default-queue", 8).in_group("late")).await;
    world.pass(Duration::from_secs(20)).await;
    let group = world.get(&POD_GROUP, "late").await.unwrap();
    let message = object::str_at(&group, "/status/schedulingConditions/0/message");
    assert!(message.contains("gang scheduling"), "{group}");
}
