//! Node selector terms over labels and name: node affinity, and topology of volumes.

use crate::ids::Sym;
use crate::input::{NodeTerm, Requirement, RequirementOp};
use crate::intern::Interner;
use crate::terms::selector::label;

/// Terms of which one must match. The owner defines the meaning of an empty list; [`matches`](Self::matches) returns
/// false.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeTerms(Box<[Term]>);

/// Requirements that must all match; a term without any never matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Term {
    labels: Box<[(Sym, Test)]>,
    names: Box<[Test]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Test {
    In(Box<[Sym]>),
    NotIn(Box<[Sym]>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    Never,
}

impl NodeTerms {
    /// Resolves a list of terms.
    pub(crate) fn resolve(terms: &[NodeTerm], names: &mut Interner) -> Self {
        Self(terms.iter().map(|term| Term::resolve(term, names)).collect())
    }

    /// There is no term.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some term matches a node. Labels are sorted by key symbol.
    pub(crate) fn matches(&self, node_name: Sym, labels: &[(Sym, Sym)], names: &Interner) -> bool {
        self.0.iter().any(|term| term.holds(node_name, labels, names))
    }
}

impl Term {
    fn resolve(term: &NodeTerm, names: &mut Interner) -> Self {
        let labels = term.labels.iter().map(|r| (names.intern(&r.key), Test::resolve(r, names))).collect();
        Self { labels, names: term.names.iter().map(|r| Test::resolve(r, names)).collect() }
    }

    fn holds(&self, node_name: Sym, labels: &[(Sym, Sym)], names: &Interner) -> bool {
        !(self.labels.is_empty() && self.names.is_empty())
            && self.labels.iter().all(|(key, test)| test.holds(label(labels, *key), names))
            && self.names.iter().all(|test| test.holds(Some(node_name), names))
    }
}

impl Test {
    fn resolve(requirement: &Requirement, names: &mut Interner) -> Self {
        let mut symbols = |values: &[String]| {
            let mut symbols: Vec<Sym> = values.iter().map(|v| names.intern(v)).collect();
            symbols.sort_unstable();
            symbols.dedup();
            symbols.into_boxed_slice()
        };
        match &requirement.op {
            RequirementOp::In(values) => Self::In(symbols(values)),
            RequirementOp::NotIn(values) => Self::NotIn(symbols(values)),
            RequirementOp::Exists => Self::Exists,
            RequirementOp::DoesNotExist => Self::DoesNotExist,
            RequirementOp::Gt(bound) => Self::Gt(*bound),
            RequirementOp::Lt(bound) => Self::Lt(*bound),
            RequirementOp::Never => Self::Never,
        }
    }

    fn holds(&self, value: Option<Sym>, names: &Interner) -> bool {
        let number = || value.and_then(|v| names.text(v).parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|v| values.binary_search(&v).is_ok()),
            Self::NotIn(values) => value.is_none_or(|v| values.binary_search(&v).is_err()),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt(bound) => number().is_some_and(|n| n > *bound),
            Self::Lt(bound) => number().is_some_and(|n| n < *bound),
            Self::Never => false,
        }
    }
}
