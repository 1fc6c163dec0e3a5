//! Repacking: what is free lies in pieces, and somebody moves so that it becomes one.

use crate::world::{Pod, World};
use kai_runtime::kind::{DEPLOYMENT, POD};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_move_together_for_one_that_fits_nowhere() {
    repacking(&World::new(2).await).await;
}

/// On two nodes of eight GPUs.
pub(crate) async fn repacking<B>(world: &World<B>) {
    world.queue("a", 16).await;
    for number in 0..2 {
        let name = format!("movable-{number}");
        world.create(&DEPLOYMENT, deployment(&name)).await;
        world.runs(&name, 1).await;
        let filler = format!("filler-{number}");
        world.pod(Pod::new(&filler, "a", 4)).await;
        world.runs(&filler, 1).await;
    }
    assert_eq!(world.nodes_of("movable-").await.len(), 2, "one on each node");
    for number in 0..2 {
        world.delete_pod(&format!("filler-{number}")).await;
    }
    world.comes("the fillers are gone", async || world.list(&POD).await.len() == 2).await;

    world.pod(Pod::new("big", "a", 8)).await;
    world.runs("big", 1).await;
    world.runs("movable-", 2).await;
    let (big, movable) = (world.nodes_of("big").await, world.nodes_of("movable-").await);
    let all = BTreeSet::from([world.node(1), world.node(2)]);
    assert_eq!(
        (movable.len(), &big | &movable),
        (1, all),
        "the two share a node, and the big one has the other"
    );
    let moved = world.events("Evict", "").await;
    assert_eq!(moved.len(), 1, "one of the two stayed where it was: {moved:?}");
}

/// One pod with four GPUs that comes back wherever it may.
fn deployment(name: &str) -> Value {
    let template = Pod::new(name, "a", 4).labelled("app", name).class("train").template();
    let selector = json!({"matchLabels": {"app": name}});
    json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "a"}},
        "spec": {"replicas": 1, "selector": selector, "template": template},
    })
}
