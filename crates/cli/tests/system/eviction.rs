//! Who gives way to whom.

use crate::world::{Pod, World};
use kai_scheduler::resources::POD_GROUP;
use serde_json::json;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_queue_takes_back_what_it_is_entitled_to() {
    reclaim(&World::new(1).await).await;
}

/// On one node.
pub(crate) async fn reclaim<B>(world: &World<B>) {
    world.queue("a", 4).await;
    world.queue("b", 4).await;
    for number in 0..8 {
        world.pod(Pod::new(&format!("a-{number}"), "a", 1)).await;
    }
    world.runs("a-", 8).await;
    world.pod(Pod::new("b-0", "b", 2)).await;
    world.runs("b-", 1).await;
    assert_eq!(world.running("a-").await, 6);
    let events = world.events("Evict", "pg-a-").await;
    assert_eq!(events.len(), 2, "{events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_more_important_group_of_a_queue_goes_first() {
    preemption(&World::new(1).await).await;
}

/// On one node.
pub(crate) async fn preemption<B>(world: &World<B>) {
    world.queue("a", 8).await;
    world.gang("low", "a", 8, 1, json!({"minMember": 8, "priorityClassName": "train"})).await;
    world.runs("low", 8).await;
    world.gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    world.runs("high", 1).await;
    let group = world.get(&POD_GROUP, "low").await.unwrap();
    assert!(group["metadata"]["annotations"]["kai.scheduler/last-eviction-timestamp"].is_string(), "{group}");
}
