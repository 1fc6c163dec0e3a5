//! Inter-pod rules: affinity, anti-affinity, preferred affinity and topology spread.
//!
//! A *term* is a query over pods together with a domain: the value of a node label, or the node itself (for spread,
//! which counts by node). For each term and domain, the number of matching pods and of pods that carry the term is
//! updated as pods are placed and removed ([`Terms::place`], [`Terms::unplace`]), so that checking a node costs one
//! lookup per term and never visits pods.
//! Invariant: the counters are a function of the pods placed and not unplaced, for every term that is counted.
//! Not here: the nodes of pods, and node selectors.

mod counters;
mod label_sets;
pub(crate) mod selector;
mod spread;
#[cfg(test)]
mod tests;

pub use spread::{SpreadNode, SpreadState};

use crate::ids::{Idx, IndexVec, LabelSetIdx, NodeIdx, Sym};
use crate::input::SpecInput;
use crate::intern::Interner;
use crate::verdict::NodeRejection;
use counters::{Counters, Role, Step, domain_of};
use label_sets::LabelSets;
use rustc_hash::FxHashMap;
use selector::{Query, label};
use smallvec::SmallVec;
use spread::Spread;
use std::sync::Arc;

/// All terms of a cluster with their counters.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    query_by_value: FxHashMap<Query, QueryIdx>,
    of_query: IndexVec<QueryIdx, SmallVec<[TermIdx; 1]>>,
    known: IndexVec<TermIdx, Term>,
    label_sets: LabelSets,
    counters: Counters,
    /// Terms added after matching pods were placed, and not counted yet.
    uncounted: Vec<TermIdx>,
}

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct QueryIdx(u32);

/// A term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TermIdx(u32);

impl Idx for QueryIdx {
    fn new(position: usize) -> Self {
        Self(position as u32)
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Idx for TermIdx {
    fn new(position: usize) -> Self {
        Self(position as u32)
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Term {
    domain: Domain,
    counted: bool,
}

/// The domain of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    /// Equal values of a node label.
    Label(Sym),
    /// The node; releasing pods are not counted.
    Node,
}

/// The terms of one pod specification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermRefs(Option<Arc<Refs>>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Refs {
    /// Query of required affinity, all terms together.
    affinity: Option<QueryIdx>,
    /// The query over each topology key.
    affinity_terms: SmallVec<[TermIdx; 1]>,
    /// Required anti-affinity.
    anti: SmallVec<[TermIdx; 1]>,
    /// Preferred affinity (positive weights) and anti-affinity (negative weights).
    preferred: Vec<(TermIdx, i32)>,
    /// Topology spread.
    spread: Vec<Spread>,
}

/// A placed pod as terms see it.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The pod's labels and namespace.
    pub label_set: LabelSetIdx,
    /// The terms that the pod carries.
    pub terms: &'a TermRefs,
    /// The node.
    pub node: NodeIdx,
    /// The node's labels, sorted by key symbol.
    pub node_labels: &'a [(Sym, Sym)],
    /// Whether the pod is releasing.
    pub presence: Presence,
}

/// Whether a placed pod is releasing. Releasing pods count for affinity, but not for spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Not being deleted.
    #[default]
    Active,
    /// Terminating, or evicted in this cycle.
    Releasing,
}

impl TermRefs {
    /// No terms at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
    /// There are `DoNotSchedule` spread constraints.
    pub fn has_hard_spread(&self) -> bool {
        self.0.as_ref().is_some_and(|refs| refs.spread.iter().any(|s| s.hard))
    }
    /// There are `ScheduleAnyway` spread constraints.
    pub fn has_soft_spread(&self) -> bool {
        self.0.as_ref().is_some_and(|refs| refs.spread.iter().any(|s| !s.hard))
    }
    /// There is required affinity: evicting other pods can make a node infeasible.
    pub fn has_required_affinity(&self) -> bool {
        self.0.as_ref().is_some_and(|refs| refs.affinity.is_some())
    }
}

impl Terms {
    /// Resolves the terms of a specification.
    pub fn resolve(&mut self, spec: &SpecInput, names: &mut Interner) -> TermRefs {
        let none = spec.affinity.is_empty() && spec.anti_affinity.is_empty();
        if none && spec.preferred_affinity.is_empty() && spec.spread.is_empty() {
            return TermRefs::default();
        }
        let mut refs = Refs::default();
        if !spec.affinity.is_empty() {
            let query = self.query(Query::all_of(spec.affinity.iter(), names));
            refs.affinity = Some(query);
            for term in &spec.affinity {
                let key = names.intern(&term.topology_key);
                let term = self.term(query, Domain::Label(key));
                if !refs.affinity_terms.contains(&term) {
                    refs.affinity_terms.push(term);
                }
            }
        }
        let mut single = |term: &crate::input::AffinityTerm| {
            let query = self.query(Query::all_of(std::iter::once(term), names));
            self.term(query, Domain::Label(names.intern(&term.topology_key)))
        };
        refs.anti = spec.anti_affinity.iter().map(&mut single).collect();
        refs.preferred = spec.preferred_affinity.iter().map(|w| (single(&w.term), w.weight)).collect();
        refs.spread = spec.spread.iter().map(|s| Spread::resolve(s, self, names)).collect();
        TermRefs(Some(Arc::new(refs)))
    }

    /// The index of a label set in a namespace. Labels are sorted by key symbol.
    pub fn label_set(&mut self, namespace: Sym, labels: &[(Sym, Sym)]) -> LabelSetIdx {
        self.label_sets.intern(namespace, labels)
    }

    /// The labels of a set.
    pub fn labels(&self, set: LabelSetIdx) -> &[(Sym, Sym)] {
        self.label_sets.labels(set)
    }

    /// Whether every query matches both label sets or neither.
    pub fn matches_alike(&self, left: LabelSetIdx, right: LabelSetIdx) -> bool {
        self.label_sets.matched(left) == self.label_sets.matched(right)
    }

    /// Counts a pod placed on a node.
    pub fn place(&mut self, pod: &Placed<'_>) {
        self.count(pod, Step::In);
    }

    /// Removes a placed pod, given the same values.
    pub fn unplace(&mut self, pod: &Placed<'_>) {
        self.count(pod, Step::Out);
    }

    /// Some term was added after pods that match it: [`count_new`](Self::count_new) must run before the next query.
    pub fn has_uncounted(&self) -> bool {
        !self.uncounted.is_empty()
    }

    /// Counts placed pods for terms added after them. Requires every placed pod.
    pub fn count_new<'a>(&mut self, pods: impl Iterator<Item = Placed<'a>>) {
        for pod in pods {
            for &query in self.label_sets.matched(pod.label_set) {
                for &term in &self.of_query[query] {
                    let Term { domain, counted } = self.known[term];
                    if let (false, Some(domain)) = (counted, domain.of(&pod)) {
                        self.counters.count(term, domain, Role::Matching, Step::In);
                    }
                }
            }
        }
        for term in self.uncounted.drain(..) {
            self.known[term].counted = true;
        }
    }

    /// Replaces all placed pods.
    pub fn recount<'a>(&mut self, pods: impl Iterator<Item = Placed<'a>>) {
        self.counters.clear();
        self.label_sets.clear_placed();
        for term in self.uncounted.drain(..) {
            self.known[term].counted = true;
        }
        for pod in pods {
            self.place(&pod);
        }
    }

    /// Whether [`filter`](Self::filter) can reject a node for a pod.
    pub fn affects(&self, label_set: LabelSetIdx, terms: &TermRefs) -> bool {
        let own = terms.0.as_ref().is_some_and(|refs| refs.affinity.is_some() || !refs.anti.is_empty());
        own || self.terms_matching(label_set).any(|term| self.counters.totals(term).anti > 0)
    }

    /// Whether [`score`](Self::score) can differ between nodes for a pod.
    pub fn scores(&self, label_set: LabelSetIdx, terms: &TermRefs) -> bool {
        let own = terms.0.as_ref().is_some_and(|refs| {
            refs.preferred.iter().any(|(term, _)| self.counters.totals(*term).matching > 0)
        });
        own || self.terms_matching(label_set).any(|term| self.counters.totals(term).preferring > 0)
    }

    /// Whether required affinity and anti-affinity, of the pod and of placed pods, allow a pod on a node.
    pub fn filter(
        &self,
        label_set: LabelSetIdx,
        terms: &TermRefs,
        node_labels: &[(Sym, Sym)],
    ) -> Result<(), NodeRejection> {
        debug_assert!(!self.has_uncounted(), "new terms are counted before they are queried");
        if let Some(refs) = &terms.0 {
            if !self.affinity_holds(label_set, refs, node_labels) {
                return Err(NodeRejection::PodAffinity);
            }
            let is_violated = |&term: &TermIdx| {
                self.domain_on(term, node_labels).is_some_and(|d| self.counters.cell(term, d).matching > 0)
            };
            if refs.anti.iter().any(is_violated) {
                return Err(NodeRejection::PodAntiAffinity);
            }
        }
        let refused = self.terms_matching(label_set).any(|term| {
            self.counters.totals(term).anti > 0
                && self.domain_on(term, node_labels).is_some_and(|d| self.counters.cell(term, d).anti > 0)
        });
        if refused { Err(NodeRejection::ExistingAntiAffinity) } else { Ok(()) }
    }

    /// Sum of the weights of preferred terms on a node, of the pod and of placed pods; higher is better.
    pub fn score(&self, label_set: LabelSetIdx, terms: &TermRefs, node_labels: &[(Sym, Sym)]) -> i64 {
        let cell = |term| self.domain_on(term, node_labels).map(|d| self.counters.cell(term, d));
        let own = terms.0.iter().flat_map(|refs| &refs.preferred);
        let own: i64 = own
            .filter_map(|&(term, weight)| cell(term).map(|c| i64::from(c.matching) * i64::from(weight)))
            .sum();
        let others = self.terms_matching(label_set).filter(|&term| self.counters.totals(term).preferring > 0);
        own + others.filter_map(|term| cell(term).map(|c| c.weight)).sum::<i64>()
    }

    /// Every required affinity term has matching pods in the node's domain; or no pod matches anywhere and the pod
    /// matches its own terms, as in kube-scheduler's `InterPodAffinity`.
    fn affinity_holds(&self, label_set: LabelSetIdx, refs: &Refs, node_labels: &[(Sym, Sym)]) -> bool {
        let Some(query) = refs.affinity else { return true };
        let mut found = true;
        for &term in &refs.affinity_terms {
            // A node without the topology label never satisfies the term, not even for the first pod.
            let Some(domain) = self.domain_on(term, node_labels) else { return false };
            found &= self.counters.cell(term, domain).matching > 0;
        }
        found
            || (refs.affinity_terms.iter().all(|&term| self.counters.totals(term).matching == 0)
                && self.label_sets.matches(label_set, query))
    }

    fn count(&mut self, pod: &Placed<'_>, step: Step) {
        self.label_sets.count_placed(pod.label_set, step);
        if self.known.is_empty() {
            return;
        }
        for &query in self.label_sets.matched(pod.label_set) {
            for &term in &self.of_query[query] {
                let Term { domain, counted } = self.known[term];
                if let (true, Some(domain)) = (counted, domain.of(pod)) {
                    self.counters.count(term, domain, Role::Matching, step);
                }
            }
        }
        let Some(refs) = &pod.terms.0 else { return };
        for &term in &refs.anti {
            if let Some(domain) = self.domain_on(term, pod.node_labels) {
                self.counters.count(term, domain, Role::Anti, step);
            }
        }
        for &(term, weight) in &refs.preferred {
            if let Some(domain) = self.domain_on(term, pod.node_labels) {
                self.counters.count(term, domain, Role::Preferring(weight), step);
            }
        }
    }

    /// The terms that match a label set.
    #[inline]
    fn terms_matching(&self, label_set: LabelSetIdx) -> impl Iterator<Item = TermIdx> {
        self.label_sets.matched(label_set).iter().flat_map(|&query| &self.of_query[query]).copied()
    }

    /// The domain of a term over a label, on a node.
    #[inline]
    fn domain_on(&self, term: TermIdx, node_labels: &[(Sym, Sym)]) -> Option<u32> {
        match self.known[term].domain {
            Domain::Label(key) => label(node_labels, key).map(domain_of),
            Domain::Node => None,
        }
    }

    fn query(&mut self, query: Query) -> QueryIdx {
        if let Some(&known) = self.query_by_value.get(&query) {
            return known;
        }
        self.of_query.push(SmallVec::new());
        let index = self.label_sets.add_query(query.clone());
        self.query_by_value.insert(query, index);
        index
    }

    fn term(&mut self, query: QueryIdx, domain: Domain) -> TermIdx {
        let known = self.of_query[query].iter().find(|&&term| self.known[term].domain == domain);
        if let Some(&known) = known {
            return known;
        }
        let counted = !self.label_sets.is_placed(query);
        let term = self.known.push(Term { domain, counted });
        self.of_query[query].push(term);
        self.counters.add_term();
        if !counted {
            self.uncounted.push(term);
        }
        term
    }
}

impl Domain {
    /// The domain that a placed pod is counted in.
    #[inline]
    fn of(self, pod: &Placed<'_>) -> Option<u32> {
        match self {
            Self::Label(key) => label(pod.node_labels, key).map(domain_of),
            Self::Node => (pod.presence == Presence::Active).then(|| domain_of(pod.node)),
        }
    }
}
