//! Running groups to wait for.

use super::Search;
use crate::change::Change;
use kai_engine::ids::GroupIdx;
use kai_engine::input::Key;
use kai_engine::resource::GPU;
use std::collections::BTreeSet;

/// Maximum groups among which those to wait for are searched, in each order.
const CANDIDATES_MAX: usize = 64;
/// Maximum groups of a hint.
const GROUPS_MAX: usize = 8;

impl Search<'_, '_> {
    /// A set of groups that is sufficient, and none of which can be left out.
    pub(super) fn waiting(&mut self) -> Option<Vec<Change>> {
        let orders = [self.oldest(), self.by_node()];
        let found: Vec<Vec<Key>> = orders.into_iter().filter_map(|order| self.necessary(order)).collect();
        let mut groups = found.into_iter().min_by_key(Vec::len)?;
        groups.sort();
        Some(vec![Change::Finish { groups }])
    }

    /// Groups that hold resources, those that started first in front.
    fn oldest(&self) -> Vec<Key> {
        let cluster = &self.model.cluster;
        let running = cluster.present_groups().filter(|(_, group)| group.active_allocated() > 0);
        let mut running: Vec<(Option<kai_units::Timestamp>, Key)> =
            running.map(|(index, group)| (group.last_start, cluster.group_key(index))).collect();
        running.retain(|(_, key)| key != self.group);
        running.sort();
        running.into_iter().map(|(_, key)| key).take(CANDIDATES_MAX).collect()
    }

    /// Groups by node, the nodes with the most free GPUs first.
    fn by_node(&self) -> Vec<Key> {
        let cluster = &self.model.cluster;
        let mut nodes = cluster.nodes_by_rank.clone();
        nodes.sort_by_key(|node| std::cmp::Reverse(cluster.nodes[*node].ledger.idle.get(GPU)));
        let mut seen: BTreeSet<GroupIdx> = BTreeSet::new();
        let mut order = Vec::new();
        for node in nodes {
            let mut of_node: Vec<Key> = Vec::new();
            for pod in &cluster.nodes[node].pods {
                if let Some(group) = cluster.pods[*pod].group
                    && seen.insert(group)
                {
                    of_node.push(cluster.group_key(group));
                }
            }
            of_node.sort();
            order.extend(of_node.into_iter().filter(|key| key != self.group));
            if order.len() >= CANDIDATES_MAX {
                break;
            }
        }
        order.truncate(CANDIDATES_MAX);
        order
    }

    /// Groups of the list that are sufficient and necessary together.
    fn necessary(&mut self, mut candidates: Vec<Key>) -> Option<Vec<Key>> {
        let mut required: Vec<Key> = Vec::new();
        let finish = |required: &[Key], more: &[Key]| {
            vec![Change::Finish { groups: required.iter().chain(more).cloned().collect() }]
        };
        if candidates.is_empty() || !self.runs(&finish(&[], &candidates)) {
            return None;
        }
        while required.len() <= GROUPS_MAX {
            if !required.is_empty() && self.runs(&finish(&required, &[])) {
                return Some(required);
            }
            let prefix = |count: i64| {
                usize::try_from(count).ok().and_then(|count| candidates.get(..count)).unwrap_or_default()
            };
            let works = candidates.len() as i64;
            let least = self.least(0, works, |count| finish(&required, prefix(count)));
            let last = usize::try_from(least)
                .ok()
                .and_then(|count| candidates.get(count.checked_sub(1)?).cloned())?;
            candidates.truncate(usize::try_from(least).unwrap_or(1) - 1);
            required.push(last);
        }
        None
    }
}
