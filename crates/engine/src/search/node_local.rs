//! `NodeLocalGreedy`: proposes victims that share a node.
//!
//! After each accumulated batch every node of its group is proposed: the accumulated pods of all groups on that node,
//! including the pods of these groups on other nodes.

use super::accumulate::{AccumulatedVictims, Advance};
use super::pending_request::RequestPart;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, NodeIdx, PodIdx};
use crate::plugin::VictimBatch as Batch;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Scenarios of one probe.
pub(crate) struct NodeLocal<'a> {
    accumulated: AccumulatedVictims<'a>,
    began: bool,
    queue: VecDeque<Vec<Batch>>,
    /// Groups with accumulated pods, by node.
    on_node: BTreeMap<NodeIdx, Vec<GroupIdx>>,
    /// Accumulated batches, by group.
    of_group: BTreeMap<GroupIdx, Vec<usize>>,
    has_recorded: bool,
    /// Also propose scenarios that cannot succeed, as KAI does.
    literal: bool,
}

impl<'a> NodeLocal<'a> {
    pub(crate) fn new(accumulated: AccumulatedVictims<'a>, has_recorded: bool, literal: bool) -> Self {
        Self {
            accumulated,
            began: false,
            queue: VecDeque::new(),
            on_node: BTreeMap::new(),
            of_group: BTreeMap::new(),
            has_recorded,
            literal,
        }
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
            if let Some(found) = self.queue.pop_front() {
                return Some(found);
            }
            if std::mem::replace(&mut self.began, true) {
                match self.accumulated.advance(cluster, is_allowed) {
                    Advance::Exhausted => return None,
                    Advance::AlreadyRecorded => continue,
                    Advance::Added => self.note_batch(cluster),
                }
                if self.accumulated.may_be_enough() {
                    self.propose(cluster, part);
                }
            } else if self.has_recorded && self.accumulated.may_be_enough() {
                return Some(Vec::new());
            }
        }
    }

    fn note_batch(&mut self, cluster: &Cluster) {
        let at = self.accumulated.batches.len() - 1;
        let batch = &self.accumulated.batches[at];
        self.of_group.entry(batch.group).or_default().push(at);
        for &pod in batch.pods.iter() {
            if let Some(node) = cluster.pods[pod].state.node() {
                let groups = self.on_node.entry(node).or_default();
                if !groups.contains(&batch.group) {
                    groups.push(batch.group);
                }
            }
        }
    }

    fn propose(&mut self, cluster: &Cluster, part: &RequestPart<'_>) {
        let latest = self.accumulated.batches.last().expect("a batch was added").group;
        let pods = &cluster.groups[latest].pods;
        let nodes: BTreeSet<(u32, NodeIdx)> = pods
            .iter()
            .filter_map(|pod| cluster.pods[*pod].state.node())
            .map(|node| (cluster.nodes[node].rank, node))
            .collect();
        let mut seen: Vec<Vec<GroupIdx>> = Vec::new();
        for (_, node) in nodes {
            let Some(groups) = self.on_node.get(&node) else { continue };
            let mut sorted = groups.clone();
            sorted.sort_unstable();
            if seen.contains(&sorted) || !(self.literal || self.may_fit(cluster, part, groups)) {
                continue;
            }
            self.queue.push_back(groups.iter().map(|group| self.merged(*group)).collect());
            seen.push(sorted);
        }
    }

    /// All accumulated pods of a group as one batch.
    fn merged(&self, group: GroupIdx) -> Batch {
        let batches = self.of_group[&group].iter().map(|at| &self.accumulated.batches[*at]);
        Batch { group, pods: batches.flat_map(|batch| batch.pods.iter().copied()).collect() }
    }

    /// Whether the pods may fit, by their GPUs, with the accumulated pods of these groups evicted.
    fn may_fit(&self, cluster: &Cluster, part: &RequestPart<'_>, groups: &[GroupIdx]) -> bool {
        let least = part.bounding_gpus();
        if least == 0 {
            return true;
        }
        let mut freed: BTreeMap<NodeIdx, i64> = BTreeMap::new();
        let batches = groups.iter().flat_map(|group| &self.of_group[group]);
        let pods = batches.flat_map(|at| self.accumulated.batches[*at].pods.iter().copied());
        for (node, gpus) in pods.filter_map(|pod: PodIdx| self.accumulated.usable_gpus_of(cluster, pod)) {
            *freed.entry(node).or_default() += gpus;
        }
        let base = &self.accumulated.base;
        let gain = |(node, gpus): (&NodeIdx, &i64)| {
            let before = base.usable(*node).max(0);
            if base.is_eligible(*node) { (before + gpus) / least - before / least } else { 0 }
        };
        base.fitting.saturating_add(freed.iter().map(gain).sum()) >= part.pods.len() as i64
    }
}
