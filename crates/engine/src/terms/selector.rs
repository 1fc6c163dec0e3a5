//! Pod queries: one conjunction of label requirements, over some namespaces.
//!
//! Terms that must all match are merged into one [`Query`], so that required affinity is a single query. Equal
//! queries are equal values.

use crate::ids::Sym;
use crate::input::{AffinityTerm, LabelSelector, SelectorOp};
use crate::intern::Interner;
use smallvec::SmallVec;

/// The value of a label; labels are sorted by key symbol.
#[inline]
pub(crate) fn label(labels: &[(Sym, Sym)], key: Sym) -> Option<Sym> {
    labels.binary_search_by_key(&key, |(k, _)| *k).ok().map(|at| labels[at].1)
}

/// A query over labels and a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Query {
    /// Sorted; none means every namespace.
    namespaces: Option<Box<[Sym]>>,
    /// All must match; sorted, deduplicated.
    requirements: Box<[LabelRequirement]>,
}

/// A test on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LabelRequirement {
    key: Sym,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    /// Values are sorted.
    In(Box<[Sym]>),
    /// Values are sorted; a missing label passes.
    NotIn(Box<[Sym]>),
    Exists,
    DoesNotExist,
}

/// The index key of queries and label sets: a property that a label set must have for a query to match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Anchor {
    /// The namespace; none stands for any.
    pub(crate) namespace: Option<Sym>,
    /// A label; none stands for any labels.
    pub(crate) label: Option<LabelAnchor>,
}

/// A label by key and value, or by key alone.
type LabelAnchor = (Sym, Option<Sym>);

impl Anchor {
    /// Matches every label set.
    pub(super) fn is_any(self) -> bool {
        self.namespace.is_none() && self.label.is_none()
    }
}

/// Maximum of anchors per query; beyond it namespaces are omitted, to keep the index small.
const ANCHORS_MAX: usize = 16;

impl Query {
    /// Matches nothing.
    pub(crate) fn nothing() -> Self {
        Self { namespaces: Some(Box::default()), requirements: Box::default() }
    }

    /// Matches labels alone, in any namespace.
    pub(crate) fn of_labels(selector: &LabelSelector, names: &mut Interner) -> Self {
        Self { namespaces: None, requirements: requirements(std::iter::once(selector), names) }
    }

    /// Matches labels in one namespace.
    pub(super) fn in_namespace(selector: &LabelSelector, namespace: &str, names: &mut Interner) -> Self {
        let namespace = names.intern(namespace);
        Self {
            namespaces: Some(Box::new([namespace])),
            requirements: requirements(std::iter::once(selector), names),
        }
    }

    /// Matches what every one of these terms selects.
    pub(super) fn all_of<'a>(
        terms: impl Iterator<Item = &'a AffinityTerm> + Clone,
        names: &mut Interner,
    ) -> Self {
        if terms.clone().any(|t| t.selector.is_none()) {
            return Self::nothing();
        }
        let mut namespaces: Option<Vec<Sym>> = None;
        for list in terms.clone().filter_map(|t| t.namespaces.as_ref()) {
            let list: Vec<Sym> = list.iter().map(|n| names.intern(n)).collect();
            namespaces = Some(match namespaces {
                None => list,
                Some(old) => old.into_iter().filter(|n| list.contains(n)).collect(),
            });
        }
        let namespaces = namespaces.map(sorted);
        if namespaces.as_ref().is_some_and(|n| n.is_empty()) {
            return Self::nothing();
        }
        Self { namespaces, requirements: requirements(terms.filter_map(|t| t.selector.as_ref()), names) }
    }

    /// Whether it matches labels in a namespace.
    pub(super) fn matches(&self, namespace: Sym, labels: &[(Sym, Sym)]) -> bool {
        self.namespaces.as_ref().is_none_or(|n| n.binary_search(&namespace).is_ok())
            && self.matches_labels(labels)
    }

    /// Whether it matches labels, regardless of the namespace.
    pub(crate) fn matches_labels(&self, labels: &[(Sym, Sym)]) -> bool {
        self.requirements.iter().all(|need| {
            let value = label(labels, need.key);
            match &need.test {
                Test::In(values) => value.is_some_and(|v| values.binary_search(&v).is_ok()),
                Test::NotIn(values) => value.is_none_or(|v| values.binary_search(&v).is_err()),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }

    /// The anchors that index the query: every matching label set has exactly one of them.
    pub(crate) fn anchors(&self) -> Vec<Anchor> {
        let labels = self.label_anchors();
        match &self.namespaces {
            Some(namespaces) if namespaces.len() * labels.len() <= ANCHORS_MAX || labels[..] == [None] => {
                namespaces
                    .iter()
                    .flat_map(|&n| labels.iter().map(move |&label| Anchor { namespace: Some(n), label }))
                    .collect()
            }
            Some(_) | None => labels.iter().map(|&label| Anchor { namespace: None, label }).collect(),
        }
    }

    /// The anchors that index matching label sets: by label if the query has a selective one, else by namespace.
    pub(super) fn set_anchors(&self) -> Vec<Anchor> {
        let labels = self.label_anchors();
        match &self.namespaces {
            Some(namespaces) if labels[..] == [None] => {
                namespaces.iter().map(|&n| Anchor { namespace: Some(n), label: None }).collect()
            }
            Some(_) | None => labels.iter().map(|&label| Anchor { namespace: None, label }).collect(),
        }
    }

    /// The most selective label: fewest values of an `In`, else a key that must exist, else none.
    fn label_anchors(&self) -> SmallVec<[Option<LabelAnchor>; 2]> {
        let fewest = self.requirements.iter().filter_map(|need| match &need.test {
            Test::In(values) => Some((need.key, values)),
            Test::NotIn(_) | Test::Exists | Test::DoesNotExist => None,
        });
        if let Some((key, values)) = fewest.min_by_key(|(_, values)| values.len()) {
            return values.iter().map(|&value| Some((key, Some(value)))).collect();
        }
        let exists = self.requirements.iter().find(|need| need.test == Test::Exists);
        SmallVec::from_slice(&[exists.map(|need| (need.key, None))])
    }
}

fn requirements<'a>(
    selectors: impl Iterator<Item = &'a LabelSelector>,
    names: &mut Interner,
) -> Box<[LabelRequirement]> {
    let mut requirements: Vec<LabelRequirement> = Vec::new();
    for (key, op) in selectors.flat_map(|s| &s.requirements) {
        let key = names.intern(key);
        let mut symbols = |values: &[String]| sorted(values.iter().map(|v| names.intern(v)).collect());
        let test = match op {
            SelectorOp::In(values) => Test::In(symbols(values)),
            SelectorOp::NotIn(values) => Test::NotIn(symbols(values)),
            SelectorOp::Exists => Test::Exists,
            SelectorOp::DoesNotExist => Test::DoesNotExist,
        };
        requirements.push(LabelRequirement { key, test });
    }
    sorted(requirements)
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Box<[T]> {
    items.sort_unstable();
    items.dedup();
    items.into_boxed_slice()
}
