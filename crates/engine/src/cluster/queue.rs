//! A queue and its ledger.

use crate::ids::{QueueIdx, Sym};
use crate::share::Ledger;
use kai_units::{Span, Timestamp};

/// One queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The object exists; a name that is only referred to has a slot too.
    pub present: bool,
    /// Its name.
    pub name: Sym,
    /// Name in messages.
    pub display: Sym,
    /// Position in name order.
    pub rank: u32,
    /// Parent queue, as told.
    pub declared_parent: Option<QueueIdx>,
    /// Parent queue; none for a top-level queue.
    pub parent: Option<QueueIdx>,
    /// Children, in name order.
    pub children: Vec<QueueIdx>,
    /// Its chain of parents is complete.
    pub connected: bool,
    /// When it was created.
    pub created: Timestamp,
    /// Minimum run time before preemption.
    pub preempt_min_runtime: Option<Span>,
    /// Minimum run time before reclaim.
    pub reclaim_min_runtime: Option<Span>,
    /// Quotas, limits, weights, and what is held and wanted.
    pub ledger: Ledger,
    /// Equal versions mean equal ledgers.
    pub version: u64,
}
