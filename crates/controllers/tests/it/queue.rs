//! The status and the metrics of queues follow their groups.

use crate::{Component, World, k, queue, queue_counts};
use kai_runtime::api::Part;
use kai_runtime::kind::Key;
use prometheus::{Encoder, TextEncoder};
use serde_json::{Value, json};

fn scrape(world: &World) -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&world.metrics.gather(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// A group of a queue that holds GPUs.
async fn holds(world: &World, name: &str, queue: &str, gpus: u32) {
    if world.find(&k::POD_GROUP, name).await.is_none() {
        world.create(&k::POD_GROUP, json!({"metadata": {"name": name}, "spec": {"queue": queue}})).await;
    }
    let amounts = json!({"nvidia.com/gpu": gpus.to_string()});
    let status = json!({"status": {"resourcesStatus": {"requested": amounts, "allocated": amounts}}});
    world
        .cluster
        .api()
        .patch_dynamic(&k::POD_GROUP, &Key::new("default", name), Part::Status, &status)
        .await
        .unwrap();
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn three_levels_add_up_in_one_write_each() {
    let world = World::new(&[Component::Queue]).await;
    for (name, parent) in [("root", ""), ("dept", "root"), ("b", "dept"), ("a", "dept")] {
        world.create(&k::QUEUE, queue(name, parent)).await;
    }
    world.sleep(5.0).await;
    let children = |queue: &Value| queue["status"]["childQueues"].clone();
    assert_eq!(children(&world.find(&k::QUEUE, "dept").await.unwrap()), json!(["a", "b"]));
    let before = world.writes(Component::Queue).len();
    for at in 0..20 {
        holds(&world, &format!("g{at}"), if at % 2 == 0 { "a" } else { "b" }, 1).await;
    }
    world.until(&k::QUEUE, "root", |queue| queue_counts(queue, "nvidia.com/gpu") == ["20", "20"]).await;
    world.until(&k::QUEUE, "a", |queue| queue_counts(queue, "nvidia.com/gpu") == ["10", "10"]).await;
    world.sleep(10.0).await;
    assert_eq!(world.writes(Component::Queue).len() - before, 4, "one for each queue");
    assert!(scrape(&world).contains(
        r#"kai_queue_allocated_gpus{queue_display_name="",queue_metadata_name="dept",queue_name="dept"} 20"#
    ));

    world.delete(&k::POD_GROUP, "g0").await;
    world.patch(&k::QUEUE, "b", json!({"spec": {"parentQueue": "root"}})).await;
    world.until(&k::QUEUE, "dept", |queue| queue_counts(queue, "nvidia.com/gpu") == ["9", "9"]).await;
    world.until(&k::QUEUE, "root", |queue| children(queue) == json!(["b", "dept"])).await;
    world.delete(&k::QUEUE, "a").await;
    world
        .until(&k::QUEUE, "dept", |queue| {
            queue.get("status").is_none_or(|status| status.get("childQueues").is_none())
        })
        .await;
    assert!(!scrape(&world).contains(r#"queue_name="a""#));
}
