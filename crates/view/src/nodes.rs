//! Nodes: status, GPUs one by one, and what is allocated of CPU and memory.

pub mod gpus;

use crate::amounts::Amount;
use crate::reader::ClusterView;
use gpus::NodeGpus;
use kai_engine::cluster::node::Node;
use kai_engine::input::NodeCondition;
use kai_engine::resource;
use kai_engine::verdict::QueueResource;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct NodesView {
    pub nodes: Vec<NodeView>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct NodeView {
    pub name: String,
    pub ready: bool,
    /// `Ready`, or every condition that keeps pods off the node, as kubectl shows them.
    pub status: Vec<&'static str>,
    pub gpus: NodeGpus,
    pub cpu: Allocation,
    pub memory: Allocation,
    /// Number of pods.
    pub pods: usize,
}

#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Allocation {
    pub used: Amount,
    pub allocatable: Amount,
}

/// All nodes by name, `node-2` before `node-10`.
pub fn all(view: &ClusterView) -> NodesView {
    let nodes = view.cluster.nodes_by_rank.iter().map(|node| node_view(view, &view.cluster.nodes[*node]));
    let mut nodes: Vec<NodeView> = nodes.collect();
    nodes.sort_by(|one, other| crate::natural_order(&one.name, &other.name));
    NodesView { nodes }
}

fn node_view(view: &ClusterView, node: &Node) -> NodeView {
    let allocation = |resource, dim| Allocation {
        used: Amount { resource, value: node.ledger.used.get(dim) },
        allocatable: Amount { resource, value: node.allocatable.get(dim) },
    };
    NodeView {
        name: view.cluster.text(node.name).to_owned(),
        ready: node.is_ready(),
        status: status(node),
        gpus: NodeGpus::of(&view.cluster, node),
        cpu: allocation(QueueResource::Cpu, resource::CPU),
        memory: allocation(QueueResource::Memory, resource::MEMORY),
        pods: node.pods.len(),
    }
}

fn status(node: &Node) -> Vec<&'static str> {
    let condition = |condition: &NodeCondition| match condition {
        NodeCondition::NotReady => "NotReady",
        NodeCondition::MemoryPressure => "MemoryPressure",
        NodeCondition::DiskPressure => "DiskPressure",
        NodeCondition::PidPressure => "PIDPressure",
        NodeCondition::NetworkUnavailable => "NetworkUnavailable",
    };
    let mut all: Vec<&'static str> = node.bad_conditions.iter().map(condition).collect();
    if all.is_empty() {
        all.push("Ready");
    }
    if node.unschedulable {
        all.push("SchedulingDisabled");
    }
    all
}
