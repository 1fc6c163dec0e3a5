//! Jobs of Run:ai: a group for the pods whose names differ in their last part only.

use crate::error::Invalid;
use crate::objects::MetaExt;
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::name_of;
use kai_runtime::Key;
use serde_json::Value;

#[expect(clippy::unnecessary_wraps, reason = "the rules of the table can fail")]
pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let (pod, uid) = (workload.pod.metadata.name_str(), desired.owner.uid.clone());
    if workload.options.search_legacy_groups
        && let Some(job) = workload.owners.last()
    {
        let parallelism = job.data.pointer("/spec/parallelism").and_then(Value::as_i64);
        let is_parallel = parallelism.is_some_and(|parallelism| parallelism > 1);
        let legacy = name_of(if is_parallel { pod } else { &desired.owner.name }, &uid);
        if workload.cluster.group(&Key::new(&desired.namespace, &legacy)).is_some() {
            desired.name = legacy;
            return Ok(desired);
        }
    }
    desired.name = name_of(pod.rsplit_once('-').map_or(pod, |(stem, _)| stem), &uid);
    Ok(desired)
}
