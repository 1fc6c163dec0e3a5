//! What a cycle does, one action after the other.

pub(crate) mod allocate;
pub(crate) mod evict;
pub(crate) mod stale_gang_eviction;
