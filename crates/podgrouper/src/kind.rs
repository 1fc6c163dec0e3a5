//! The resource that this component writes.

use kai_runtime::kind::{ResourceKind, untyped};

/// Pod groups.
pub(crate) const POD_GROUP: ResourceKind =
    untyped("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", true);
