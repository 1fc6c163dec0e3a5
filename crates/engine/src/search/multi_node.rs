//! `MultiNodeGang`: proposes enough nodes for a gang, smallest first.
//!
//! When the accumulated victims may be sufficient, their nodes are sorted by the GPUs available after eviction. The
//! shortest prefix that covers the demand is proposed, then longer ones. A selected node includes every batch with a
//! pod on it, as a whole.

use super::accumulate::{AccumulatedVictims, Advance};
use super::pending_request::RequestPart;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, NodeIdx};
use crate::plugin::VictimBatch as Batch;
use std::collections::BTreeMap;

/// Scenarios of one probe.
pub(crate) struct MultiNode<'a> {
    accumulated: AccumulatedVictims<'a>,
    began: bool,
    emitter: Option<Emitter>,
}

/// Prefixes of the victims' nodes.
struct Emitter {
    /// Sorted by available GPUs, then by first appearance; with the batches on each node.
    nodes: Vec<(i64, usize, Vec<usize>)>,
    next: usize,
    step: usize,
}

impl<'a> MultiNode<'a> {
    pub(crate) fn new(accumulated: AccumulatedVictims<'a>) -> Self {
        Self { accumulated, began: false, emitter: None }
    }

    /// Upper bound on the pods that fit with all accumulated victims evicted.
    pub(crate) fn fitting(&self) -> i64 {
        self.accumulated.all.fitting
    }

    /// The next victims to add to the recorded ones.
    pub(crate) fn next(
        &mut self,
        cluster: &Cluster,
        part: &RequestPart<'_>,
        is_allowed: &impl Fn(GroupIdx) -> bool,
    ) -> Option<Vec<Batch>> {
        loop {
            if let Some(picked) = self.emitter.as_mut().and_then(Emitter::next) {
                return Some(picked.into_iter().map(|at| self.accumulated.batches[at].clone()).collect());
            }
            self.emitter = None;
            if std::mem::replace(&mut self.began, true) {
                match self.accumulated.advance(cluster, is_allowed) {
                    Advance::Exhausted => return None,
                    Advance::AlreadyRecorded => continue,
                    Advance::Added => {}
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
        // First appearance and batches of each node that has a victim.
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

    /// GPUs available on nodes without accumulated victims.
    fn baseline(&self, on_node: &BTreeMap<NodeIdx, (usize, Vec<usize>)>) -> i64 {
        let taken: i64 = on_node.keys().map(|node| self.accumulated.base.gpus(*node)).sum();
        self.accumulated.base.total() - taken
    }
}

/// Length of the shortest prefix that covers a demand; beyond the end when none does.
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
    /// The batches of the next prefix, in eviction order.
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
