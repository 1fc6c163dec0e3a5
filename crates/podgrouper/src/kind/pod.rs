//! Pods without owners: a group for each; pods of a Spark application share one.

use crate::error::Invalid;
use crate::objects::spark_application;
use crate::workload::{Desired, Sources, TRAIN, Workload};

#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    if let Some(application) = spark_application(&workload.pod.metadata) {
        application.clone_into(&mut desired.name);
        // Executors whose driver runs elsewhere have no owner, and each of them is its own topmost object.
        desired.is_shared = workload.owners.is_empty();
    }
    Ok(desired)
}
