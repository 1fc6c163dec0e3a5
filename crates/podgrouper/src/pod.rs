//! Pods without owners: a group for each; pods of a Spark application share one.

use crate::Error;
use crate::metadata::{Desired, Sources, TRAIN, Workload};
use crate::objects::MetaExt;
use kai_api::well_known::label;

/// The group of a pod without owners.
pub fn group(workload: &Workload<'_>) -> Result<Desired, Error> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let of_pod = |key| workload.pod.metadata.label(key);
    if let (Some(_), Some(application)) = (of_pod(label::SPARK_APP_NAME), of_pod(label::SPARK_APP_SELECTOR)) {
        application.clone_into(&mut desired.name);
    }
    Ok(desired)
}
