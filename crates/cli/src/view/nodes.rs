//! `kai nodes`: nodes with one cell per GPU, and what is allocated of CPU and memory.

pub(crate) mod cells;

use super::connection::Connection;
use super::selection::{plain_names, selected};
use super::{Extent, Rendered};
use crate::args;
use crate::render::{Cell, amount, table_with};
use anyhow::{Result, bail};
use kai_engine::input::Key;
use kai_runtime::kind::NODE;
use kai_view::ClusterView;
use kai_view::nodes::{self, Allocation, NodeView};

/// The label with the name of a node's GPUs.
const GPU_PRODUCT: &str = "nvidia.com/gpu.product";

/// All nodes, or those with these names or labels.
pub(super) async fn render(
    view: &ClusterView,
    connection: &Connection,
    args: &args::Nodes,
    extent: Extent,
) -> Result<Rendered> {
    let mut model = nodes::all(view);
    let names = plain_names(&args.names, "Node")?;
    if let Some(missing) = names.iter().find(|name| !model.nodes.iter().any(|node| node.name == **name)) {
        bail!("node `{missing}` not found; hint: `kai nodes` lists all nodes");
    }
    if !names.is_empty() {
        model.nodes.retain(|node| names.contains(&node.name));
    }
    let selected = selected(connection, &NODE, &args.selector).await?;
    if let Some(selected) = &selected {
        model.nodes.retain(|node| selected.contains(&Key::new("", node.name.as_str())));
    }
    let mut headings = vec!["NODE", "STATUS", "GPUS", "IN USE", "CPU", "MEMORY", "PODS"];
    if extent.is_wide {
        headings.extend(["FREE GPUS", "GPU PRODUCT"]);
    }
    let rows = model.nodes.iter().map(|node| {
        let mut cells: Vec<Cell> = row(node).into();
        if extent.is_wide {
            let object = view.store.objects().nodes.get(&Key::new("", node.name.as_str()));
            let product = object.and_then(|node| node.metadata.label(GPU_PRODUCT)).unwrap_or_default();
            cells.extend([node.gpus.free.to_string().into(), product.into()]);
        }
        cells
    });
    let text = match table_with(&headings, rows.collect(), extent.rows.max()) {
        Some(table) => format!("{}\n\n{}\n", cells::coloured(&table), cells::coloured(cells::LEGEND)),
        None if selected.is_some() => "No nodes match the filter\n".to_owned(),
        None => "No nodes found\n".to_owned(),
    };
    let names = model.nodes.iter().map(|node| format!("node/{}", node.name)).collect();
    Rendered::new(text, &model, names)
}

fn row(node: &NodeView) -> [Cell; 7] {
    let of =
        |Allocation { used, allocatable }| format!("{} of {}", amount::of(used), amount::of(allocatable));
    let in_use = match node.gpus.total {
        0 => "–".to_owned(),
        total => format!("{} of {total}", amount::of(node.gpus.used)),
    };
    let status = node.status.join(",");
    let is_failing = node.status.iter().any(|status| *status != "Ready" && *status != "SchedulingDisabled");
    [
        node.name.clone().into(),
        match (node.ready, is_failing) {
            (true, _) => status.into(),
            (false, false) => Cell::warning(status),
            (false, true) => Cell::critical(status),
        },
        cells::text(&node.gpus).into(),
        in_use.into(),
        of(node.cpu).into(),
        of(node.memory).into(),
        node.pods.to_string().into(),
    ]
}
