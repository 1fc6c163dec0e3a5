//! Example: groups the pods of a custom resource `RenderJob`, a gang of one leader and `spec.workers` workers.
//!
//! A RenderJob must be able to start as a whole. Its pods have the label `role`, `leader` or `worker`.

use kai_api::pod_group::SubGroup;
use kai_podgrouper::objects::MetaExt;
use kai_podgrouper::workload::{Desired, Sources, TRAIN, Workload};
use kai_podgrouper::{Invalid, OwnKind, OwnRule};

/// The rule of `render.example.com/v1`, kind `RenderJob`.
pub struct RenderJobs;

const WORKERS: &str = "spec.workers";

impl OwnRule for RenderJobs {
    fn kind(&self) -> OwnKind {
        OwnKind { group: "render.example.com", version: Some("v1"), kind: "RenderJob" }
    }

    fn group(&self, workload: &Workload<'_>) -> Result<Desired, Invalid> {
        // Name, queue, priority and the other settings that all kinds share.
        let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
        let job = workload.top_object()?;
        let workers = job.int(WORKERS)?.filter(|workers| *workers > 0);
        let workers =
            workers.ok_or_else(|| job.invalid(format!("`{WORKERS}` must be a number from 1 up")))?;
        desired.min_member = workers.saturating_add(1);
        desired.sub_groups = vec![sub_group("leader", 1), sub_group("worker", workers)];
        let role = workload.pod.metadata.label("role").filter(|role| ["leader", "worker"].contains(role));
        let role =
            role.ok_or_else(|| workload.pod_invalid("its label `role` must be `leader` or `worker`"))?;
        desired.sub_group = Some(role.to_owned());
        Ok(desired)
    }
}

fn sub_group(name: &str, min: i32) -> SubGroup {
    SubGroup { name: name.to_owned(), min_member: Some(min), ..SubGroup::default() }
}
