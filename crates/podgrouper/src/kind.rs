//! The resource that this component writes.

use kai_runtime::kind::{Kind, kind};

/// Pod groups.
pub(crate) const POD_GROUP: Kind = kind("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", true);
