//! Topology-aware placement: domains of nodes, and which of them can hold a group's pods.
//!
//! A topology lists node labels from the outermost level (a zone) to the innermost (a host). Nodes with equal values
//! down to a level form a domain of that level; the domains form a tree below one root. Nodes without all of the
//! labels are not part of it. The trees change with node labels and topologies only. Free capacity is read from the
//! ledgers for each query.
//! Not here: which members of a group have constraints, and the order in which candidates are tried.

mod candidates;
mod demand;
mod free_capacity;
#[cfg(test)]
mod tests;
mod tree;

pub use candidates::{Candidates, Levels, NodeScores, Request, candidates, measure};
pub use demand::Demand;
pub use free_capacity::{FreeCapacity, Tightness};
pub use tree::{Domain, Topology};

use crate::cluster::node::Node;
use crate::ids::{IndexVec, NodeIdx, Sym};
use crate::input::TopologyInput;
use crate::intern::Interner;

/// The topologies of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Topologies {
    /// In no particular order; there are few.
    list: Vec<Topology>,
}

impl Topologies {
    /// Adds or replaces a topology; it has no nodes until [`rebuild`](Self::rebuild).
    pub fn set(&mut self, input: &TopologyInput, names: &mut Interner) {
        let name = names.intern(&input.name);
        let levels = input.levels.iter().map(|level| names.intern(level)).collect();
        self.list.retain(|topology| topology.name() != name);
        self.list.push(Topology::new(name, levels));
    }

    /// Removes a topology.
    pub fn remove(&mut self, name: &str, names: &Interner) {
        if let Some(name) = names.find(name) {
            self.list.retain(|topology| topology.name() != name);
        }
    }

    /// Sorts the nodes into domains; `by_rank` lists the nodes that count, in name order.
    pub fn rebuild(&mut self, nodes: &IndexVec<NodeIdx, Node>, by_rank: &[NodeIdx], names: &Interner) {
        for topology in &mut self.list {
            topology.rebuild(by_rank, |node, label| nodes[node].label(label), names);
        }
    }

    /// A topology by name.
    pub fn get(&self, name: Sym) -> Option<&Topology> {
        self.list.iter().find(|topology| topology.name() == name)
    }
}
