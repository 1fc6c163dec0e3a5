//! `kai nodes`: nodes with one cell per GPU, and what is allocated of CPU and memory.

mod cells;

use super::{Rendered, RowLimit};
use crate::render::{amount, table_of};
use anyhow::Result;
use kai_view::ClusterView;
use kai_view::nodes::{self, Allocation, NodeView};

pub(super) fn render(view: &ClusterView, limit: RowLimit) -> Result<Rendered> {
    let model = nodes::all(view);
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
