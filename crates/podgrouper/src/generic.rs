//! Workloads of kinds without a grouping of their own: one group for all pods below the topmost owner.

use crate::Error;
use crate::metadata::{Desired, Sources, TRAIN, Workload};

/// The group of a pod whose topmost owner is of any kind.
pub fn group(workload: &Workload<'_>) -> Result<Desired, Error> {
    Ok(workload.metadata(Sources::AllOwners, TRAIN))
}
