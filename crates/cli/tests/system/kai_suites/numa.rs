//! NUMA zones: what the topology manager of a kubelet would refuse is not placed there.
//!
//! The zones of a pod are those that the scheduler predicts: no kubelet runs here whose exporter could observe them.

use super::embedded;
use super::steps::bounds;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::kind::POD;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

/// GPUs of a zone and of the node.
const ZONE: u32 = 4;
const NODE: u32 = 8;

/// One node with the policy `single-numa-node`.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { numa_zones: 2, ..NodeGroup::gpu_nodes(1, NODE) }
}

/// Adds a node with the policy `restricted`.
async fn add_restricted<B>(cluster: &TestCluster<B>) -> String {
    let name = "restricted".to_owned();
    let nodes = NodeGroup { numa_policy: name.clone(), name, ..nodes() };
    cluster.add_nodes(nodes).await.swap_remove(0)
}

fn with(mut pod: PodBuilder, amounts: &Value) -> PodBuilder {
    pod.object["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    pod
}

/// A pod of the class `Guaranteed`.
fn guaranteed(name: &str, queue: &str, gpus: u32) -> PodBuilder {
    let amounts = json!({"cpu": "100m", "memory": "128Mi", "nvidia.com/gpu": gpus.to_string()});
    with(PodBuilder::new(name, queue, gpus), &amounts)
}

/// The zones of the prediction of a pod, and its GPUs.
async fn zones<B>(cluster: &TestCluster<B>, name: &str) -> (Vec<String>, i64) {
    let predicted = async || {
        let pod = cluster.get(&POD, name).await.unwrap_or_default();
        pod["metadata"]["annotations"][annotation::NUMA_PREDICTED].as_str().unwrap_or_default().to_owned()
    };
    cluster.wait_until("the zones are predicted", async || !predicted().await.is_empty()).await;
    let zones: Vec<Value> = serde_json::from_str(&predicted().await).unwrap();
    let gpus = zones.iter().filter_map(|zone| zone["amount"]["nvidia.com/gpu"].as_str()?.parse::<i64>().ok());
    let total = gpus.sum();
    (zones.iter().map(|zone| object::str_at(zone, "/zone").to_owned()).collect(), total)
}

async fn spans<B>(cluster: &TestCluster<B>, name: &str, count: usize, gpus: u32) {
    let (zones, total) = zones(cluster, name).await;
    assert_eq!((zones.len(), total), (count, i64::from(gpus)), "{name}: {zones:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn policies_of_the_topology_manager_decide_where_pods_fit() {
    policies(&embedded("suite-numa", nodes()).await).await;
}

/// numa-01 … 07.
pub(crate) async fn policies<B>(cluster: &TestCluster<B>) {
    let (single, restricted) = (cluster.node_name(1), add_restricted(cluster).await);
    cluster.add_nodes(NodeGroup { name: "plain".to_owned(), ..NodeGroup::default() }).await;
    cluster.create_queue("a", 64).await;
    cluster.runs(guaranteed("fits", "a", ZONE).on_node(&single)).await;
    cluster
        .wait_until("it has a class", async || {
            cluster.get(&POD, "fits").await.is_some_and(|pod| pod["status"]["qosClass"] == "Guaranteed")
        })
        .await;
    spans(cluster, "fits", 1, ZONE).await;
    cluster.clear().await;
    cluster.waits(guaranteed("spans", "a", ZONE + 1).on_node(&single)).await;
    cluster.runs(guaranteed("beside", "a", ZONE).on_node(&single)).await;
    cluster.waits(guaranteed("too-big", "a", NODE + 1).on_node(&restricted)).await;
    let small = json!({"cpu": "250m", "memory": "128Mi"});
    cluster.runs(with(PodBuilder::new("anywhere", "a", 0), &small)).await;
    let mut burstable = PodBuilder::new("burstable", "a", ZONE + 1).on_node(&single);
    burstable.object["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
    cluster.waits(burstable).await;
    let mut best_effort = PodBuilder::new("best-effort", "a", 0).on_node(&single);
    best_effort.object["spec"]["containers"][0]["resources"] = json!({});
    cluster.runs(best_effort).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn zones_are_freed_by_reclaim_and_preemption() {
    evictions(&embedded("suite-numa-evictions", nodes()).await).await;
}

/// numa-08 … 12.
pub(crate) async fn evictions<B>(cluster: &TestCluster<B>) {
    let total = i64::from(NODE);
    cluster.create_queue_under(None, "node", &bounds(total, total, 1), json!({})).await;
    cluster.create_queue_under(Some("node"), "reclaimee", &bounds(0, -1, 1), json!({})).await;
    cluster.create_queue_under(Some("node"), "reclaimer", &bounds(total, -1, 1), json!({})).await;
    let (single, restricted) = (cluster.node_name(1), add_restricted(cluster).await);
    for (node, gpus) in [(&single, ZONE), (&restricted, ZONE), (&restricted, ZONE + 1), (&restricted, NODE)] {
        for number in 0..2 {
            cluster.runs(guaranteed(&format!("victim-{number}"), "reclaimee", ZONE).on_node(node)).await;
        }
        let mut winner = guaranteed("winner", "reclaimer", gpus).on_node(node);
        if gpus > ZONE {
            // More CPU and memory than a zone has: all resources span both.
            let amounts = json!({"cpu": "33", "memory": "257Gi", "nvidia.com/gpu": gpus.to_string()});
            winner = with(winner, &amounts);
        }
        cluster.runs(winner).await;
        spans(cluster, "winner", if gpus > ZONE { 2 } else { 1 }, gpus).await;
        cluster.settles("victim-", usize::from(gpus <= ZONE), 0).await;
        cluster.clear().await;
    }
    preempt(cluster, &single).await;
}

/// numa-12: two GPUs are free, one in each zone; one further pod is evicted.
async fn preempt<B>(cluster: &TestCluster<B>, node: &str) {
    let (low, high) = (cluster.class(25).await, cluster.class(50).await);
    cluster.create_queue("a", i64::from(NODE)).await;
    for number in 0..NODE {
        let pod = guaranteed(&format!("low-{number}"), "a", 1).priority_class(&low).on_node(node);
        cluster.runs(pod).await;
    }
    let mut freed: Vec<String> = Vec::new();
    for number in 0..NODE {
        let name = format!("low-{number}");
        let (zones, _) = zones(cluster, &name).await;
        if !freed.contains(&zones[0]) {
            cluster.delete_pod(&name).await;
            freed.push(zones[0].clone());
        }
    }
    assert_eq!(freed.len(), 2, "{freed:?}");
    cluster.wait_until("two are gone", async || cluster.list(&POD).await.len() == 6).await;
    cluster.runs(guaranteed("high", "a", 2).priority_class(&high).on_node(node)).await;
    spans(cluster, "high", 1, 2).await;
    cluster.settles("low-", 5, 0).await;
}
