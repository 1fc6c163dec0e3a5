//! Simulated nodes: what they publish, how they run pods, and what happens when they fail.

use crate::k;
use crate::{World, builder, deployment, gpu_pod, holds, phase, template};
use kai_object as object;
use kai_runtime::api::Deletion;
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
async fn a_pod_starts_runs_and_ends_as_its_annotations_say() {
    let world = World::new().await;
    let annotations = json!({
        "sim.kai.scheduler/start-delay": "20s", "sim.kai.scheduler/run-for": "90s", "sim.kai.scheduler/exit-code": "3",
    });
    world.create(&k::POD, gpu_pod("a", 2, &annotations)).await;
    world.sleep(10).await;
    let pod = world.get(&k::POD, "a").await;
    assert_eq!(phase(&pod), "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    world.sleep(20).await;
    let pod = world.get(&k::POD, "a").await;
    assert_eq!(phase(&pod), "Running");
    assert!(
        holds(&pod, "Ready") && pod["status"]["podIP"].is_string() && pod["status"]["hostIP"].is_string()
    );
    world.sleep(100).await;
    let pod = world.get(&k::POD, "a").await;
    assert_eq!(phase(&pod), "Failed");
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
    let time = |field: &str| ended[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    assert_eq!(time("finishedAt") - time("startedAt"), 90);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_on_a_node_get_gpus_of_their_own() {
    let world = World::of(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    for (name, gpus) in [("a", 3), ("b", 4), ("c", 1)] {
        world.create(&k::POD, gpu_pod(name, gpus, &json!({}))).await;
    }
    let pods = world.until_all(&k::POD, |pods| pods.iter().all(|pod| phase(pod) == "Running")).await;
    let devices = |pod: &Value| -> Vec<String> {
        let text = pod["metadata"]["annotations"]["sim.kai.scheduler/gpu-devices"].as_str().unwrap();
        text.split(',').map(str::to_owned).collect()
    };
    let all: BTreeSet<String> = pods.iter().flat_map(devices).collect();
    assert_eq!(all.len(), 8);
    assert_eq!(all.first().map(String::as_str), Some("GPU-node-1-0"));
    let seen = &pods[1]["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
    assert_eq!((&seen["name"], seen["resources"].as_array().unwrap().len()), (&json!("nvidia.com/gpu"), 4));
    // A pod that somebody binds where there is no room is refused, as a kubelet does.
    let mut forced = gpu_pod("d", 1, &json!({}));
    forced["spec"]["nodeName"] = json!("node-1");
    world.create(&k::POD, forced).await;
    let refused = world.until(&k::POD, "d", |pod| phase(pod) == "Failed").await;
    assert_eq!(refused["status"]["reason"], "OutOfnvidia.com/gpu");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn containers_are_restarted_by_policy_and_with_patience() {
    let world = World::new().await;
    let annotations = json!({"sim.kai.scheduler/run-for": "5s", "sim.kai.scheduler/exit-code": "1,1,0"});
    for policy in ["Never", "OnFailure", "Always"] {
        let mut pod = template(&annotations, policy);
        pod["metadata"]["name"] = Value::from(policy.to_lowercase());
        world.create(&k::POD, pod).await;
    }
    world.until(&k::POD, "never", |pod| phase(pod) == "Failed").await;
    let waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    world.until(&k::POD, "always", waiting).await;
    let done = world.until(&k::POD, "onfailure", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(done["status"]["containerStatuses"][0]["restartCount"], 2);
    world.until(&k::POD, "always", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 4).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_deleted_pod_has_its_grace_period_and_no_more() {
    let world = World::new().await;
    let slow = json!({"sim.kai.scheduler/stop-delay": "1h"});
    world.create(&k::POD, gpu_pod("slow", 1, &slow)).await;
    world.create(&k::POD, gpu_pod("quick", 1, &json!({}))).await;
    world.until_all(&k::POD, |pods| pods.iter().all(|pod| phase(pod) == "Running")).await;
    for name in ["slow", "quick"] {
        world.delete(&k::POD, name, Deletion::default()).await;
    }
    world.sleep(5).await;
    assert!(world.find(&k::POD, "quick").await.is_none());
    assert!(object::is_deleting(&world.get(&k::POD, "slow").await));
    world.sleep(27).await;
    assert!(world.find(&k::POD, "slow").await.is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_leave_a_silent_node_after_five_minutes() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 1)).await;
    let pods = world.until_all(&k::POD, |pods| pods.len() == 1 && phase(&pods[0]) == "Running").await;
    assert_eq!(object::str_at(&pods[0], "/spec/nodeName"), "node-1");
    world.cluster.fail_node("node-1", Failure::Unreachable).await.unwrap();
    let node = world.until(&k::NODE, "node-1", |node| !taints(node).is_empty()).await;
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
    assert!(!holds(&world.get(&k::POD, object::name(&pods[0])).await, "Ready"));
    world.sleep(280).await;
    assert_eq!(world.list(&k::POD).await.len(), 1, "tolerated for five minutes");
    let pods = world
        .until_all(&k::POD, |pods| pods.iter().any(|pod| phase(pod) == "Running" && holds(pod, "Ready")))
        .await;
    assert_eq!(pods.len(), 2, "the old one cannot go while its node is silent");
    world.cluster.restore_node("node-1").await.unwrap();
    world.until(&k::NODE, "node-1", |node| taints(node).is_empty() && holds(node, "Ready")).await;
    world.until_all(&k::POD, |pods| pods.len() == 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_node_that_comes_back_soon_keeps_its_pods_unless_it_was_down() {
    let world = World::new().await;
    world.create(&k::POD, gpu_pod("a", 1, &json!({}))).await;
    world.until(&k::POD, "a", |pod| phase(pod) == "Running").await;
    // As a user would do it.
    let fail = |how: Value| json!({"metadata": {"annotations": {"sim.kai.scheduler/failure": how}}});
    world.patch(&k::NODE, "node-1", fail(json!("unreachable"))).await;
    world.until(&k::NODE, "node-1", |node| !holds(node, "Ready")).await;
    world.patch(&k::NODE, "node-1", fail(Value::Null)).await;
    world.until(&k::POD, "a", |pod| phase(pod) == "Running" && holds(pod, "Ready")).await;
    world.until(&k::NODE, "node-1", |node| taints(node).is_empty()).await;
    world.patch(&k::NODE, "node-1", fail(json!("not-ready"))).await;
    let node = world.until(&k::NODE, "node-1", |node| !taints(node).is_empty()).await;
    assert!(taints(&node)[0].starts_with("node.kubernetes.io/not-ready"));
    world.patch(&k::NODE, "node-1", fail(json!("down"))).await;
    world.sleep(60).await;
    world.patch(&k::NODE, "node-1", fail(Value::Null)).await;
    let pod = world.until(&k::POD, "a", |pod| phase(pod) == "Failed").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nodes_of_all_kinds_publish_what_they_have() {
    let groups = kai_sim::node::read(
        "nodes:
- {name: gpu, count: 4, gpus: 8, racks: 2, zones: 1, labels: {pool: train}}
- {name: numa, gpus: 4, numaZones: 2}
- {name: dra, gpus: 2, dra: true}
- {name: cpu, count: 2, cpu: '16', memory: 64Gi, taints: [{key: only, effect: NoSchedule}]}
",
    )
    .unwrap();
    let world = World::of(builder().nodes(groups)).await;
    assert_eq!(world.list(&k::NODE).await.len(), 8);
    let gpu = world.get(&k::NODE, "gpu-3").await;
    let labels = &gpu["metadata"]["labels"];
    assert_eq!(
        (&labels["topology.kubernetes.io/rack"], &labels["topology.kubernetes.io/zone"]),
        (&json!("rack-2"), &json!("zone-1"))
    );
    assert_eq!((&labels["pool"], &labels["nvidia.com/gpu.count"]), (&json!("train"), &json!("8")));
    assert_eq!(gpu["status"]["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(taints(&world.get(&k::NODE, "cpu-1").await), ["only:NoSchedule"]);
    let topology = world.get(&k::NODE_RESOURCE_TOPOLOGY, "numa-1").await;
    assert_eq!(topology["zones"].as_array().unwrap().len(), 2);
    let slice = world.get(&k::RESOURCE_SLICE, "dra-1-gpu.nvidia.com").await;
    assert_eq!(slice["spec"]["devices"].as_array().unwrap().len(), 2);
    assert!(world.get(&k::NODE, "dra-1").await["status"]["allocatable"].get("nvidia.com/gpu").is_none());
    let lease = Key::new("kube-node-lease", "gpu-1");
    let renewed =
        async || world.cluster.api().get(&k::LEASE, &lease).await.unwrap()["spec"]["renewTime"].clone();
    world.sleep(1).await;
    let before = renewed().await;
    world.sleep(11).await;
    assert_ne!(renewed().await, before);
}
