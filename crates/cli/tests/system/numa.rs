//! NUMA zones: placements that the topology manager of a kubelet admits, also by preemption and reclaim.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_cache::config_file::SchedulerConfig;
use kai_components::ComponentOptions;
use kai_engine::policy::PluginConfig;
use kai_object as object;
use kai_runtime::kind::POD;
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::time::Duration;

const PREDICTED: &str = "kai.scheduler/numa-placement-predicted";
const OBSERVED: &str = "kai.scheduler/numa-placement-observed";

/// One node with two zones of four GPUs each, and a scheduler with the plugin.
async fn cluster(policy: &str) -> TestCluster {
    let nodes = NodeGroup { numa_zones: 2, numa_policy: policy.to_owned(), ..NodeGroup::gpu_nodes(1, 8) };
    let mut options = ComponentOptions::simulated();
    let mut config = SchedulerConfig::default();
    config.engine.plugins.push(PluginConfig { name: "numa".to_owned(), ..PluginConfig::default() });
    options.scheduler.config = config;
    TestCluster::with_options(1, [nodes], &options).await
}

/// A pod with the quality of service `Guaranteed`.
fn guaranteed(name: &str, queue: &str, gpus: u32) -> PodBuilder {
    let amounts = json!({"cpu": "100m", "memory": "128Mi", "nvidia.com/gpu": gpus.to_string()});
    let mut pod = PodBuilder::new(name, queue, gpus);
    pod.object["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    pod
}

/// Zones and GPUs of the prediction of a pod.
async fn predicted(cluster: &TestCluster, pod: &str) -> (usize, i64) {
    let pod = cluster.get(&POD, pod).await.unwrap_or_default();
    let text = object::meta(&pod, "annotations").and_then(|all| all.get(PREDICTED)).and_then(Value::as_str);
    let zones: Value = serde_json::from_str(text.unwrap_or("[]")).unwrap();
    let zones = zones.as_array().cloned().unwrap_or_default();
    let gpus = zones.iter().filter_map(|zone| zone["amount"]["nvidia.com/gpu"].as_str()?.parse::<i64>().ok());
    (zones.len(), gpus.sum())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn single_numa_node_admits_what_fits_into_one_zone() {
    let cluster = cluster("single-numa-node").await;
    cluster.create_queue("a", 64).await;
    cluster.create_pod(guaranteed("wide", "a", 5)).await;
    cluster.create_pod(guaranteed("narrow", "a", 4)).await;
    cluster.create_pod(PodBuilder::new("plain", "a", 0)).await;
    cluster.wait_for_running("narrow", 1).await;
    cluster.wait_for_running("plain", 1).await;
    assert_eq!(predicted(&cluster, "narrow").await, (1, 4));
    cluster.sleep(Duration::from_mins(2)).await;
    assert_eq!(cluster.running("wide").await, 0);
    assert_eq!(cluster.pod_condition("wide").await.0, "Unschedulable");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn restricted_spans_zones_only_where_one_does_not_suffice() {
    let cluster = cluster("restricted").await;
    cluster.create_queue("a", 64).await;
    cluster.create_pod(guaranteed("too-wide", "a", 9)).await;
    cluster.create_pod(guaranteed("narrow", "a", 4)).await;
    cluster.wait_for_running("narrow", 1).await;
    assert_eq!(predicted(&cluster, "narrow").await, (1, 4));
    cluster.sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.running("too-wide").await, 0);
}

/// Fills the node with pods of a queue without quota, and lets a queue with quota reclaim.
async fn reclaim(policy: &str, victims: u32, reclaimer: u32) -> TestCluster {
    let cluster = cluster(policy).await;
    cluster.create_queue("reclaimee", 0).await;
    cluster.create_queue("reclaimer", 8).await;
    let count = 8 / victims;
    for number in 0..count {
        cluster.create_pod(guaranteed(&format!("victim-{number}"), "reclaimee", victims)).await;
    }
    cluster.wait_for_running("victim-", count as usize).await;
    let mut pod = guaranteed("winner", "reclaimer", reclaimer);
    if reclaimer > 4 {
        // More CPU and memory than one zone has, so that all resources span both.
        let amounts = json!({"cpu": "33", "memory": "257Gi", "nvidia.com/gpu": reclaimer.to_string()});
        pod.object["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    }
    cluster.create_pod(pod).await;
    cluster.wait_for_running("winner", 1).await;
    cluster
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reclaim_frees_one_zone() {
    for policy in ["single-numa-node", "restricted"] {
        let cluster = reclaim(policy, 4, 4).await;
        assert_eq!(predicted(&cluster, "winner").await, (1, 4), "{policy}");
        assert_eq!(cluster.running("victim-").await, 1, "{policy}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reclaim_frees_both_zones_where_the_pod_spans_them() {
    for gpus in [5, 8] {
        let cluster = reclaim("restricted", 4, gpus).await;
        assert_eq!(predicted(&cluster, "winner").await, (2, i64::from(gpus)));
        assert_eq!(cluster.running("victim-").await, 0);
    }
}

/// Every GPU is in use, then one of each zone becomes free: two GPUs are free, but not in one zone.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn preemption_evicts_one_pod_of_the_zone_that_it_needs() {
    let cluster = cluster("single-numa-node").await;
    cluster.create_queue("a", 8).await;
    for number in 0..8 {
        let pod = guaranteed(&format!("low-{number}"), "a", 1).label("priorityClassName", "train");
        cluster.create_pod(pod).await;
    }
    cluster.wait_for_running("low-", 8).await;
    let mut gone = [false; 2];
    for number in 0..8 {
        let name = format!("low-{number}");
        let pod = cluster.get(&POD, &name).await.unwrap();
        let zone = usize::from(
            object::str_at(&pod, "/metadata/annotations/kai.scheduler~1numa-placement-predicted")
                .contains("node-1"),
        );
        if !std::mem::replace(&mut gone[zone], true) {
            cluster.delete_pod(&name).await;
        }
    }
    assert_eq!(gone, [true; 2]);
    cluster.wait_until("two are gone", async || cluster.bound_pods("low-").await.len() == 6).await;
    cluster.create_pod(guaranteed("high", "a", 2).label("priorityClassName", "build-preemptible")).await;
    cluster.wait_for_running("high", 1).await;
    assert_eq!(predicted(&cluster, "high").await, (1, 2));
    assert_eq!(cluster.running("low-").await, 5);
}

/// What the exporter reports counts more than the prediction.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn observed_zones_replace_the_prediction() {
    let cluster = cluster("single-numa-node").await;
    cluster.create_queue("a", 8).await;
    cluster.create_pod(guaranteed("first", "a", 2)).await;
    cluster.wait_for_running("first", 1).await;
    // The kubelet has given it one GPU of each zone: neither zone has four left.
    let zone = |zone: usize| json!({"zone": format!("node-{zone}"), "amount": {"nvidia.com/gpu": "1"}});
    let observed = json!([zone(0), zone(1)]).to_string();
    cluster.patch(&POD, "first", &json!({"metadata": {"annotations": {OBSERVED: observed}}})).await;
    cluster.sleep(Duration::from_secs(5)).await;
    cluster
        .create_pod(guaranteed("second", "a", 4).label("kai.scheduler/preemptibility", "non-preemptible"))
        .await;
    cluster.create_pod(guaranteed("third", "a", 3)).await;
    cluster.wait_for_running("third", 1).await;
    assert_eq!(predicted(&cluster, "third").await, (1, 3));
    assert_eq!(cluster.running("second").await, 0);
}
