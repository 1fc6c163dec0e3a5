//! Nodes to add: how many more of a type that the cluster has.

use super::Search;
use crate::change::Change;
use kai_engine::resource::GPU;
use std::collections::BTreeMap;

/// Labels that tell types of nodes apart, beside what they offer.
const TYPE_LABELS: [&str; 2] = ["node.kubernetes.io/instance-type", "nvidia.com/gpu.product"];
/// Maximum types of nodes that are tried.
const TYPES_MAX: usize = 4;
/// Maximum nodes that a hint adds.
const ADDED_MAX: u32 = 256;

impl Search<'_, '_> {
    /// The type of which the fewest nodes are enough.
    pub(super) fn nodes(&mut self) -> Option<Vec<Change>> {
        let mut best: Option<(i64, String)> = None;
        for node in self.node_types() {
            let with = |count: i64| {
                let count = u32::try_from(count).unwrap_or(0);
                vec![Change::AddNodesLike { node: node.clone(), count }]
            };
            // Groups that come first may take as much again.
            let needed = self.needed().clamp(1, ADDED_MAX);
            let enough = [needed, needed.saturating_mul(4).min(ADDED_MAX)];
            let Some(works) = enough.into_iter().find(|count| self.runs(&with(i64::from(*count)))) else {
                continue;
            };
            let least = self.least(0, i64::from(works), with);
            if best.as_ref().is_none_or(|(count, _)| least < *count) {
                best = Some((least, node));
            }
        }
        let (count, node) = best?;
        Some(vec![Change::AddNodesLike { node, count: u32::try_from(count).ok()? }])
    }

    /// A node of each type that is in use, those with the most nodes first.
    fn node_types(&self) -> Vec<String> {
        let cluster = &self.model.cluster;
        let objects = self.model.store.objects();
        let mut types: BTreeMap<String, (usize, String)> = BTreeMap::new();
        let needs_gpus = self.cluster_group().is_some_and(|group| group.counted.request[2] > 0);
        for index in &cluster.nodes_by_rank {
            let node = &cluster.nodes[*index];
            let name = cluster.text(node.name);
            let Some(object) = objects.nodes.get(&kai_engine::input::Key::new("", name)) else { continue };
            if !node.bad_conditions.is_empty() || node.unschedulable {
                continue;
            }
            if needs_gpus && node.allocatable.get(GPU) == 0 && !node.is_mig {
                continue;
            }
            let labels = TYPE_LABELS.map(|key| object.metadata.label(key));
            let description = format!("{labels:?} {:?} {:?}", object.status.allocatable, object.spec.taints);
            types.entry(description).or_insert_with(|| (0, name.to_owned())).0 += 1;
        }
        let mut types: Vec<(usize, String)> = types.into_values().collect();
        types.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        types.into_iter().take(TYPES_MAX).map(|(_, name)| name).collect()
    }
}
