//! Deployments: every pod is a group of its own, so that replicas are placed and evicted one by one.

use crate::error::Invalid;
use crate::workload::{Desired, INFERENCE, Sources, Workload};

#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, INFERENCE);
    workload.make_per_pod(&mut desired);
    Ok(desired)
}
