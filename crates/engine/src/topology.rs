//! Domains of nodes that are near each other, and which of them can hold a group's pods together.
//!
//! A topology lists node labels from the outermost level (a zone) to the innermost (a host). Nodes with equal values
//! down to a level form a domain of that level; the domains form a tree below one root. Only nodes that carry all of
//! the labels take part.
//! The trees change with node labels and topologies alone. Free room is read from the ledgers at each question.
//! Not here: which members of a group ask, and in what order their answers are tried.

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
    /// In no particular order: there are few.
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

    /// Takes a topology away.
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
