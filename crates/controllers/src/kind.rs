//! Names the custom resources that these controllers read and write.

use kai_runtime::kind::{Kind, kind};

/// Pod groups.
pub const POD_GROUP: Kind = kind("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", true);
/// Queues.
pub const QUEUE: Kind = kind("scheduling.run.ai", "v2", "Queue", "queues", false);
