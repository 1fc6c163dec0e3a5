//! Parts of GPUs: pods that share one, and whose GPUs they are.

use crate::world::{Pod, World};
use kai_object as object;
use kai_runtime::kind::POD;
use std::collections::BTreeMap;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_halves_share_eight_gpus() {
    halves(&World::new(1).await).await;
}

/// On one node.
pub(crate) async fn halves<B>(world: &World<B>) {
    for number in 0..16 {
        world.pod(Pod::fraction(&format!("half-{number}"), "default-queue", "0.5")).await;
    }
    world.runs("half-", 16).await;
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for pod in world.list(&POD).await {
        if object::name(&pod).starts_with("half-") {
            let group = object::str_at(&pod, "/metadata/labels/runai-gpu-group").to_owned();
            *groups.entry(group).or_default() += 1;
        }
    }
    assert_eq!(groups.len(), 8, "{groups:?}");
    assert!(groups.values().all(|pods| *pods == 2), "{groups:?}");
}
