//! `MultiNodeGang`: enough nodes for a gang, smallest first.
//!
//! Whenever the accumulated victims may be enough, their nodes are sorted by what they would offer, and the shortest
//! prefix that covers the demand is tried, then longer and longer ones. A node that is picked brings every batch that
//! touches it, whole.

use super::accumulate::{AccumulatedVictims, Turn};
use super::pending_request::RequestPart;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, NodeIdx};
use crate::plugin::VictimBatch as Batch;
use std::collections::BTreeMap;

/// Proposals of one probe.
pub(crate) struct MultiNode<'a> {
    accumulated: AccumulatedVictims<'a>,
    began: bool,
    emitter: Option<Emitter>,
}

/// Prefixes of the victims' nodes.
struct Emitter {
    /// By what they offer, then by when they were first seen; with the batches on each.
    nodes: Vec<(i64, usize, Vec<usize>)>,
    next: usize,
    step: usize,
}

impl<'a> MultiNode<'a> {
    pub(crate) fn new(accumulated: AccumulatedVictims<'a>) -> Self {
        Self { accumulated, began: false, emitter: None }
    }

    /// Pods that would fit with everybody accumulated gone.
    pub(crate) fn fitting(&self) -> i64 {
        self.accumulated.all.fitting
    }

    /// The next victims to try on top of the recorded ones.
    pub(crate) fn next(
        &mut self,
        cluster: &Cluster,
        part: &RequestPart<'_>,
        may: &impl Fn(GroupIdx) -> bool,
    ) -> Option<Vec<Batch>> {
        loop {
            if let Some(picked) = self.emitter.as_mut().and_then(Emitter::next) {
                return Some(picked.into_iter().map(|at| self.accumulated.batches[at].clone()).collect());
            }
            self.emitter = None;
            if std::mem::replace(&mut self.began, true) {
                match self.accumulated.advance(cluster, may) {
                    Turn::Over => return None,
                    Turn::Nothing => continue,
                    Turn::Added => {}
                }
            }
            if !self.accumulated.may_be_enough() {
                continue;
            }
            if self.accumulated.batches.is_empty() {
                return Some(Vec::new());
            }
            self.emitter = Some(self.emitter(cluster, part));
        }
    }

    fn emitter(&self, cluster: &Cluster, part: &RequestPart<'_>) -> Emitter {
        // PlacementOrder appearance and batches of each node that has a victim.
        let mut on_node: BTreeMap<NodeIdx, (usize, Vec<usize>)> = BTreeMap::new();
        let mut seen = 0;
        for (at, batch) in self.accumulated.batches.iter().enumerate() {
            for node in batch.pods.iter().filter_map(|pod| cluster.pods[*pod].state.node()) {
                let (_, batches) = on_node.entry(node).or_insert((seen, Vec::new()));
                if batches.last() != Some(&at) {
                    batches.push(at);
                }
                seen += 1;
            }
        }
        let covered = self.baseline(&on_node);
        let least = part.least_gpus();
        let mut nodes: Vec<(i64, usize, Vec<usize>)> = on_node
            .into_iter()
            .map(|(node, (first, batches))| (self.accumulated.all.gpus(node), first, batches))
            .filter(|(gpus, _, _)| least == 0 || *gpus >= least)
            .collect();
        nodes.sort_unstable_by_key(|(gpus, first, _)| (*gpus, *first));
        let missing = part.gpus.iter().sum::<i64>() - covered;
        let next = shortest_prefix(&nodes, missing);
        Emitter { nodes, next, step: 1 }
    }

    /// GPUs on offer on nodes without accumulated victims; nodes that offer nothing add nothing.
    fn baseline(&self, on_node: &BTreeMap<NodeIdx, (usize, Vec<usize>)>) -> i64 {
        let taken: i64 = on_node.keys().map(|node| self.accumulated.base.gpus(*node)).sum();
        self.accumulated.base.total() - taken
    }
}

/// How many nodes cover a demand; more than there are when none do.
fn shortest_prefix(nodes: &[(i64, usize, Vec<usize>)], demand: i64) -> usize {
    if demand <= 0 {
        return 0;
    }
    let mut covered = 0;
    for (at, (gpus, _, _)) in nodes.iter().enumerate() {
        covered += gpus;
        if covered >= demand {
            return at + 1;
        }
    }
    nodes.len() + 1
}

impl Emitter {
    /// The batches of the next prefix, in the order of their turns.
    fn next(&mut self) -> Option<Vec<usize>> {
        let count = self.next;
        if count > self.nodes.len() {
            return None;
        }
        let mut picked: Vec<usize> =
            self.nodes[..count].iter().flat_map(|(_, _, at)| at.iter().copied()).collect();
        picked.sort_unstable();
        picked.dedup();
        if count == self.nodes.len() {
            self.next = count + 1;
        } else {
            self.next = (count + self.step).min(self.nodes.len());
            self.step *= 2;
        }
        Some(picked)
    }
}
