//! Topology constraints of gangs.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::ComponentOptions;
use kai_scheduler::resources::TOPOLOGY;
use kai_sim::NodeGroup;
use kai_sim::node::RACK;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gang_with_a_required_level_is_bound_in_one_rack_or_reports_the_reason() {
    required_rack(&TestCluster::with_options(1, [nodes()], &ComponentOptions::simulated()).await).await;
}

/// Two racks of two nodes with eight GPUs.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { racks: 2, ..NodeGroup::gpu_nodes(4, 8) }
}

fn rack_constraint() -> Value {
    json!({"topologyConstraint": {"topology": "racks", "requiredTopologyLevel": RACK}})
}

/// On [`nodes`].
pub(crate) async fn required_rack<B>(cluster: &TestCluster<B>) {
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]);
    cluster.create(&TOPOLOGY, json!({"metadata": {"name": "racks"}, "spec": {"levels": levels}})).await;
    cluster.create_queue("a", 32).await;
    for (name, node) in [("first", cluster.node_name(1)), ("second", cluster.node_name(3))] {
        cluster.create_pod(PodBuilder::new(name, "a", 8).priority_class("inference").on_node(&node)).await;
        cluster.wait_for_running(name, 1).await;
    }
    cluster.create_gang("near", "a", 2, 8, rack_constraint()).await;
    cluster.wait_for_condition("near", "couldn't be satisfied").await;
    assert_eq!(cluster.bound_pods("near").await, [], "two nodes are free, but not in one rack");
    cluster.create_gang("wide", "a", 3, 8, rack_constraint()).await;

    cluster.delete_pod("second").await;
    cluster.wait_for_running("near", 2).await;
    assert_eq!(cluster.nodes_of("near").await, BTreeSet::from([cluster.node_name(3), cluster.node_name(4)]));
    let message = cluster.wait_for_condition("wide", "couldn't be satisfied").await;
    assert!(message.contains(RACK), "{message}");
}
