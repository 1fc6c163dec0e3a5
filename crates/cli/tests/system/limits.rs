//! What a queue may have at most.

use crate::world::{Pod, World};
use kai_scheduler::resources::QUEUE;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn no_queue_gets_more_than_its_limit_or_its_parents() {
    held(&World::new(1).await).await;
}

/// On one node of eight GPUs.
pub(crate) async fn held<B>(world: &World<B>) {
    let gpus = |quota: i64, limit: i64| json!({"quota": quota, "limit": limit, "overQuotaWeight": 1});
    world.queue_below(Some("teams"), "department", &gpus(4, 4), json!({})).await;
    world.queue_below(Some("department"), "small", &gpus(3, 3), json!({})).await;
    world.queue_below(Some("department"), "open", &gpus(1, -1), json!({})).await;
    for number in 0..5 {
        world.pod(Pod::new(&format!("small-{number}"), "small", 1)).await;
    }
    world.runs("small-", 3).await;
    world.gang("open", "open", 2, 1, json!({})).await;
    let why = world.says("open", &world.queue_name("department")).await;
    assert!(why.contains("limit"), "{why}");
    let waiting = waiting(world).await;
    assert_eq!(waiting.len(), 2, "three of five fit");
    for pod in &waiting {
        let named = format!("{} quota has reached the allowable limit", world.queue_name("small"));
        let told = format!("pod `{pod}` is told of the limit");
        world.comes(&told, async || world.pod_condition(pod).await.1.contains(&named)).await;
    }

    // Whoever leaves is followed by one, and never by more.
    let (first, _) = world.placed("small-").await.swap_remove(0);
    world.delete_pod(&first).await;
    for _ in 0..20 {
        let placed = world.placed("small-").await.len();
        assert!(placed <= 3, "{placed} pods of a queue that may have three\n{}", world.story().await);
        world.pass(Duration::from_millis(100)).await;
    }
    world.runs("small-", 3).await;
    let used = || async {
        let queue = world.get(&QUEUE, "department").await.unwrap();
        queue["status"]["allocated"]["nvidia.com/gpu"].clone()
    };
    world.comes("the department has three GPUs", async || used().await == "3").await;
    assert_eq!(world.placed("open").await, [], "a gang of two would make five");
}

async fn waiting<B>(world: &World<B>) -> Vec<String> {
    let placed = world.placed("small-").await;
    let all = (0..5).map(|number| format!("small-{number}"));
    all.filter(|name| !placed.iter().any(|(placed, _)| placed == name)).collect()
}
