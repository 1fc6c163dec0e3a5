//! Nodes that say the impossible about themselves.

use crate::world::{Pod, World};
use kai_runtime::api::Part;
use kai_runtime::kind::{Key, NODE};
use serde_json::{Value, json};
use std::time::Duration;

/// A node of which nobody but its status says what it has; says whether the server takes such a status.
async fn node(world: &World, name: &str, allocatable: Value) -> bool {
    world.create(&NODE, json!({"metadata": {"name": name}})).await;
    let status = json!({"status": {
        "capacity": allocatable, "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    world.api().merge(&NODE, &Key::new("", name), Part::Status, &status).await.is_ok()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nodes_with_absurd_amounts_harm_nobody() {
    let world = World::new(1).await;
    let huge = json!({
        "cpu": "9E", "memory": "9223372036854775807", "pods": "9223372036854775807",
        "nvidia.com/gpu": "9223372036854775807", "example.com/thing": "9E",
    });
    assert!(node(&world, "huge", huge).await);
    let none = json!({"cpu": "64", "memory": "1Ti", "pods": "0", "nvidia.com/gpu": "64"});
    assert!(node(&world, "none", none).await);
    assert!(node(&world, "empty", json!({})).await);
    let negative = json!({"cpu": "-64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "-8"});
    assert!(node(&world, "negative", negative).await);
    let nonsense = json!({"cpu": "lots", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "many"});
    assert!(!node(&world, "nonsense", nonsense).await, "the server refuses what is no amount");
    // Only the node of the world and the huge one could take these; what the huge one says is cut, not believed.
    for number in 0..8 {
        world.pod(Pod::new(&format!("pod-{number}"), "default-queue", 1)).await;
    }
    world.runs("pod-", 8).await;
    world.pod(Pod::new("nine", "default-queue", 9).selecting("kubernetes.io/hostname", "none")).await;
    world.pass(Duration::from_secs(20)).await;
    let placed = world.placed("").await;
    let on = |name: &str| placed.iter().filter(|(_, node)| node == name).count();
    assert_eq!((on("none"), on("empty"), on("negative"), on("nonsense")), (0, 0, 0, 0), "{placed:?}");
    let events = world.events("OddInput", "huge").await;
    for what in ["cpu", "memory", "nvidia.com/gpu"] {
        let cut = format!("`status.allocatable.{what}`");
        assert!(events.iter().any(|text| text.contains(&cut)), "{what}: {events:?}");
    }
    let events = world.events("OddInput", "negative").await;
    assert!(events.iter().any(|text| text.contains("`-8` is negative")), "{events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_node_that_loses_all_its_capacity_keeps_its_pods_and_takes_no_more() {
    let world = World::new(1).await;
    world.pod(Pod::new("first", "default-queue", 4)).await;
    world.runs("first", 1).await;
    let node = world.placed("first").await[0].1.clone();
    let status = json!({"status": {"allocatable": {"nvidia.com/gpu": "0", "pods": "0"}}});
    world.api().merge(&NODE, &Key::new("", &node), Part::Status, &status).await.unwrap();
    world.pod(Pod::new("second", "default-queue", 1)).await;
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(world.placed("second").await, []);
    assert_eq!(world.running("first").await, 1);
    let status = json!({"status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}}});
    world.api().merge(&NODE, &Key::new("", &node), Part::Status, &status).await.unwrap();
    world.runs("second", 1).await;
}
