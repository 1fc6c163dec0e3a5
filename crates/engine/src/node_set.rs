//! The nodes that a placing step may use.

use crate::cluster::Cluster;
use crate::ids::{Idx, NodeIdx};
use fixedbitset::FixedBitSet;
use std::sync::Arc;

/// All nodes, or some of them in name order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSet {
    /// Every node of the cluster.
    All,
    /// These, in name order.
    Some(Arc<[NodeIdx]>),
    /// These, for many steps in a row.
    Marked(Arc<Marked>),
}

/// Some nodes in name order, with a mark for each.
#[derive(Debug, PartialEq, Eq)]
pub struct Marked {
    /// The nodes.
    pub nodes: Arc<[NodeIdx]>,
    /// The same as bits.
    bits: FixedBitSet,
    /// Names the set: no other set of a cycle has this number.
    pub id: u64,
}

impl Marked {
    /// Marks nodes that are in name order.
    pub fn new(cluster: &Cluster, nodes: Arc<[NodeIdx]>, id: u64) -> Self {
        let mut bits = FixedBitSet::with_capacity(cluster.nodes.len());
        for node in nodes.iter() {
            bits.insert(node.index());
        }
        Self { nodes, bits, id }
    }
    /// Whether a node is one of them.
    #[inline]
    pub fn contains(&self, node: NodeIdx) -> bool {
        self.bits.contains(node.index())
    }
}

impl NodeSet {
    /// The nodes in name order.
    pub fn nodes<'a>(&'a self, cluster: &'a Cluster) -> &'a [NodeIdx] {
        match self {
            Self::All => &cluster.nodes_by_rank,
            Self::Some(nodes) => nodes,
            Self::Marked(marked) => &marked.nodes,
        }
    }
}
