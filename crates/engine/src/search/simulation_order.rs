//! Whose turn it is in a simulation.
//!
//! A simulation asks the queue tree again, with every waiting group in it, in which order victims and preemptor come.
//! Only their turns matter: groups that wait and are not involved shape the order and are passed over. What waits is
//! sorted once per action; a simulation walks these lists with cursors and adds the involved groups.

use super::sorted_list::SortedList;
use super::victims::by_leaf;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, QueueIdx};
use crate::order::groups;
use crate::order::queue_heap::{Leaves, Purpose, QueueHeap};
use crate::order::tree_walk::{leaf_of, next_request};
use crate::plugin::Registry;
use crate::share::{QueueAmounts, root_path};
use std::collections::BTreeMap;

/// The waiting groups of each leaf queue, first in order first, with what their next step asks for.
#[derive(Debug, Default)]
pub(crate) struct PendingGroups {
    leaves: BTreeMap<QueueIdx, SortedList<(GroupIdx, QueueAmounts)>>,
}

impl PendingGroups {
    /// All groups with waiting pods and a leaf queue.
    pub(crate) fn new(cluster: &Cluster, registry: &Registry) -> Self {
        let mut waiting = Self::default();
        for (group, g) in cluster.waiting_groups() {
            if let (true, Some(leaf)) = (g.pending() > 0, leaf_of(cluster, group)) {
                let line = waiting.leaves.entry(leaf).or_default();
                line.members_mut().push((group, next_request(cluster, registry, group)));
            }
        }
        for line in waiting.leaves.values_mut() {
            line.members_mut().sort_by(|a, b| groups::compare(cluster, registry, a.0, b.0));
        }
        waiting
    }

    /// Takes groups out whose pods changed. All of them must be out before one is put back.
    pub(crate) fn remove(&mut self, cluster: &Cluster, groups: &[GroupIdx]) {
        for (leaf, changed) in by_leaf(cluster, groups) {
            let Some(line) = self.leaves.get_mut(&leaf) else { continue };
            line.remove_matching(changed.len(), |(group, _)| changed.binary_search(group).is_ok());
            if line.remaining().is_empty() {
                self.leaves.remove(&leaf);
            }
        }
    }

    /// Puts a group back that still waits.
    pub(crate) fn put_back(&mut self, cluster: &Cluster, registry: &Registry, group: GroupIdx) {
        let Some(leaf) = leaf_of(cluster, group).filter(|_| cluster.groups[group].pending() > 0) else {
            return;
        };
        let line = self.leaves.entry(leaf).or_default();
        let before =
            |(g, _): &(GroupIdx, QueueAmounts)| groups::compare(cluster, registry, *g, group).is_lt();
        let at = line.remaining().partition_point(before);
        line.insert(at, (group, next_request(cluster, registry, group)));
    }
}

/// A walk in progress.
pub(crate) struct SimulationOrder<'a> {
    queues: QueueHeap<'a>,
    leaves: Cursors<'a>,
}

struct Cursors<'a> {
    leaves: BTreeMap<QueueIdx, Cursor<'a>>,
    /// Involved groups left below each branch: a child of the queue at which the involved ones part.
    left_below: BTreeMap<QueueIdx, usize>,
}

/// Where the walk stands in one leaf.
struct Cursor<'a> {
    waiting: &'a [(GroupIdx, QueueAmounts)],
    at: usize,
    /// Involved groups of the leaf, last in order first.
    involved: Vec<Turn>,
    branch: QueueIdx,
}

/// An involved group.
#[derive(Clone, Copy)]
struct Turn {
    group: GroupIdx,
    asks: QueueAmounts,
    /// It comes before this position of the waiting list.
    before: usize,
}

impl Cursor<'_> {
    /// The involved group that is next, unless one that waits comes before it.
    fn involved_next(&self) -> Option<Turn> {
        self.involved.last().copied().filter(|turn| turn.before <= self.at)
    }
    fn is_empty(&self) -> bool {
        self.involved.is_empty() && self.at >= self.waiting.len()
    }
    fn next_asks(&self) -> QueueAmounts {
        self.involved_next().map_or_else(|| self.waiting[self.at].1, |turn| turn.asks)
    }
    /// Passes over groups that wait and ask for the same: their turns leave everything as it is.
    fn pass_equals(&mut self, is_involved: impl Fn(GroupIdx) -> bool) {
        let asks = self.waiting[self.at].1;
        let stop = self.involved.last().map_or(self.waiting.len(), |turn| turn.before);
        while self.at < stop && (self.waiting[self.at].1 == asks || is_involved(self.waiting[self.at].0)) {
            self.at += 1;
        }
    }
    /// Involved groups have turns of their own.
    fn skip_involved(&mut self, is_involved: impl Fn(GroupIdx) -> bool) {
        while self.waiting.get(self.at).is_some_and(|(group, _)| is_involved(*group)) {
            self.at += 1;
        }
    }
}

impl Leaves for Cursors<'_> {
    fn is_empty(&self, leaf: QueueIdx) -> bool {
        // A branch without involved groups no longer matters to the others.
        self.leaves.get(&leaf).is_none_or(|cursor| self.left_below[&cursor.branch] == 0 || cursor.is_empty())
    }
    fn next_amounts(&self, _: &Cluster, leaf: QueueIdx) -> (QueueAmounts, QueueAmounts) {
        (self.leaves[&leaf].next_asks(), [0; 3])
    }
}

impl<'a> SimulationOrder<'a> {
    /// The turns of some groups, each with what its next step asks for. Between queues that are equal in everything,
    /// age included, the preemptor's goes first: the others would only take back what they just gave.
    pub(crate) fn new(
        cluster: &Cluster,
        registry: &'a Registry,
        total: QueueAmounts,
        waiting: &'a PendingGroups,
        involved: &BTreeMap<GroupIdx, QueueAmounts>,
        preemptor: GroupIdx,
    ) -> Self {
        let mut by_leaf: BTreeMap<QueueIdx, Vec<Turn>> = BTreeMap::new();
        for (&group, &asks) in involved {
            if let Some(leaf) = leaf_of(cluster, group) {
                by_leaf.entry(leaf).or_default().push(Turn { group, asks, before: 0 });
            }
        }
        let common = common_queue(cluster, by_leaf.keys().copied());
        let mut left_below: BTreeMap<QueueIdx, usize> = BTreeMap::new();
        for (&leaf, turns) in &by_leaf {
            *left_below.entry(branch_of(cluster, leaf, common)).or_default() += turns.len();
        }
        let mut leaves = BTreeMap::new();
        let known = waiting.leaves.keys().chain(by_leaf.keys()).copied();
        for leaf in known.collect::<std::collections::BTreeSet<_>>() {
            let branch = branch_of(cluster, leaf, common);
            if !left_below.contains_key(&branch) {
                continue;
            }
            let list = waiting.leaves.get(&leaf).map_or(&[][..], SortedList::remaining);
            let mut turns = by_leaf.remove(&leaf).unwrap_or_default();
            for turn in &mut turns {
                turn.before = position(list, involved, |other| {
                    groups::compare(cluster, registry, other, turn.group).is_lt()
                });
            }
            turns.sort_by(|a, b| groups::compare(cluster, registry, b.group, a.group));
            let mut cursor = Cursor { waiting: list, at: 0, involved: turns, branch };
            cursor.skip_involved(|g| involved.contains_key(&g));
            leaves.insert(leaf, cursor);
        }
        let queues: Vec<QueueIdx> = leaves.keys().copied().collect();
        let leaves = Cursors { leaves, left_below };
        let queues = QueueHeap::new(
            cluster,
            registry,
            Purpose::Place,
            total,
            &leaves,
            queues,
            leaf_of(cluster, preemptor),
        );
        Self { queues, leaves }
    }

    /// The next involved group.
    pub(crate) fn next(
        &mut self,
        cluster: &Cluster,
        involved: &BTreeMap<GroupIdx, QueueAmounts>,
    ) -> Option<GroupIdx> {
        loop {
            let leaf = self.queues.best_leaf(cluster, &self.leaves)?;
            let cursor = self.leaves.leaves.get_mut(&leaf).expect("the heap holds known leaves");
            let turn = cursor.involved_next();
            if turn.is_some() {
                cursor.involved.pop();
                let left = self.leaves.left_below.get_mut(&cursor.branch).expect("every branch is counted");
                *left -= 1;
            } else {
                cursor.pass_equals(|g| involved.contains_key(&g));
            }
            cursor.skip_involved(|g| involved.contains_key(&g));
            self.queues.taken(cluster, &self.leaves, leaf);
            if let Some(turn) = turn {
                return Some(turn.group);
            }
        }
    }
}

/// Where a group belongs in a sorted list; involved groups in it are out of order and not looked at.
fn position(
    list: &[(GroupIdx, QueueAmounts)],
    involved: &BTreeMap<GroupIdx, QueueAmounts>,
    is_before: impl Fn(GroupIdx) -> bool,
) -> usize {
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match (middle..high).find(|at| !involved.contains_key(&list[*at].0)) {
            Some(at) if is_before(list[at].0) => low = at + 1,
            Some(_) | None => high = middle,
        }
    }
    low
}

/// The lowest queue that is above all these leaves, or the leaf if there is one; none where only the root is.
fn common_queue(cluster: &Cluster, leaves: impl Iterator<Item = QueueIdx>) -> Option<QueueIdx> {
    let mut common: Option<Vec<QueueIdx>> = None;
    for leaf in leaves {
        let path: Vec<QueueIdx> = root_path(cluster, leaf).collect();
        common = Some(match common {
            None => path,
            Some(old) => old.into_iter().filter(|queue| path.contains(queue)).collect(),
        });
    }
    common?.first().copied()
}

/// The child of a queue that a leaf is below; the leaf itself where the queue is not above it.
fn branch_of(cluster: &Cluster, leaf: QueueIdx, common: Option<QueueIdx>) -> QueueIdx {
    root_path(cluster, leaf).take_while(|queue| Some(*queue) != common).last().unwrap_or(leaf)
}
