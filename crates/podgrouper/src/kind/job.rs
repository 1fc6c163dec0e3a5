//! Jobs of `batch/v1`: one group for all pods of a job, with a minimum of one pod unless an annotation sets it.

use crate::error::Invalid;
use crate::objects::MetaExt;
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::name_of;
use kai_api::well_known::annotation;
use kai_runtime::Key;

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    // Older versions of KAI made a group for each pod; a pod with such a group stays in it (`search-legacy-pg`).
    let legacy = name_of(workload.pod.metadata.name_str(), &desired.owner.uid);
    if workload.options.search_legacy_groups
        && legacy != desired.name
        && workload.cluster.group(&Key::new(&desired.namespace, &legacy)).is_some()
    {
        desired.name = legacy;
        return Ok(desired);
    }
    if let Some(min) = workload.top().metadata.annotation(annotation::BATCH_MIN_MEMBER) {
        desired.min_member = workload.top().annotation_number(annotation::BATCH_MIN_MEMBER, min)?;
    }
    Ok(desired)
}
