//! The simulated nodes of `kai up`, from `--nodes` or `--nodes-file`.

use crate::args;
use anyhow::{Context, Result, bail};
use kai_sim::{NodeGroup, node};
use std::path::Path;

const DEFAULT_NODES: &str = "8x8";
/// Limit that catches typing errors.
const NODES_MAX: usize = 100_000;
/// As above, per node.
const GPUS_MAX: u32 = 1_024;

pub(super) fn requested(args: &args::Up) -> Result<Vec<NodeGroup>> {
    if let Some(path) = &args.nodes_file {
        return read(path);
    }
    match (&args.nodes, &args.load) {
        (Some(nodes), _) => parse(nodes, args.racks),
        (None, Some(_)) => Ok(Vec::new()),
        (None, None) => parse(DEFAULT_NODES, args.racks),
    }
}

fn read(path: &Path) -> Result<Vec<NodeGroup>> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{name}`; hint: `kai up --help` shows the format"))?;
    let groups = node::read(&text).with_context(|| format!("cannot use `{name}`"))?;
    if let Some(group) = groups.iter().find(|group| group.count > NODES_MAX || group.gpus > GPUS_MAX) {
        bail!(
            "cannot use `{name}`: group `{}` is too large; hint: the maximum is {NODES_MAX} nodes of {GPUS_MAX} GPUs",
            group.name
        );
    }
    Ok(groups)
}

/// Parses `16x8,4x0`.
fn parse(nodes: &str, racks: usize) -> Result<Vec<NodeGroup>> {
    let parts: Vec<&str> = nodes.split(',').map(str::trim).collect();
    let mut groups = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let sizes = part.split_once('x').map(|(count, gpus)| (count.parse::<usize>(), gpus.parse::<u32>()));
        let Some((Ok(count), Ok(gpus))) = sizes else {
            bail!(
                "--nodes: `{part}` is not NODESxGPUS; hint: 16x8 is 16 nodes of 8 GPUs, 16x8,4x0 adds 4 nodes without GPUs"
            );
        };
        if count == 0 || count > NODES_MAX || gpus > GPUS_MAX {
            bail!("--nodes: `{part}` is out of range; hint: 1 to {NODES_MAX} nodes of up to {GPUS_MAX} GPUs");
        }
        let name = if parts.len() == 1 { "node".to_owned() } else { format!("node{}", index + 1) };
        groups.push(NodeGroup { name, racks, ..NodeGroup::gpu_nodes(count, gpus) });
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_parsed_from_counts_and_gpus() {
        let groups = parse("16x8", 4).expect("it is well-formed");
        assert_eq!(groups, [NodeGroup { racks: 4, ..NodeGroup::gpu_nodes(16, 8) }]);
        let groups = parse("2x8, 1x0", 0).expect("it is well-formed");
        let names: Vec<String> = groups.iter().flat_map(NodeGroup::names).collect();
        assert_eq!(names, ["node1-1", "node1-2", "node2-1"]);
        assert_eq!(groups[1].gpus, 0);
    }

    #[test]
    fn invalid_node_group_is_rejected_with_a_hint() {
        for wrong in ["", "8", "x", "8x", "ax8", "8x8,", "0x8", "-1x8", "1000000x8", "1x5000", "8x8x8"] {
            let error = parse(wrong, 2).expect_err(wrong).to_string();
            assert!(error.starts_with("--nodes: ") && error.contains("hint: "), "{error}");
        }
    }
}
