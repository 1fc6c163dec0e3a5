//! Gangs that must be near each other.

use crate::world::{Pod, World};
use kai_cli::stack;
use kai_scheduler::resources::TOPOLOGY;
use kai_sim::NodeGroup;
use kai_sim::node::RACK;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gang_lands_in_one_rack_or_is_told_why_not() {
    one_rack(&World::of(1, [nodes()], &stack::Options::simulated()).await).await;
}

/// Two racks of two nodes with eight GPUs.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { racks: 2, ..NodeGroup::gpu_nodes(4, 8) }
}

fn within_a_rack() -> Value {
    json!({"topologyConstraint": {"topology": "racks", "requiredTopologyLevel": RACK}})
}

/// On [`nodes`].
pub(crate) async fn one_rack<B>(world: &World<B>) {
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]);
    world.create(&TOPOLOGY, json!({"metadata": {"name": "racks"}, "spec": {"levels": levels}})).await;
    world.queue("a", 32).await;
    for (name, node) in [("first", world.node(1)), ("second", world.node(3))] {
        world.pod(Pod::new(name, "a", 8).class("inference").on(&node)).await;
        world.runs(name, 1).await;
    }
    world.gang("near", "a", 2, 8, within_a_rack()).await;
    world.says("near", "couldn't be satisfied").await;
    assert_eq!(world.placed("near").await, [], "two nodes are free, but not in one rack");
    world.gang("wide", "a", 3, 8, within_a_rack()).await;

    world.delete_pod("second").await;
    world.runs("near", 2).await;
    assert_eq!(world.nodes_of("near").await, BTreeSet::from([world.node(3), world.node(4)]));
    let why = world.says("wide", "couldn't be satisfied").await;
    assert!(why.contains(RACK), "{why}");
}
