//! GPUs as cells: one character each, by what is on it.

use crate::figures::{number, unit};
use clap::builder::styling::{AnsiColor, Style};
use kai_engine::Cluster;
use kai_engine::cluster::node::Node;
use kai_engine::resource::{self, WHOLE_GPU};
use kai_engine::verdict::QueueResource;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How much of a shared GPU is in use, by eighths; a full one is drawn as the highest that is not whole.
const SHARED: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];
const WHOLE: char = '█';
const FREE: char = '·';
const LEAVING: char = '▒';
/// What the cells mean.
pub(super) const LEGEND: &str =
    "one cell a GPU: · free  █ in use as a whole  ▁▂▃▄▅▆▇ shared, by the part in use  ▒ being given back";

/// What is on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    Whole,
    /// Pods that have it as a whole are leaving.
    Leaving,
    Shared {
        /// The name that the pods on it have in common.
        group: String,
        /// In millionths.
        part: i64,
        /// Everybody on it leaves.
        leaving: bool,
        pods: Vec<String>,
    },
    Free,
}

/// MIG instances of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instances {
    resource: String,
    used: i64,
    all: i64,
}

/// The GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cells {
    all: Vec<Cell>,
    instances: Vec<Instances>,
}

impl Cells {
    /// Whole ones first, then shared ones, then free ones: which device a pod has is known to its node alone.
    pub(super) fn of(cluster: &Cluster, node: &Node) -> Self {
        let ledger = &node.ledger;
        let shared = shared(cluster, node);
        let released = ledger.gpus.iter().filter(|gpu| gpu.flagged).count() as i64;
        let total = node.gpus_total().max(0);
        let whole = (ledger.used.get(resource::GPU) / WHOLE_GPU).clamp(0, total);
        let leaving = (ledger.releasing.get(resource::GPU) / WHOLE_GPU - released).clamp(0, whole);
        let mut all = Vec::new();
        all.extend((leaving..whole).map(|_| Cell::Whole));
        all.extend((0..leaving).map(|_| Cell::Leaving));
        all.extend(shared);
        let free = total - all.len() as i64;
        all.extend((0..free).map(|_| Cell::Free));
        Self { all, instances: instances(cluster, node) }
    }

    /// How many GPUs there are.
    pub(super) fn total(&self) -> usize {
        self.all.len()
    }

    /// How much of them is in use, in millionths of one.
    pub(super) fn used(&self) -> i64 {
        let used = |cell: &Cell| match cell {
            Cell::Whole | Cell::Leaving => WHOLE_GPU,
            Cell::Shared { part, .. } => *part,
            Cell::Free => 0,
        };
        self.all.iter().map(used).sum()
    }

    /// One character a GPU, and a line for each kind of MIG instances.
    pub(super) fn drawn(&self) -> String {
        let cell = |cell: &Cell| match cell {
            Cell::Whole => WHOLE,
            Cell::Leaving | Cell::Shared { leaving: true, .. } => LEAVING,
            Cell::Shared { part, .. } => {
                let eighths = (part * 8).div_euclid(WHOLE_GPU).clamp(1, SHARED.len() as i64);
                SHARED[eighths as usize - 1]
            }
            Cell::Free => FREE,
        };
        let mut text: String = self.all.iter().map(cell).collect();
        for Instances { resource, used, all } in &self.instances {
            let gap = if text.is_empty() { "" } else { "\n" };
            let profile = resource.rsplit('/').next().unwrap_or(resource);
            write!(text, "{gap}{profile}: {used} of {all}").expect("writing to a string");
        }
        if text.is_empty() { "–".to_owned() } else { text }
    }

    /// The same for programs.
    pub(super) fn report(&self) -> Value {
        let cell = |cell: &Cell| match cell {
            Cell::Whole => json!({ "state": "whole" }),
            Cell::Leaving => json!({ "state": "leaving" }),
            Cell::Shared { group, part, leaving, pods } => json!({
                "state": "shared", "group": group, "part": number(*part as f64 / WHOLE_GPU as f64),
                "leaving": leaving, "pods": pods,
            }),
            Cell::Free => json!({ "state": "free" }),
        };
        let instances = |of: &Instances| json!({ "resource": of.resource, "used": of.used, "all": of.all });
        json!({
            "total": self.total(),
            "used": unit(QueueResource::Gpu, self.used()),
            "free": self.all.iter().filter(|cell| matches!(cell, Cell::Free)).count(),
            "cells": self.all.iter().map(cell).collect::<Vec<_>>(),
            "mig": self.instances.iter().map(instances).collect::<Vec<_>>(),
        })
    }
}

/// Shared GPUs, the fullest first.
fn shared(cluster: &Cluster, node: &Node) -> Vec<Cell> {
    let memory = node.gpu_memory.mib.max(1);
    let in_use = node.ledger.gpus.iter().filter(|gpu| gpu.used > 0 || gpu.allocated > 0);
    let mut all: Vec<(i64, String, bool, Vec<String>)> = in_use
        .map(|gpu| {
            let part = i128::from(gpu.allocated.max(gpu.used)) * i128::from(WHOLE_GPU) / i128::from(memory);
            let on_it = node.pods.iter().filter(|pod| {
                let pod = &cluster.pods[**pod];
                let place = pod.state.place.as_ref();
                // A pod that only holds the GPU for others uses nothing of it.
                pod.utility.is_none() && place.is_some_and(|place| place.gpu_groups.contains(&gpu.group))
            });
            let mut pods: Vec<String> = on_it.map(|pod| cluster.pod_key(*pod).to_string()).collect();
            pods.sort_unstable();
            let part = i64::try_from(part).unwrap_or(WHOLE_GPU).min(WHOLE_GPU);
            (part, cluster.text(gpu.group).to_owned(), gpu.all_releasing(), pods)
        })
        .collect();
    all.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let cell = |(part, group, leaving, pods)| Cell::Shared { group, part, leaving, pods };
    all.into_iter().map(cell).collect()
}

fn instances(cluster: &Cluster, node: &Node) -> Vec<Instances> {
    let offered = node.allocatable.iter().filter(|(dim, all)| *all > 0 && cluster.dims.mig(*dim).is_some());
    let mut all: Vec<Instances> = offered
        .map(|(dim, all)| Instances {
            resource: cluster.text(cluster.dims.name(dim)).to_owned(),
            used: node.ledger.used.get(dim) / 1_000,
            all: all / 1_000,
        })
        .collect();
    all.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
    all
}

/// A text with its cells in colour. Colour vanishes where the output is no terminal.
pub(super) fn painted(text: &str) -> String {
    let mut painted = String::with_capacity(text.len());
    for cell in text.chars() {
        match colour(cell) {
            Some(colour) => {
                let style = Style::new().fg_color(Some(colour.into()));
                write!(painted, "{style}{cell}{style:#}").expect("writing to a string");
            }
            None => painted.push(cell),
        }
    }
    painted
}

fn colour(cell: char) -> Option<AnsiColor> {
    match cell {
        WHOLE => Some(AnsiColor::Blue),
        FREE => Some(AnsiColor::Green),
        LEAVING => Some(AnsiColor::Magenta),
        _ if SHARED.contains(&cell) => Some(AnsiColor::Yellow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(part: i64) -> Cell {
        Cell::Shared { group: "g".to_owned(), part, leaving: false, pods: Vec::new() }
    }

    #[test]
    fn cells_show_what_is_on_each_gpu() {
        let mut all = vec![Cell::Whole, Cell::Leaving];
        all.extend([1_000_000, 999_999, 500_000, 125_000, 1].map(shared));
        all.push(Cell::Free);
        let instances = Vec::new();
        let cells = Cells { all, instances };
        assert_eq!(cells.drawn(), "█▒▇▇▄▁▁·");
        assert_eq!((cells.total(), cells.used()), (8, 4_625_000));
    }

    #[test]
    fn a_node_without_gpus_has_none_and_mig_instances_are_counted() {
        let mut cells = Cells { all: Vec::new(), instances: Vec::new() };
        assert_eq!(cells.drawn(), "–");
        cells.instances.push(Instances { resource: "nvidia.com/mig-1g.5gb".to_owned(), used: 3, all: 14 });
        assert_eq!(cells.drawn(), "mig-1g.5gb: 3 of 14");
    }

    #[test]
    fn only_cells_are_painted() {
        assert_eq!(painted("node-1 4 of 8"), "node-1 4 of 8");
        assert!(painted("█").starts_with("\x1b["));
    }
}
