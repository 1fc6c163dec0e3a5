//! Pods are moved so that a larger one fits.

use super::embedded;
use super::steps::bounds;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::label;
use kai_object as object;
use kai_runtime::kind::{JOB, POD};
use kai_sim::NodeGroup;
use serde_json::json;
use std::collections::BTreeMap;

pub(crate) fn nodes() -> NodeGroup {
    NodeGroup::gpu_nodes(2, 2)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn running_pods_make_place_on_another_node_or_gpu() {
    consolidate(&embedded("suite-consolidation", nodes()).await).await;
}

/// Deletes the Job of a pod, and waits until the pod is gone.
async fn end<B>(cluster: &TestCluster<B>, job: &str) {
    cluster.delete(&JOB, job).await;
    cluster.wait_until("its pod is gone", async || cluster.states(&format!("{job}-")).await == (0, 0)).await;
}

/// consolidate-01 and 02, on two nodes with two GPUs.
pub(crate) async fn consolidate<B>(cluster: &TestCluster<B>) {
    cluster.create_queue_under(Some("teams"), "a", &bounds(-1, -1, 1), json!({})).await;
    cluster.fill("whole", 4, |name| PodBuilder::new(name, "a", 1)).await;
    let mut by_node: BTreeMap<String, String> = BTreeMap::new();
    for (pod, node) in cluster.bound_pods("whole-").await {
        by_node.insert(node, pod.rsplit_once('-').unwrap().0.to_owned());
    }
    assert_eq!(by_node.len(), 2, "{by_node:?}");
    for job in by_node.values() {
        end(cluster, job).await;
    }
    cluster.runs(PodBuilder::new("big", "a", 2)).await;
    cluster.settles("whole-", 2, 0).await;
    cluster.clear().await;

    let node = cluster.node_name(1);
    let half = |name: &str| PodBuilder::unprepared_fraction(name, "a", "0.5").on_node(&node);
    cluster.fill("half", 4, half).await;
    let mut by_gpu: BTreeMap<String, String> = BTreeMap::new();
    for pod in cluster.list(&POD).await {
        let group = object::str_at(&pod, &format!("/metadata/labels/{}", label::GPU_GROUP)).to_owned();
        assert!(!group.is_empty(), "{pod}");
        by_gpu.insert(group, object::name(&pod).rsplit_once('-').unwrap().0.to_owned());
    }
    assert_eq!(by_gpu.len(), 2, "{by_gpu:?}");
    for job in by_gpu.values() {
        end(cluster, job).await;
    }
    assert_eq!(cluster.runs(PodBuilder::new("big", "a", 1).on_node(&node)).await, node);
    cluster.settles("half-", 2, 0).await;
}
