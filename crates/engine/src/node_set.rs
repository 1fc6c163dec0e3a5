//! The nodes that a placing step may use.

use crate::cluster::Cluster;
use crate::ids::NodeIdx;
use std::sync::Arc;

/// All nodes, or some of them in name order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSet {
    /// Every node of the cluster.
    All,
    /// These, in name order.
    Some(Arc<[NodeIdx]>),
}

impl NodeSet {
    /// The nodes in name order.
    pub fn nodes<'a>(&'a self, cluster: &'a Cluster) -> &'a [NodeIdx] {
        match self {
            Self::All => &cluster.nodes_by_rank,
            Self::Some(nodes) => nodes,
        }
    }
}
