//! Simulated nodes: published resources, pod lifecycle, failure modes.

use crate::k;
use crate::{TestCluster, builder, deployment, gpu_pod, has_condition, phase, template};
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_runtime::kind::Key;
use kai_sim::NodeGroup;
use kai_sim::node::Failure;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn taints(node: &Value) -> Vec<String> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let taints = taints.into_iter().flatten();
    taints
        .map(|taint| format!("{}:{}", object::str_at(taint, "/key"), object::str_at(taint, "/effect")))
        .collect()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn annotations_control_start_delay_run_time_and_exit_code() {
    let cluster = TestCluster::new().await;
    let annotations = json!({
        "sim.kai.scheduler/start-delay": "20s", "sim.kai.scheduler/run-for": "90s", "sim.kai.scheduler/exit-code": "3",
    });
    cluster.create(&k::POD, gpu_pod("a", 2, &annotations)).await;
    cluster.sleep(10).await;
    let pod = cluster.get(&k::POD, "a").await;
    assert_eq!(phase(&pod), "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    cluster.sleep(20).await;
    let pod = cluster.get(&k::POD, "a").await;
    assert_eq!(phase(&pod), "Running");
    assert!(
        has_condition(&pod, "Ready")
            && pod["status"]["podIP"].is_string()
            && pod["status"]["hostIP"].is_string()
    );
    cluster.sleep(100).await;
    let pod = cluster.get(&k::POD, "a").await;
    assert_eq!(phase(&pod), "Failed");
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
    let time = |field: &str| ended[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    assert_eq!(time("finishedAt") - time("startedAt"), 90);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_on_a_node_get_distinct_gpus() {
    let cluster = TestCluster::from_builder(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    for (name, gpus) in [("a", 3), ("b", 4), ("c", 1)] {
        cluster.create(&k::POD, gpu_pod(name, gpus, &json!({}))).await;
    }
    let pods = cluster.wait_for_all(&k::POD, |pods| pods.iter().all(|pod| phase(pod) == "Running")).await;
    let devices = |pod: &Value| -> Vec<String> {
        let text = pod["metadata"]["annotations"]["sim.kai.scheduler/gpu-devices"].as_str().unwrap();
        text.split(',').map(str::to_owned).collect()
    };
    let all: BTreeSet<String> = pods.iter().flat_map(devices).collect();
    assert_eq!(all.len(), 8);
    assert_eq!(all.first().map(String::as_str), Some("GPU-node-1-0"));
    let seen = &pods[1]["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
    assert_eq!((&seen["name"], seen["resources"].as_array().unwrap().len()), (&json!("nvidia.com/gpu"), 4));
    // The kubelet rejects a pod that is bound to a node without free resources.
    let mut forced = gpu_pod("d", 1, &json!({}));
    forced["spec"]["nodeName"] = json!("node-1");
    cluster.create(&k::POD, forced).await;
    let rejected = cluster.wait_for(&k::POD, "d", |pod| phase(pod) == "Failed").await;
    assert_eq!(rejected["status"]["reason"], "OutOfnvidia.com/gpu");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn containers_are_restarted_by_policy_with_backoff() {
    let cluster = TestCluster::new().await;
    let annotations = json!({"sim.kai.scheduler/run-for": "5s", "sim.kai.scheduler/exit-code": "1,1,0"});
    for policy in ["Never", "OnFailure", "Always"] {
        let mut pod = template(&annotations, policy);
        pod["metadata"]["name"] = Value::from(policy.to_lowercase());
        cluster.create(&k::POD, pod).await;
    }
    cluster.wait_for(&k::POD, "never", |pod| phase(pod) == "Failed").await;
    let waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    cluster.wait_for(&k::POD, "always", waiting).await;
    let done = cluster.wait_for(&k::POD, "onfailure", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(done["status"]["containerStatuses"][0]["restartCount"], 2);
    cluster
        .wait_for(&k::POD, "always", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 4)
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deleted_pod_stops_within_its_grace_period() {
    let cluster = TestCluster::new().await;
    let slow = json!({"sim.kai.scheduler/stop-delay": "1h"});
    cluster.create(&k::POD, gpu_pod("slow", 1, &slow)).await;
    cluster.create(&k::POD, gpu_pod("quick", 1, &json!({}))).await;
    cluster.wait_for_all(&k::POD, |pods| pods.iter().all(|pod| phase(pod) == "Running")).await;
    for name in ["slow", "quick"] {
        cluster.delete(&k::POD, name, DeleteOptions::default()).await;
    }
    cluster.sleep(5).await;
    assert!(cluster.find(&k::POD, "quick").await.is_none());
    assert!(object::is_deleting(&cluster.get(&k::POD, "slow").await));
    cluster.sleep(27).await;
    assert!(cluster.find(&k::POD, "slow").await.is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_evicted_from_an_unreachable_node_after_five_minutes() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 1)).await;
    let pods = cluster.wait_for_all(&k::POD, |pods| pods.len() == 1 && phase(&pods[0]) == "Running").await;
    assert_eq!(object::str_at(&pods[0], "/spec/nodeName"), "node-1");
    cluster.inner.fail_node("node-1", Failure::Unreachable).await.unwrap();
    let node = cluster.wait_for(&k::NODE, "node-1", |node| !taints(node).is_empty()).await;
    assert_eq!(
        taints(&node),
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]
    );
    assert_eq!(
        node["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["status"] == "Unknown")
            .count(),
        4
    );
    assert!(!has_condition(&cluster.get(&k::POD, object::name(&pods[0])).await, "Ready"));
    cluster.sleep(280).await;
    assert_eq!(cluster.list(&k::POD).await.len(), 1, "tolerated for five minutes");
    let pods = cluster
        .wait_for_all(&k::POD, |pods| {
            pods.iter().any(|pod| phase(pod) == "Running" && has_condition(pod, "Ready"))
        })
        .await;
    assert_eq!(pods.len(), 2, "the old pod stays terminating while its node is unreachable");
    cluster.inner.restore_node("node-1").await.unwrap();
    cluster
        .wait_for(&k::NODE, "node-1", |node| taints(node).is_empty() && has_condition(node, "Ready"))
        .await;
    cluster.wait_for_all(&k::POD, |pods| pods.len() == 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn recovered_node_keeps_its_pods_unless_it_was_down() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::POD, gpu_pod("a", 1, &json!({}))).await;
    cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Running").await;
    let fail = |mode: Value| json!({"metadata": {"annotations": {"sim.kai.scheduler/failure": mode}}});
    cluster.patch(&k::NODE, "node-1", fail(json!("unreachable"))).await;
    cluster.wait_for(&k::NODE, "node-1", |node| !has_condition(node, "Ready")).await;
    cluster.patch(&k::NODE, "node-1", fail(Value::Null)).await;
    cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Running" && has_condition(pod, "Ready")).await;
    cluster.wait_for(&k::NODE, "node-1", |node| taints(node).is_empty()).await;
    cluster.patch(&k::NODE, "node-1", fail(json!("not-ready"))).await;
    let node = cluster.wait_for(&k::NODE, "node-1", |node| !taints(node).is_empty()).await;
    assert!(taints(&node)[0].starts_with("node.kubernetes.io/not-ready"));
    cluster.patch(&k::NODE, "node-1", fail(json!("down"))).await;
    cluster.sleep(60).await;
    cluster.patch(&k::NODE, "node-1", fail(Value::Null)).await;
    let pod = cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Failed").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn node_groups_publish_labels_resources_topology_and_slices() {
    let groups = kai_sim::node::read(
        "nodes:
- {name: gpu, count: 4, gpus: 8, racks: 2, zones: 1, labels: {pool: train}}
- {name: numa, gpus: 4, numaZones: 2}
- {name: dra, gpus: 2, dra: true}
- {name: cpu, count: 2, cpu: '16', memory: 64Gi, taints: [{key: only, effect: NoSchedule}]}
",
    )
    .unwrap();
    let cluster = TestCluster::from_builder(builder().nodes(groups)).await;
    assert_eq!(cluster.list(&k::NODE).await.len(), 8);
    let gpu = cluster.get(&k::NODE, "gpu-3").await;
    let labels = &gpu["metadata"]["labels"];
    assert_eq!(
        (&labels["topology.kubernetes.io/rack"], &labels["topology.kubernetes.io/zone"]),
        (&json!("rack-2"), &json!("zone-1"))
    );
    assert_eq!((&labels["pool"], &labels["nvidia.com/gpu.count"]), (&json!("train"), &json!("8")));
    assert_eq!(gpu["status"]["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(taints(&cluster.get(&k::NODE, "cpu-1").await), ["only:NoSchedule"]);
    let topology = cluster.get(&k::NODE_RESOURCE_TOPOLOGY, "numa-1").await;
    assert_eq!(topology["zones"].as_array().unwrap().len(), 2);
    let slice = cluster.get(&k::RESOURCE_SLICE, "dra-1-gpu.nvidia.com").await;
    assert_eq!(slice["spec"]["devices"].as_array().unwrap().len(), 2);
    assert!(cluster.get(&k::NODE, "dra-1").await["status"]["allocatable"].get("nvidia.com/gpu").is_none());
    let lease = Key::new("kube-node-lease", "gpu-1");
    let renewed = async || {
        cluster.inner.api().get_dynamic(&k::LEASE, &lease).await.unwrap()["spec"]["renewTime"].clone()
    };
    cluster.sleep(1).await;
    let before = renewed().await;
    cluster.sleep(11).await;
    assert_ne!(renewed().await, before);
}
