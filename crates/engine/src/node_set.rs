//! The set of nodes available to a placement.

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
    /// A fixed set that many placements share.
    Marked(Arc<Marked>),
}

/// Nodes in name order, with a bit set for lookups.
#[derive(Debug, PartialEq, Eq)]
pub struct Marked {
    /// The nodes.
    pub nodes: Arc<[NodeIdx]>,
    /// The nodes as bits.
    bits: FixedBitSet,
    /// Identifies the set within a cycle.
    pub id: u64,
}

impl Marked {
    /// Builds the set from nodes in name order.
    pub fn new(cluster: &Cluster, nodes: Arc<[NodeIdx]>, id: u64) -> Self {
        let mut bits = FixedBitSet::with_capacity(cluster.nodes.len());
        for node in nodes.iter() {
            bits.insert(node.index());
        }
        Self { nodes, bits, id }
    }
    /// Whether the set contains a node.
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
