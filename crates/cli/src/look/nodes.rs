//! `kai nodes`: nodes with their GPUs drawn as cells, and what is in use of the rest.

mod cells;

use super::{Moment, Rows, View};
use crate::figures::unit;
use crate::render::{amount, table_of};
use cells::Cells;
use kai_engine::cluster::node::Node;
use kai_engine::input::NodeCondition;
use kai_engine::resource;
use kai_engine::verdict::QueueResource;
use serde_json::{Value, json};

/// Draws the nodes.
pub(super) fn view(moment: &Moment, rows: Rows) -> View {
    let cluster = &moment.cluster;
    let nodes: Vec<(&Node, Cells)> = cluster
        .nodes_by_rank
        .iter()
        .map(|node| (&cluster.nodes[*node], Cells::of(cluster, &cluster.nodes[*node])))
        .collect();
    let lines = nodes.iter().map(|(node, cells)| row(moment, node, cells)).collect();
    let headings = ["NODE", "STATUS", "GPUS", "IN USE", "CPU", "MEMORY", "PODS"];
    let text = match table_of(headings, lines, rows.max()) {
        Some(table) => format!("{}\n\n{}\n", cells::painted(&table), cells::painted(cells::LEGEND)),
        None => "there are no nodes\n".to_owned(),
    };
    let json = json!({
        "nodes": nodes.iter().map(|(node, cells)| report(moment, node, cells)).collect::<Vec<_>>(),
    });
    View { text, json }
}

fn row(moment: &Moment, node: &Node, cells: &Cells) -> [String; 7] {
    let of = |resource, dim| {
        let [used, all] = amounts(node, dim).map(|amount| amount::text(resource, amount));
        format!("{used} of {all}")
    };
    let in_use = match cells.total() {
        0 => "–".to_owned(),
        total => format!("{} of {total}", amount::text(QueueResource::Gpu, cells.used())),
    };
    [
        moment.cluster.text(node.name).to_owned(),
        status(node).join(", "),
        cells.drawn(),
        in_use,
        of(QueueResource::Cpu, resource::CPU),
        of(QueueResource::Memory, resource::MEMORY),
        node.pods.len().to_string(),
    ]
}

fn report(moment: &Moment, node: &Node, cells: &Cells) -> Value {
    let of = |resource, dim| {
        let [used, all] = amounts(node, dim).map(|amount| unit(resource, amount));
        json!({ "used": used, "allocatable": all })
    };
    json!({
        "name": moment.cluster.text(node.name),
        "ready": node.is_ready(),
        "status": status(node),
        "gpus": cells.report(),
        "cpu": of(QueueResource::Cpu, resource::CPU),
        "memory": of(QueueResource::Memory, resource::MEMORY),
        "pods": node.pods.len(),
    })
}

/// What is in use, and what there is.
fn amounts(node: &Node, dim: resource::Dim) -> [i64; 2] {
    [node.ledger.used.get(dim), node.allocatable.get(dim)]
}

/// `Ready`, or everything that keeps pods away.
fn status(node: &Node) -> Vec<&'static str> {
    let condition = |condition: &NodeCondition| match condition {
        NodeCondition::NotReady => "NotReady",
        NodeCondition::MemoryPressure => "MemoryPressure",
        NodeCondition::DiskPressure => "DiskPressure",
        NodeCondition::PidPressure => "PIDPressure",
        NodeCondition::NetworkUnavailable => "NetworkUnavailable",
    };
    let mut all: Vec<&'static str> = node.bad_conditions.iter().map(condition).collect();
    if node.unschedulable {
        all.push("Cordoned");
    }
    if all.is_empty() {
        all.push("Ready");
    }
    all
}
