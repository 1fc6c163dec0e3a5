//! GPU sharing by fractions.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_cli::embedded::admission::pod_options;
use kai_object as object;
use kai_runtime::kind::POD;
use std::collections::BTreeMap;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpu_pods_share_eight_gpus() {
    half_gpus(&TestCluster::with_admission(1, pod_options()).await).await;
}

/// On one node. The webhooks prepare the pods.
pub(crate) async fn half_gpus<B>(cluster: &TestCluster<B>) {
    for number in 0..16 {
        let name = format!("half-{number}");
        cluster.create_pod(PodBuilder::unprepared_fraction(&name, "default-queue", "0.5")).await;
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
