//! Nodes that are lost: their pods run elsewhere, and nothing stays reserved for anybody.

use crate::world::{Pod, World};
use kai_runtime::kind::{JOB, NODE};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_node_that_is_not_ready_run_elsewhere() {
    not_ready(&World::new(2).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_node_that_is_deleted_run_elsewhere() {
    deleted(&World::new(2).await).await;
}

/// On two nodes of eight GPUs.
pub(crate) async fn not_ready<B>(world: &World<B>) {
    let (lost, left) = settle_on_one_node(world).await;
    fail(world, &lost, json!("not-ready")).await;
    moved(world, &left).await;
    fail(world, &lost, Value::Null).await;
    // All its GPUs are free again, and known to be.
    world.pod(Pod::new("whole", "default-queue", 8).on(&lost)).await;
    world.runs("whole", 1).await;
}

/// On two nodes of eight GPUs.
pub(crate) async fn deleted<B>(world: &World<B>) {
    let (lost, left) = settle_on_one_node(world).await;
    world.delete(&NODE, &lost).await;
    moved(world, &left).await;
}

/// A job and two halves of a GPU, all on one node; says which, and which is the other.
async fn settle_on_one_node<B>(world: &World<B>) -> (String, String) {
    let template =
        impatient(Pod::new("x", "default-queue", 4).with("restartPolicy", json!("Never"))).template();
    // Of one pod: jobs wait longer for each pod that they lose at once.
    let job = json!({
        "metadata": {"name": "work", "labels": {"kai.scheduler/queue": "default-queue"}},
        "spec": {"template": template},
    });
    world.create(&JOB, job).await;
    world.runs("work-", 1).await;
    for name in ["half-0", "half-1"] {
        world.pod(impatient(Pod::fraction(name, "default-queue", "0.5"))).await;
    }
    world.runs("half-", 2).await;
    let used = &world.nodes_of("work-").await | &world.nodes_of("half-").await;
    assert_eq!(used.len(), 1, "they are packed: {used:?}");
    assert_eq!(world.reservations().await.len(), 1, "the halves share a GPU");
    let lost = used.first().unwrap().clone();
    let left = [world.node(1), world.node(2)].into_iter().find(|node| *node != lost);
    (lost, left.unwrap())
}

/// Leaves a lost node at once.
fn impatient(pod: Pod) -> Pod {
    let bears =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
    let tolerations = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(bears);
    pod.with("tolerations", json!(tolerations))
}

/// What was on the lost node is on the other, and new halves share a GPU there.
async fn moved<B>(world: &World<B>, left: &str) {
    let there = BTreeSet::from([left.to_owned()]);
    world
        .comes("the job runs on the other node", async || {
            world.running("work-").await == 1 && world.nodes_of("work-").await == there
        })
        .await;
    world.comes("the halves are gone", async || world.placed("half-").await.is_empty()).await;
    world.comes("their GPU is not reserved any more", async || world.reservations().await.is_empty()).await;
    for name in ["new-half-0", "new-half-1"] {
        world.pod(Pod::fraction(name, "default-queue", "0.5")).await;
    }
    world.runs("new-half-", 2).await;
    assert_eq!(world.nodes_of("new-half-").await, there);
    assert_eq!(world.reservations().await.len(), 1);
}

/// Makes a node fail; `null` lets it work again.
async fn fail<B>(world: &World<B>, node: &str, how: Value) {
    world
        .change(&NODE, node, &json!({"metadata": {"annotations": {"sim.kai.scheduler/failure": how}}}))
        .await;
}
