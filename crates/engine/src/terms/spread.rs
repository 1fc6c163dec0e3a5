//! Pod topology spread constraints: skew of matching pods over the domains that a pod may use.
//!
//! The nodes of the domains depend on the pod (its node affinity and tolerations), so that the sums are computed per
//! placement, from counters by node.

use super::counters::domain_of;
use super::selector::{Query, label};
use super::{Domain, TermIdx, TermRefs, Terms};
use crate::ids::{LabelSetIdx, NodeIdx, Sym};
use crate::input::SpreadConstraint;
use crate::intern::Interner;
use crate::verdict::NodeRejection;
use rustc_hash::FxHashMap;

/// Maximum of [`SpreadState::soft_score`].
pub(crate) const SOFT_SPREAD_WEIGHT: f64 = 0.3;

/// One constraint of a specification.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    /// Counts the matching pods by node.
    by_node: TermIdx,
    /// Matches the pods that count.
    query: super::QueryIdx,
    key: Sym,
    max_skew: i64,
    min_domains: u32,
    honor_affinity: bool,
    honor_taints: bool,
    /// `DoNotSchedule`; otherwise a preference.
    pub(super) hard: bool,
}

/// A node, as spread sees it.
#[derive(Clone, Copy, Debug)]
pub struct SpreadNode<'a> {
    /// The node.
    pub node: NodeIdx,
    /// Its labels, sorted by key symbol.
    pub labels: &'a [(Sym, Sym)],
    /// The pod's node selector and node affinity accept it.
    pub affinity: bool,
    /// The pod tolerates its taints.
    pub taints: bool,
}

/// Spread constraints of one pod with the current counts.
#[derive(Clone, Debug, Default)]
pub struct SpreadState {
    hard: Vec<Level>,
    soft: Vec<Level>,
}

/// One constraint with the pods in each of its domains.
#[derive(Clone, Debug)]
struct Level {
    spread: Spread,
    /// The pod matches its own selector.
    own: i64,
    slots: FxHashMap<Sym, usize>,
    counts: Vec<u32>,
    /// Minimum over the domains; none while there are fewer than `minDomains`.
    smallest: i64,
    /// Maximum over the domains.
    largest: u32,
}

impl Spread {
    pub(super) fn resolve(constraint: &SpreadConstraint, terms: &mut Terms, names: &mut Interner) -> Self {
        // Kubernetes counts no pod for a selector without requirements.
        let query = if constraint.selector.requirements.is_empty() {
            Query::nothing()
        } else {
            Query::in_namespace(&constraint.selector, &constraint.namespace, names)
        };
        let query = terms.query(query);
        Self {
            by_node: terms.term(query, Domain::Node),
            query,
            key: names.intern(&constraint.topology_key),
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.unwrap_or(1),
            honor_affinity: constraint.honor_affinity,
            honor_taints: constraint.honor_taints,
            hard: constraint.hard,
        }
    }

    fn admits(&self, node: &SpreadNode<'_>) -> bool {
        (node.affinity || !self.honor_affinity) && (node.taints || !self.honor_taints)
    }
}

impl Terms {
    /// Computes the counts of a pod's spread constraints over all nodes of the cluster.
    pub fn spread_state<'a>(
        &self,
        label_set: LabelSetIdx,
        terms: &TermRefs,
        nodes: impl Iterator<Item = SpreadNode<'a>>,
    ) -> SpreadState {
        let mut state = SpreadState::default();
        let Some(refs) = &terms.0 else { return state };
        for spread in &refs.spread {
            let level = Level {
                own: i64::from(self.label_sets.matches(label_set, spread.query)),
                spread: spread.clone(),
                slots: FxHashMap::default(),
                counts: Vec::new(),
                smallest: 0,
                largest: 0,
            };
            if spread.hard { state.hard.push(level) } else { state.soft.push(level) }
        }
        for node in nodes {
            for levels in [&mut state.hard, &mut state.soft] {
                // A node without one of the keys belongs to no domain of any constraint of that kind.
                if !levels.iter().all(|level| label(node.labels, level.spread.key).is_some()) {
                    continue;
                }
                for level in levels.iter_mut().filter(|level| level.spread.admits(&node)) {
                    let value = label(node.labels, level.spread.key).expect("all keys are there");
                    let here = self.counters.cell(level.spread.by_node, domain_of(node.node)).matching;
                    level.add(value, here);
                }
            }
        }
        state.hard.iter_mut().chain(&mut state.soft).for_each(Level::close);
        state
    }
}

impl SpreadState {
    /// Whether a node satisfies every `DoNotSchedule` constraint.
    pub fn allows(&self, node_labels: &[(Sym, Sym)]) -> Result<(), NodeRejection> {
        let kept = self.hard.iter().all(|level| {
            label(node_labels, level.spread.key)
                .is_some_and(|value| level.count(value) + level.own - level.smallest <= level.spread.max_skew)
        });
        if kept { Ok(()) } else { Err(NodeRejection::Spread) }
    }

    /// Score of the `ScheduleAnyway` constraints: 0.3 in empty domains, less in fuller ones, 0 in the fullest and on
    /// nodes without a key. Constraints have equal weights.
    pub fn soft_score(&self, node_labels: &[(Sym, Sym)]) -> f64 {
        let mut sum = 0.0;
        for level in &self.soft {
            let Some(value) = label(node_labels, level.spread.key) else { return 0.0 };
            sum += 1.0 - level.count(value) as f64 / f64::from(level.largest.max(1));
        }
        SOFT_SPREAD_WEIGHT * sum / self.soft.len().max(1) as f64
    }
}

impl Level {
    fn add(&mut self, value: Sym, pods: u32) {
        let slot = *self.slots.entry(value).or_insert_with(|| {
            self.counts.push(0);
            self.counts.len() - 1
        });
        self.counts[slot] += pods;
    }

    fn count(&self, value: Sym) -> i64 {
        self.slots.get(&value).map_or(0, |&slot| i64::from(self.counts[slot]))
    }

    fn close(&mut self) {
        self.largest = self.counts.iter().copied().max().unwrap_or(0);
        if self.counts.len() >= self.spread.min_domains as usize {
            self.smallest = self.counts.iter().copied().min().map_or(0, i64::from);
        }
    }
}
