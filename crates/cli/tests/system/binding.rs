//! Bindings that fail: they are tried again, keep nobody else from running, and succeed when their cause is gone.

use crate::world::{Pod, World};
use kai_object as object;
use kai_runtime::kind::{POD, STORAGE_CLASS, VOLUME, VOLUME_CLAIM};
use kai_scheduler::resources::BIND_REQUEST;
use serde_json::{Value, json};

/// The class of volumes that nobody makes.
const CLASS: &str = "nobody-provisions";

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_failed_binding_is_counted_and_tried_again_up_to_its_limit() {
    counted(&World::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_group_that_cannot_be_bound_lets_others_go_first() {
    set_aside(&World::new(1).await).await;
}

/// On one node. Requests of this scheduler have no limit and are tried once; those of others may have one.
pub(crate) async fn counted<B>(world: &World<B>) {
    prepare(world).await;
    for (name, limit) in [("patient", 8), ("hasty", 2)] {
        claim(world, name).await;
        world.group(name, "no-such-queue", 1, json!({}), |pod| reader(pod, 0, name)).await;
        request(world, &format!("{name}-0"), limit).await;
    }
    for name in ["patient-0", "hasty-0"] {
        let failed = format!("a binding of `{name}` fails");
        world.comes(&failed, async || failures(world, name).await.is_some_and(|count| count > 0)).await;
    }
    let gone = async || failures(world, "hasty-0").await.is_none();
    world.comes("the request that failed twice is taken away", gone).await;
    assert_eq!(world.placed("hasty").await, []);
    volume(world, "patient").await;
    world.runs("patient", 1).await;
    let done = async || {
        let request = world.get(&BIND_REQUEST, "patient-0").await.unwrap();
        request["status"]["phase"] == "Succeeded"
    };
    world.comes("the other one has succeeded", done).await;
    assert!(failures(world, "patient-0").await.unwrap() > 0, "what failed stays counted");
    let told = world.events("BindingError", "patient").await;
    assert!(!told.is_empty(), "{}", world.story().await);
}

/// On one node of eight GPUs.
pub(crate) async fn set_aside<B>(world: &World<B>) {
    prepare(world).await;
    world.queue("a", 8).await;
    claim(world, "data").await;
    world.group("stuck", "a", 1, json!({}), |pod| reader(pod, 8, "data")).await;
    world.comes("its binding begins", async || world.get(&BIND_REQUEST, "stuck-0").await.is_some()).await;
    world.gang("next", "a", 1, 8, json!({})).await;
    world.runs("next", 1).await;
    assert_eq!(world.placed("stuck").await, []);

    world.delete_pod("next-0").await;
    let why = world.says("stuck", "times in a row").await;
    assert!(why.contains("binding pod") && why.contains(&world.node(1)), "{why}");
    volume(world, "data").await;
    world.runs("stuck", 1).await;
}

async fn prepare<B>(world: &World<B>) {
    let class = json!({
        "metadata": {"name": class(world)}, "provisioner": "example.com/nobody",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    world.create(&STORAGE_CLASS, class).await;
}

fn class<B>(world: &World<B>) -> String {
    format!("{}-{CLASS}", world.namespace())
}

async fn claim<B>(world: &World<B>, name: &str) {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": class(world),
        "resources": {"requests": {"storage": "1Gi"}},
    });
    world.create(&VOLUME_CLAIM, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// The volume that a claim waits for.
async fn volume<B>(world: &World<B>, claim: &str) {
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class(world),
        "hostPath": {"path": "/data"}, "claimRef": {"namespace": world.namespace(), "name": claim},
    });
    let name = format!("{}-{claim}", world.namespace());
    world.create(&VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// A pod that reads the volume of a claim.
fn reader(name: &str, gpus: u32, claim: &str) -> Pod {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    Pod::new(name, "a", gpus).with("volumes", volumes)
}

/// A bind request such as another scheduler may write it.
async fn request<B>(world: &World<B>, pod: &str, limit: i64) {
    let found = world.get(&POD, pod).await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": object::uid(&found)}]);
    let spec = json!({
        "podName": pod, "selectedNode": world.node(1), "receivedResourceType": "Regular",
        "receivedGPU": {"count": 0, "portion": "0.00"}, "backoffLimit": limit,
    });
    let metadata = json!({"name": pod, "ownerReferences": owner});
    world.create(&BIND_REQUEST, json!({"metadata": metadata, "spec": spec})).await;
}

/// How often a binding has failed; nothing when there is no such request.
async fn failures<B>(world: &World<B>, pod: &str) -> Option<i64> {
    let request: Value = world.get(&BIND_REQUEST, pod).await?;
    Some(request["status"]["failedAttempts"].as_i64().unwrap_or(0))
}
