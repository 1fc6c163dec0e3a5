//! Consolidation: free GPUs are fragmented, and pods are moved so that a larger pod fits.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_runtime::kind::{DEPLOYMENT, POD};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_moved_to_one_node_for_a_pod_that_does_not_fit() {
    defragmentation(&TestCluster::new(2).await).await;
}

/// On two nodes of eight GPUs.
pub(crate) async fn defragmentation<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 16).await;
    for number in 0..2 {
        let name = format!("movable-{number}");
        cluster.create(&DEPLOYMENT, deployment(&name)).await;
        cluster.wait_for_running(&name, 1).await;
        let filler = format!("filler-{number}");
        cluster.create_pod(PodBuilder::new(&filler, "a", 4)).await;
        cluster.wait_for_running(&filler, 1).await;
    }
    assert_eq!(cluster.nodes_of("movable-").await.len(), 2, "one on each node");
    for number in 0..2 {
        cluster.delete_pod(&format!("filler-{number}")).await;
    }
    cluster.wait_until("the fillers are gone", async || cluster.list(&POD).await.len() == 2).await;

    cluster.create_pod(PodBuilder::new("big", "a", 8)).await;
    cluster.wait_for_running("big", 1).await;
    cluster.wait_for_running("movable-", 2).await;
    let (big, movable) = (cluster.nodes_of("big").await, cluster.nodes_of("movable-").await);
    let all = BTreeSet::from([cluster.node_name(1), cluster.node_name(2)]);
    assert_eq!(
        (movable.len(), &big | &movable),
        (1, all),
        "the movable pods share a node, and `big` has the other"
    );
    let moved = cluster.event_messages("Evict", "").await;
    assert_eq!(moved.len(), 1, "only one pod is moved: {moved:?}");
}

/// A Deployment of one pod with four GPUs, which is recreated after an eviction.
fn deployment(name: &str) -> Value {
    let template = PodBuilder::new(name, "a", 4).label("app", name).priority_class("train").template();
    let selector = json!({"matchLabels": {"app": name}});
    json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "a"}},
        "spec": {"replicas": 1, "selector": selector, "template": template},
    })
}
