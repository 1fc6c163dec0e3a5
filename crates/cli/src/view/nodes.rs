//! `kai nodes`: nodes with one cell per GPU, and what is allocated of CPU and memory.

pub(crate) mod cells;

use super::{Rendered, RowLimit};
use crate::render::{amount, table_of};
use anyhow::{Result, bail};
use kai_view::ClusterView;
use kai_view::nodes::{self, Allocation, NodeView};

/// All nodes, or those with these names.
pub(super) fn render(view: &ClusterView, names: &[String], limit: RowLimit) -> Result<Rendered> {
    let mut model = nodes::all(view);
    if !names.is_empty() {
        if let Some(missing) = names.iter().find(|name| !model.nodes.iter().any(|node| node.name == **name)) {
            bail!("node `{missing}` not found; hint: `kai nodes` lists all nodes");
        }
        model.nodes.retain(|node| names.contains(&node.name));
    }
    let rows = model.nodes.iter().map(row).collect();
    let headings = ["NODE", "STATUS", "GPUS", "IN USE", "CPU", "MEMORY", "PODS"];
    let text = match table_of(headings, rows, limit.max()) {
        Some(table) => format!("{}\n\n{}\n", cells::coloured(&table), cells::coloured(cells::LEGEND)),
        None => "No nodes found\n".to_owned(),
    };
    Rendered::new(text, &model)
}

fn row(node: &NodeView) -> [String; 7] {
    let of =
        |Allocation { used, allocatable }| format!("{} of {}", amount::of(used), amount::of(allocatable));
    let in_use = match node.gpus.total {
        0 => "–".to_owned(),
        total => format!("{} of {total}", amount::of(node.gpus.used)),
    };
    [
        node.name.clone(),
        node.status.join(","),
        cells::text(&node.gpus),
        in_use,
        of(node.cpu),
        of(node.memory),
        node.pods.to_string(),
    ]
}
