//! Kinds without a rule of their own: one group for all pods below the topmost owner, with a minimum of one pod.

use crate::error::Invalid;
use crate::workload::{BUILD, Desired, INFERENCE, Sources, TRAIN, Workload};

/// Reads priority, preemptibility and delays from every owner, nearest first.
#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn all_owners(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    Ok(workload.metadata(Sources::AllOwners, TRAIN))
}

/// One group of the topmost owner, for kinds that are interactive by default.
#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn build(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    Ok(workload.metadata(Sources::TopOwner, BUILD))
}

/// One group of the topmost owner, for kinds that serve by default.
#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn inference(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    Ok(workload.metadata(Sources::TopOwner, INFERENCE))
}
