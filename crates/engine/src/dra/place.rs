//! Node selectors of devices and allocations, resolved to symbols.

use crate::class::NodeTerms;
use crate::ids::Sym;
use crate::input::{NodeTerm, SliceNodes};
use crate::intern::Interner;
use smallvec::SmallVec;
use std::sync::Arc;

/// A node as selectors see it.
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
    /// Nowhere: its slice does not specify it.
    Nowhere,
}

impl Place {
    /// Resolves the location of a slice or device.
    pub fn build(nodes: &SliceNodes, names: &mut Interner) -> Self {
        match nodes {
            SliceNodes::Node(name) => Self::Node(names.intern(name)),
            SliceNodes::Selector(terms) => Self::Selected(Arc::new(Selector::build(terms, names))),
            SliceNodes::All => Self::Everywhere,
            SliceNodes::PerDevice => Self::Nowhere,
        }
    }
    /// Whether a device at this location can be used from a node.
    pub fn reaches(&self, node: &NodeView<'_>) -> bool {
        match self {
            Self::Node(name) => *name == node.name,
            Self::Selected(selector) => selector.matches(node),
            Self::Everywhere => true,
            Self::Nowhere => false,
        }
    }
}

/// Where an allocation can be used: all conditions must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    node: Option<Sym>,
    selectors: SmallVec<[Arc<Selector>; 1]>,
}

impl Usable {
    /// Nodes that match any term; an empty list means all nodes.
    pub fn by_terms(terms: &[NodeTerm], names: &mut Interner) -> Self {
        let mut usable = Self::default();
        if !terms.is_empty() {
            usable.selectors.push(Arc::new(Selector::build(terms, names)));
        }
        usable
    }
    /// Restricts to nodes from which a device can be used.
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
    /// The only node it can be used from, if its devices determine one.
    pub fn node(&self) -> Option<Sym> {
        self.node
    }
}
