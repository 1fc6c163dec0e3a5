//! Where devices can be used: node selectors, resolved to symbols once and matched by symbol.

use crate::class::NodeTerms;
use crate::ids::Sym;
use crate::input::{NodeTerm, SliceNodes};
use crate::intern::Interner;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a selector reads of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// The node's name.
    pub name: Sym,
    /// Its labels, sorted by key symbol.
    pub labels: &'a [(Sym, Sym)],
    /// Texts, for numeric comparisons.
    pub names: &'a Interner,
}

/// Nodes that match any of some terms; no term matches no node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector(NodeTerms);

impl Selector {
    /// Resolves terms.
    pub fn build(terms: &[NodeTerm], names: &mut Interner) -> Self {
        Self(NodeTerms::resolve(terms, names))
    }
    /// Whether a node is selected.
    pub fn matches(&self, node: &NodeView<'_>) -> bool {
        self.0.matches(node.name, node.labels, node.names)
    }
}

/// Where one device can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On one node.
    Node(Sym),
    /// On nodes that a selector matches.
    Selected(Arc<Selector>),
    /// On every node.
    Everywhere,
    /// Nowhere: its slice does not tell.
    Nowhere,
}

impl Place {
    /// Resolves where a slice, or a device, says it is.
    pub fn build(nodes: &SliceNodes, names: &mut Interner) -> Self {
        match nodes {
            SliceNodes::Node(name) => Self::Node(names.intern(name)),
            SliceNodes::Selector(terms) => Self::Selected(Arc::new(Selector::build(terms, names))),
            SliceNodes::All => Self::Everywhere,
            SliceNodes::PerDevice => Self::Nowhere,
        }
    }
    /// Whether a device there can be used from a node.
    pub fn reaches(&self, node: &NodeView<'_>) -> bool {
        match self {
            Self::Node(name) => *name == node.name,
            Self::Selected(selector) => selector.matches(node),
            Self::Everywhere => true,
            Self::Nowhere => false,
        }
    }
}

/// Where an allocation can be used: everything said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    node: Option<Sym>,
    selectors: SmallVec<[Arc<Selector>; 1]>,
}

impl Usable {
    /// Where nodes match any of some terms; no term means everywhere.
    pub fn by_terms(terms: &[NodeTerm], names: &mut Interner) -> Self {
        let mut usable = Self::default();
        if !terms.is_empty() {
            usable.selectors.push(Arc::new(Selector::build(terms, names)));
        }
        usable
    }
    /// Narrows to where a device can be used.
    pub fn narrow(&mut self, place: &Place) {
        match place {
            Place::Node(name) => self.node = Some(*name),
            Place::Selected(selector) => {
                if !self.selectors.contains(selector) {
                    self.selectors.push(Arc::clone(selector));
                }
            }
            Place::Everywhere | Place::Nowhere => {}
        }
    }
    /// Whether the allocation can be used from a node.
    pub fn reaches(&self, node: &NodeView<'_>) -> bool {
        self.node.is_none_or(|name| name == node.name) && self.selectors.iter().all(|s| s.matches(node))
    }
    /// The one node it can be used from, where that follows from its devices.
    pub fn node(&self) -> Option<Sym> {
        self.node
    }
}
