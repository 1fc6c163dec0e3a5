//! What a cycle does, one action after the other.

pub(crate) mod allocate;
