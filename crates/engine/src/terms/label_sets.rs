//! Distinct label sets of pods, and which queries match each of them.
//!
//! An [`Anchor`] indexes queries and label sets, in any order of arrival, so that a thousand jobs with their own
//! label and term cost a thousand lookups and not a million comparisons.
//! Invariant: `matched` of a set holds exactly the queries that match it, ascending.

use super::QueryIdx;
use super::counters::Step;
use super::selector::{Anchor, Query};
use crate::ids::{Idx, IndexVec, LabelSetIdx, Sym};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// The label sets of all pods.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelSets {
    sets: IndexVec<LabelSetIdx, LabelSet>,
    by_hash: FxHashMap<u64, SmallVec<[LabelSetIdx; 1]>>,
    queries: IndexVec<QueryIdx, Query>,
    queries_by_anchor: FxHashMap<Anchor, Vec<QueryIdx>>,
    /// Filled from the first query on; filed by label, by key, and by namespace.
    sets_by_anchor: FxHashMap<Anchor, Vec<LabelSetIdx>>,
}

#[derive(Clone, Debug)]
struct LabelSet {
    namespace: Sym,
    labels: Box<[(Sym, Sym)]>,
    matched: SmallVec<[QueryIdx; 2]>,
    /// Pods with these labels that are on a node.
    placed: u32,
}

impl LabelSets {
    /// The index of a label set, created on first use.
    pub(super) fn intern(&mut self, namespace: Sym, labels: &[(Sym, Sym)]) -> LabelSetIdx {
        debug_assert!(labels.is_sorted_by_key(|(key, _)| *key), "labels are sorted by key symbol");
        let hash = FxBuildHasher.hash_one((namespace, labels));
        let mut known = self.by_hash.get(&hash).into_iter().flatten().copied();
        let same = |set: &LabelSet| set.namespace == namespace && *set.labels == *labels;
        if let Some(found) = known.find(|&set| same(&self.sets[set])) {
            return found;
        }
        let matched = self.queries_matching(namespace, labels);
        let set = self.sets.push(LabelSet { namespace, labels: labels.into(), matched, placed: 0 });
        self.by_hash.entry(hash).or_default().push(set);
        if !self.queries.is_empty() {
            self.file(set);
        }
        set
    }

    /// The labels of a set.
    pub(super) fn labels(&self, set: LabelSetIdx) -> &[(Sym, Sym)] {
        &self.sets[set].labels
    }

    /// Adds a new query.
    pub(super) fn add_query(&mut self, query: Query) -> QueryIdx {
        if self.queries.is_empty() {
            for set in self.sets.indices() {
                self.file(set);
            }
        }
        let index = QueryIdx::new(self.queries.len());
        for anchor in query.set_anchors() {
            if anchor.is_any() {
                self.sets.iter_mut().for_each(|set| set.offer(&query, index));
            } else {
                for &set in self.sets_by_anchor.get(&anchor).into_iter().flatten() {
                    self.sets[set].offer(&query, index);
                }
            }
        }
        for anchor in query.anchors() {
            self.queries_by_anchor.entry(anchor).or_default().push(index);
        }
        self.queries.push(query)
    }

    /// Whether some pod on a node matches a query.
    pub(super) fn is_placed(&self, query: QueryIdx) -> bool {
        let present = |set: &LabelSet| set.placed > 0 && set.matches(query);
        self.queries[query].set_anchors().into_iter().any(|anchor| {
            if anchor.is_any() {
                self.sets.iter().any(present)
            } else {
                self.sets_by_anchor.get(&anchor).into_iter().flatten().any(|&set| present(&self.sets[set]))
            }
        })
    }

    /// The queries that match a label set, ascending.
    #[inline]
    pub(super) fn matched(&self, set: LabelSetIdx) -> &[QueryIdx] {
        &self.sets[set].matched
    }

    /// Whether a query matches a label set.
    pub(super) fn matches(&self, set: LabelSetIdx, query: QueryIdx) -> bool {
        self.sets[set].matches(query)
    }

    /// Counts a placed or removed pod with these labels.
    #[inline]
    pub(super) fn count_placed(&mut self, set: LabelSetIdx, step: Step) {
        let placed = &mut self.sets[set].placed;
        *placed = step.apply(*placed);
    }

    /// Resets the counts of placed pods.
    pub(super) fn clear_placed(&mut self) {
        for set in &mut self.sets {
            set.placed = 0;
        }
    }

    fn queries_matching(&self, namespace: Sym, labels: &[(Sym, Sym)]) -> SmallVec<[QueryIdx; 2]> {
        let mut matched = SmallVec::new();
        if self.queries.is_empty() {
            return matched;
        }
        for namespace_or_any in [Some(namespace), None] {
            let of_label = labels.iter().flat_map(|&(k, v)| [Some((k, Some(v))), Some((k, None))]);
            for label in of_label.chain([None]) {
                let filed = self.queries_by_anchor.get(&Anchor { namespace: namespace_or_any, label });
                let fitting = filed.into_iter().flatten().copied();
                matched.extend(fitting.filter(|&q| self.queries[q].matches(namespace, labels)));
            }
        }
        matched.sort_unstable();
        matched
    }

    fn file(&mut self, set: LabelSetIdx) {
        let LabelSet { namespace, labels, .. } = &self.sets[set];
        let mut file = |anchor| self.sets_by_anchor.entry(anchor).or_default().push(set);
        file(Anchor { namespace: Some(*namespace), label: None });
        for &(key, value) in labels {
            file(Anchor { namespace: None, label: Some((key, Some(value))) });
            file(Anchor { namespace: None, label: Some((key, None)) });
        }
    }
}

impl LabelSet {
    fn matches(&self, query: QueryIdx) -> bool {
        self.matched.binary_search(&query).is_ok()
    }

    /// Adds the newest query if it matches.
    fn offer(&mut self, query: &Query, index: QueryIdx) {
        if query.matches(self.namespace, &self.labels) {
            self.matched.push(index);
        }
    }
}
