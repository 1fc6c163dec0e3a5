//! Workloads of kinds that nobody knows more about: one group for all pods below the topmost owner.

use super::Error;
use super::metadata::{Desired, TRAIN, Voices, Workload};

/// The group of a pod whose topmost owner is of any kind.
pub fn group(workload: &Workload<'_>) -> Result<Desired, Error> {
    Ok(workload.metadata(Voices::All, TRAIN))
}
