//! Which of several nodes and GPUs that fit is chosen.

use super::embedded;
use super::steps::cpu_pod;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, env};
use kai_object as object;
use kai_runtime::kind::{CONFIG_MAP, POD};
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn nodes() -> NodeGroup {
    NodeGroup::gpu_nodes(2, 2)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_packed_and_follow_preferences() {
    binpack(&embedded("suite-order", nodes()).await).await;
}

/// A preference for nodes (not) having a pod labelled `hello: world`.
fn preference(kind: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"hello": "world"}}, "topologyKey": "kubernetes.io/hostname"});
    json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]}})
}

/// The GPU of a pod with a fraction, from the config map that its container refers to.
async fn device_of<B>(cluster: &TestCluster<B>, name: &str) -> String {
    cluster.wait_for_running(name, 1).await;
    let pod = cluster.get(&POD, name).await.unwrap();
    let environment = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    let variable = environment.iter().find(|variable| variable["name"] == env::NVIDIA_VISIBLE_DEVICES);
    let reference = &variable.expect("the webhook sets it")["valueFrom"]["configMapKeyRef"];
    let map = cluster.get(&CONFIG_MAP, object::str_at(reference, "/name")).await.unwrap();
    let device = object::str_at(&map["data"], &format!("/{}", object::str_at(reference, "/key"))).to_owned();
    assert!(!device.is_empty(), "{map}");
    device
}

/// order-01 … 05, on two nodes with two GPUs, and one without that is added.
pub(crate) async fn binpack<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", -1).await;
    for (kind, is_near) in [("podAffinity", true), ("podAntiAffinity", false)] {
        // Bin packing alone chooses the node with the ballast, so that only the preference explains the choice.
        let first = cluster.node_name(1);
        let packed = if is_near { cluster.node_name(2) } else { first.clone() };
        cluster.runs(PodBuilder::new("greeter", "a", 0).label("hello", "world").on_node(&first)).await;
        cluster.runs(cpu_pod("ballast", "a", "8").on_node(&packed)).await;
        let pod = PodBuilder::new("chooser", "a", 0).spec_field("affinity", preference(kind));
        let node = cluster.runs(pod).await;
        assert_eq!(node == first, is_near, "{kind}: {node}, and the labelled pod is on {first}");
        cluster.clear().await;
    }

    let plain = cluster.add_nodes(NodeGroup { name: "plain".to_owned(), ..NodeGroup::default() }).await;
    for number in 0..2 {
        let node = cluster.runs(no_requests(&format!("tiny-{number}"))).await;
        assert_eq!([node], plain[..], "a node without GPUs");
    }
    cluster.clear().await;

    let nodes = [
        cluster.runs(PodBuilder::new("whole-0", "a", 1)).await,
        cluster.runs(PodBuilder::new("whole-1", "a", 1)).await,
    ];
    assert_eq!(nodes[0], nodes[1]);
    cluster.clear().await;

    for name in ["half-0", "half-1"] {
        cluster.runs(PodBuilder::unprepared_fraction(name, "a", "0.5")).await;
    }
    assert_eq!(device_of(cluster, "half-0").await, device_of(cluster, "half-1").await);
    let node = |pod| cluster.node_of(pod);
    assert_eq!(node("half-0").await, node("half-1").await);
}

fn no_requests(name: &str) -> PodBuilder {
    let mut pod = PodBuilder::new(name, "a", 0);
    pod.object["spec"]["containers"][0]["resources"] = json!({});
    pod
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_spread_where_the_shard_says_so() {
    spread(&embedded("suite-order-spread", nodes()).await).await;
}

/// order-06 … 08, on two nodes with two GPUs.
pub(crate) async fn spread<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", -1).await;
    let both = BTreeSet::from([cluster.node_name(1), cluster.node_name(2)]);
    for name in ["whole-0", "whole-1"] {
        cluster.runs(PodBuilder::new(name, "a", 1)).await;
    }
    assert_eq!(cluster.nodes_of("whole-").await, both);
    cluster.clear().await;

    for name in ["half-0", "half-1"] {
        cluster.runs(PodBuilder::unprepared_fraction(name, "a", "0.5")).await;
    }
    assert_eq!(cluster.nodes_of("half-").await, both);
    cluster.clear().await;

    let node = cluster.runs(PodBuilder::unprepared_fraction("half-0", "a", "0.5")).await;
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    let required = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let pinned = PodBuilder::unprepared_fraction("half-1", "a", "0.5").spec_field("affinity", required);
    assert_eq!(cluster.runs(pinned).await, node);
    assert_ne!(device_of(cluster, "half-0").await, device_of(cluster, "half-1").await);
    let pod = cluster.get(&POD, "half-1").await.unwrap();
    assert_eq!(pod["metadata"]["annotations"][annotation::RECEIVED_RESOURCE_TYPE], "Fraction");
}
