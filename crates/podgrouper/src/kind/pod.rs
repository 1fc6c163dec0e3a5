//! Pods without owners: a group for each; pods of a Spark application share one.

use crate::error::Invalid;
use crate::objects::MetaExt;
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::well_known::label;

#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let of_pod = |key| workload.pod.metadata.label(key);
    if let (Some(_), Some(application)) = (of_pod(label::SPARK_APP_NAME), of_pod(label::SPARK_APP_SELECTOR)) {
        application.clone_into(&mut desired.name);
    }
    Ok(desired)
}
