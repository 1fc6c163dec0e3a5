//! Queues that are not there, go in circles, or hang in the air.

use crate::world::{Pod, World};
use kai_object as object;
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::json;
use std::time::Duration;

/// What the group of a pod that cannot run says.
async fn told(world: &World, pod: &str) -> String {
    let groups = world.list(&POD_GROUP).await;
    let prefix = format!("pg-{pod}-");
    let group = groups.iter().find(|group| object::name(group).starts_with(&prefix)).expect("it has a group");
    object::str_at(group, "/status/schedulingConditions/0/message").to_owned()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_group_of_a_queue_that_is_not_there_says_so_and_runs_when_it_is() {
    let world = World::new(1).await;
    world.pod(Pod::new("lost", "later", 1)).await;
    world.pod(Pod::new("good", "default-queue", 1)).await;
    world.runs("good", 1).await;
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.placed("lost").await, []);
    let message = told(&world, "lost").await;
    assert!(message.contains("later"), "{message}");
    world.queue("later", 4).await;
    world.runs("lost", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queues_in_a_circle_say_so_and_their_groups_run_when_it_is_broken() {
    let world = World::new(1).await;
    for (name, parent) in [("egg", "hen"), ("hen", "egg"), ("chick", "egg"), ("self", "self")] {
        world
            .queue_below(
                Some(parent),
                name,
                &json!({"quota": 1, "limit": -1, "overQuotaWeight": 1}),
                json!({}),
            )
            .await;
    }
    world.pod(Pod::new("round", "chick", 1)).await;
    world.pod(Pod::new("good", "default-queue", 1)).await;
    world.runs("good", 1).await;
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.placed("round").await, []);
    for queue in ["egg", "hen", "self"] {
        let events = world.events("OddInput", queue).await;
        assert!(events.iter().any(|text| text.contains("above itself")), "{queue}: {events:?}");
    }
    let message = told(&world, "round").await;
    assert!(message.contains("chick"), "{message}");
    world.change(&QUEUE, "hen", &json!({"spec": {"parentQueue": "teams"}})).await;
    world.runs("round", 1).await;
    world.pass(Duration::from_secs(5)).await;
    let queue = world.get(&QUEUE, "hen").await.unwrap();
    assert_eq!(queue["status"]["allocated"]["nvidia.com/gpu"], "1", "sums go up as they should: {queue}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_queue_below_one_that_is_not_there_says_so_and_takes_part_when_it_is() {
    let world = World::new(1).await;
    let gpu = json!({"quota": 1, "limit": -1, "overQuotaWeight": 1});
    world.queue_below(Some("cloud"), "drop", &gpu, json!({})).await;
    world.pod(Pod::new("rain", "drop", 1)).await;
    world.pod(Pod::new("good", "default-queue", 1)).await;
    world.runs("good", 1).await;
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.placed("rain").await, []);
    let events = world.events("OddInput", "drop").await;
    assert!(events.iter().any(|text| text.contains("`cloud` is not there")), "{events:?}");
    world.queue_below(None, "cloud", &gpu, json!({})).await;
    world.runs("rain", 1).await;
}
