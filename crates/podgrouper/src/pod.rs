//! Pods on their own: a group for each, but for those of a Spark application, which share one.

use super::metadata::{Desired, TRAIN, Voices, Workload};
use super::{Error, text};
use kai_api::well_known::label;

/// The group of a pod without owners.
pub fn group(workload: &Workload<'_>) -> Result<Desired, Error> {
    let mut desired = workload.metadata(Voices::Top, TRAIN);
    let of_pod = |key| text(workload.pod, "labels", key);
    if let (Some(_), Some(application)) = (of_pod(label::SPARK_APP_NAME), of_pod(label::SPARK_APP_SELECTOR)) {
        application.clone_into(&mut desired.name);
    }
    Ok(desired)
}
