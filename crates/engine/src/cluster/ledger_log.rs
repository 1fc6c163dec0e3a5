//! Log of nodes whose ledger changed.
//!
//! Indices over nodes (ranked lists, capacity sums) keep a cursor and re-read the nodes behind it.

use crate::ids::NodeIdx;

/// Changed nodes in order, with repetitions.
#[derive(Default)]
pub(crate) struct LedgerLog {
    nodes: Vec<NodeIdx>,
    /// Number of entries dropped from the front.
    dropped: usize,
}

impl LedgerLog {
    /// Appends a node whose ledger changed.
    #[inline]
    pub(crate) fn push(&mut self, node: NodeIdx) {
        self.nodes.push(node);
    }

    /// The cursor behind the last entry.
    pub(crate) fn end(&self) -> usize {
        self.dropped + self.nodes.len()
    }

    /// Nodes changed since a cursor; none when the log was trimmed beyond it.
    pub(crate) fn since(&self, cursor: usize) -> Option<&[NodeIdx]> {
        self.nodes.get(cursor.checked_sub(self.dropped)?..)
    }

    /// Drops all entries when there are more than `max`.
    pub(crate) fn trim(&mut self, max: usize) {
        if self.nodes.len() > max {
            self.dropped += self.nodes.len();
            self.nodes.clear();
        }
    }
}
