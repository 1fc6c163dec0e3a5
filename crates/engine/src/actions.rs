//! The actions of a scheduling cycle.

pub(crate) mod allocate;
pub(crate) mod custom;
pub(crate) mod evict;
pub(crate) mod stale_gang_eviction;
pub(crate) mod time_limit;
