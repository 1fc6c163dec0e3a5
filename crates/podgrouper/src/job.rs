//! Jobs of `batch`: one group for all pods of a job, which start one by one unless the job names a minimum.

use super::metadata::{Desired, TRAIN, Voices, Workload, name_of};
use super::{Error, text};
use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::kind::Key;

/// The group of a pod whose topmost owner is a job.
pub fn group(workload: &Workload<'_>) -> Result<Desired, Error> {
    let mut desired = workload.metadata(Voices::Top, TRAIN);
    // Older versions made a group for each pod; a pod that is in such a group stays in it.
    let alone = name_of(object::name(workload.pod), &desired.owner.uid);
    if workload.options.search_legacy_groups && (workload.group_exists)(&Key::new(&desired.namespace, &alone))
    {
        desired.name = alone;
        return Ok(desired);
    }
    if let Some(min) = text(workload.top(), "annotations", annotation::BATCH_MIN_MEMBER) {
        desired.min_member = min.parse().map_err(|_| Error::Annotation {
            kind: desired.owner.kind.clone(),
            name: desired.owner.name.clone(),
            annotation: annotation::BATCH_MIN_MEMBER,
            text: min.to_owned(),
            wanted: "a whole number",
        })?;
    }
    Ok(desired)
}
