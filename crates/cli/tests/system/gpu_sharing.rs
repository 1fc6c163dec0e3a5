//! GPU sharing by fractions.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_object as object;
use kai_runtime::kind::POD;
use std::collections::BTreeMap;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpu_pods_share_eight_gpus() {
    half_gpus(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn half_gpus<B>(cluster: &TestCluster<B>) {
    for number in 0..16 {
        cluster.create_pod(PodBuilder::fraction(&format!("half-{number}"), "default-queue", "0.5")).await;
    }
    cluster.wait_for_running("half-", 16).await;
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for pod in cluster.list(&POD).await {
        if object::name(&pod).starts_with("half-") {
            let group = object::str_at(&pod, "/metadata/labels/runai-gpu-group").to_owned();
            *groups.entry(group).or_default() += 1;
        }
    }
    assert_eq!(groups.len(), 8, "{groups:?}");
    assert!(groups.values().all(|pods| *pods == 2), "{groups:?}");
}
