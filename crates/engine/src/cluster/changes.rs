//! Which parts of a cluster changed since derived values were last refreshed.

use super::LedgerLog;
use crate::ids::{GroupIdx, LabelSetIdx, NodeIdx, ShapeIdx, Sym};
use crate::input::Labels;

/// What changed since derived values were last refreshed.
#[derive(Default)]
pub(crate) struct Changes {
    /// Nodes were added or removed.
    pub(crate) node_set: bool,
    /// Nodes whose description changed.
    pub(crate) described: Vec<NodeIdx>,
    /// Nodes whose ledger must be derived again.
    pub(crate) ledgers: Vec<NodeIdx>,
    /// Groups whose pods or description changed.
    pub(crate) groups: Vec<GroupIdx>,
    /// The queue tree changed.
    pub(crate) queues: bool,
    /// Every group must be derived again.
    pub(crate) all_groups: bool,
    /// Affinity counters must be derived again.
    pub(crate) terms: bool,
    /// Topologies or node labels changed.
    pub(crate) topologies: bool,
    /// Device slices, classes or claims changed.
    pub(crate) devices: bool,
    /// Every ledger that changed, for indices over nodes.
    pub(crate) ledger_log: LedgerLog,
    /// The shape of the last pod: pods of one group usually share it.
    pub(crate) last_shape: Option<ShapeIdx>,
    /// The label set of the last pod, likewise.
    pub(crate) last_labels: Option<LastLabels>,
}

/// A pod's labels and the set they were interned as.
pub(crate) struct LastLabels {
    pub(crate) namespace: Sym,
    pub(crate) labels: Labels,
    pub(crate) set: LabelSetIdx,
}
