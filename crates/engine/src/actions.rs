//! What a cycle does, one action after the other.

pub(crate) mod allocate;
pub(crate) mod evicting;
pub(crate) mod stale;
