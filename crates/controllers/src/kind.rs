//! Names the custom resources that these controllers read and write.

use kai_runtime::kind::{ResourceKind, untyped};

/// Pod groups.
pub const POD_GROUP: ResourceKind = untyped("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", true);
/// Queues.
pub const QUEUE: ResourceKind = untyped("scheduling.run.ai", "v2", "Queue", "queues", false);
