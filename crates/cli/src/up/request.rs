//! Checks what `kai up` is asked for, and reads the file of nodes.

use crate::args;
use anyhow::{Context, Result, bail};
use kai_sim::{NodeGroup, node};
use std::path::Path;

/// What there is without any wish.
const DEFAULT_NODES: &str = "8x8";
/// More nodes than this are a slip of the hand.
const NODES_MAX: usize = 100_000;
/// As above, GPUs of one node.
const GPUS_MAX: u32 = 1_024;

/// The nodes that are wanted.
pub(super) fn nodes(args: &args::Up) -> Result<Vec<NodeGroup>> {
    if let Some(path) = &args.nodes_file {
        return read(path);
    }
    match (&args.nodes, &args.load) {
        (Some(wanted), _) => parse(wanted, args.racks),
        (None, Some(_)) => Ok(Vec::new()),
        (None, None) => parse(DEFAULT_NODES, args.racks),
    }
}

fn read(path: &Path) -> Result<Vec<NodeGroup>> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{name}`; hint: `kai up --help` shows a file of nodes"))?;
    let groups = node::read(&text).with_context(|| format!("cannot use `{name}`"))?;
    if let Some(group) = groups.iter().find(|group| group.count > NODES_MAX || group.gpus > GPUS_MAX) {
        bail!(
            "cannot use `{name}`: group `{}` is too large; hint: up to {NODES_MAX} nodes of {GPUS_MAX} GPUs",
            group.name
        );
    }
    Ok(groups)
}

/// Reads `16x8,4x0`.
fn parse(wanted: &str, racks: usize) -> Result<Vec<NodeGroup>> {
    let parts: Vec<&str> = wanted.split(',').map(str::trim).collect();
    let mut groups = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let sizes = part.split_once('x').map(|(count, gpus)| (count.parse::<usize>(), gpus.parse::<u32>()));
        let Some((Ok(count), Ok(gpus))) = sizes else {
            bail!(
                "--nodes: `{part}` is not nodes and GPUs; hint: 16x8 is 16 nodes of 8 GPUs, 16x8,4x0 two kinds"
            );
        };
        if count == 0 || count > NODES_MAX || gpus > GPUS_MAX {
            bail!(
                "--nodes: `{part}` is out of range; hint: 1 to {NODES_MAX} nodes, each of up to {GPUS_MAX} GPUs"
            );
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
    fn nodes_are_counts_and_gpus() {
        let groups = parse("16x8", 4).expect("it is well formed");
        assert_eq!(groups, [NodeGroup { racks: 4, ..NodeGroup::gpu_nodes(16, 8) }]);
        let groups = parse("2x8, 1x0", 0).expect("it is well formed");
        let names: Vec<String> = groups.iter().flat_map(NodeGroup::names).collect();
        assert_eq!(names, ["node1-1", "node1-2", "node2-1"]);
        assert_eq!(groups[1].gpus, 0);
    }

    #[test]
    fn what_is_no_number_of_nodes_is_refused_with_a_hint() {
        for wrong in ["", "8", "x", "8x", "ax8", "8x8,", "0x8", "-1x8", "1000000x8", "1x5000", "8x8x8"] {
            let error = parse(wrong, 2).expect_err(wrong).to_string();
            assert!(error.starts_with("--nodes: ") && error.contains("hint: "), "{error}");
        }
    }
}
