//! Input of a queue: the fields that scheduling rules read.

use super::TimeLimit;
use crate::resource::PerResource;
use kai_units::{Span, Timestamp};

/// One queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueInput {
    /// Queue name.
    pub name: String,
    /// Name used in messages, where it differs.
    pub display_name: Option<String>,
    /// The parent queue, or none for a top-level queue.
    pub parent: Option<String>,
    /// Higher is served first.
    pub priority: i32,
    /// When the queue was created.
    pub created: Timestamp,
    /// CPU in millicores.
    pub cpu: QueueShare,
    /// Memory in bytes.
    pub memory: QueueShare,
    /// GPUs in millionths of a device.
    pub gpu: QueueShare,
    /// Minimum run time before a job of this queue may be preempted.
    pub preempt_min_runtime: Option<Span>,
    /// Minimum run time before a job of this queue may be reclaimed.
    pub reclaim_min_runtime: Option<Span>,
    /// Maximum run time of groups of this queue.
    pub time_limit: Option<TimeLimit>,
    /// Historical usage (cpu, memory, gpu), each as a share of the cluster in the usage window.
    pub usage: PerResource<f64>,
}

/// Entitlement of a queue to one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueShare {
    /// Guaranteed amount; `None` is unlimited.
    pub quota: Option<i64>,
    /// Ceiling; `None` is unlimited.
    pub limit: Option<i64>,
    /// Weight in dividing the surplus.
    pub weight: f64,
}

impl Default for QueueShare {
    fn default() -> Self {
        Self { quota: Some(0), limit: None, weight: 0.0 }
    }
}
