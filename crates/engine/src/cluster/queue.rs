//! A queue and its ledger.

use crate::ids::{QueueIdx, Sym};
use crate::input::TimeLimit;
use crate::share::Ledger;
use kai_units::{Span, Timestamp};

/// One queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The object exists; a name that is only referenced has a slot too.
    pub present: bool,
    /// Queue name.
    pub name: Sym,
    /// Name in messages.
    pub display: Sym,
    /// Position in name order.
    pub rank: u32,
    /// Parent queue as declared in the spec.
    pub declared_parent: Option<QueueIdx>,
    /// Parent queue, once all ancestors exist; none for a top-level queue.
    pub parent: Option<QueueIdx>,
    /// Children, in name order.
    pub children: Vec<QueueIdx>,
    /// All of its ancestors exist.
    pub connected: bool,
    /// When it was created.
    pub created: Timestamp,
    /// Minimum run time before preemption.
    pub preempt_min_runtime: Option<Span>,
    /// Minimum run time before reclaim.
    pub reclaim_min_runtime: Option<Span>,
    /// Maximum run time of its groups, and of groups below it that have no nearer one.
    pub time_limit: Option<TimeLimit>,
    /// Quotas, limits, weights, allocation and request.
    pub ledger: Ledger,
    /// Equal versions mean equal ledgers.
    pub version: u64,
}
