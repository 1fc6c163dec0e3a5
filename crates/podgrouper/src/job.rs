//! Jobs of `batch/v1`: one group for all pods of a job, with a minimum of one pod unless an annotation sets it.

use crate::Error;
use crate::metadata::{Desired, Sources, TRAIN, Workload, name_of};
use crate::objects::MetaExt;
use kai_api::well_known::annotation;
use kai_runtime::Key;

/// The group of a pod whose topmost owner is a job.
pub fn group(workload: &Workload<'_>) -> Result<Desired, Error> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    // Older versions of KAI made a group for each pod; a pod with such a group stays in it (`search-legacy-pg`).
    let legacy = name_of(workload.pod.metadata.name_str(), &desired.owner.uid);
    if workload.options.search_legacy_groups
        && (workload.group_exists)(&Key::new(&desired.namespace, &legacy))
    {
        desired.name = legacy;
        return Ok(desired);
    }
    if let Some(min) = workload.top().metadata.annotation(annotation::BATCH_MIN_MEMBER) {
        desired.min_member = min.parse().map_err(|_| Error::Annotation {
            kind: desired.owner.kind.clone(),
            name: desired.owner.name.clone(),
            annotation: annotation::BATCH_MIN_MEMBER,
            value: min.to_owned(),
            expected: "a whole number",
        })?;
    }
    Ok(desired)
}
