//! CronJobs: every run is a Job, and each Job is a group.

use crate::error::Invalid;
use crate::workload::{Desired, Sources, TRAIN, Workload};

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    // The pod's own first owner, which precedes the CronJob.
    let [job, .., _] = workload.owners else { return Err(no_job(workload)) };
    if job.kind != "Job" {
        return Err(no_job(workload));
    }
    let of_job = workload.below(std::slice::from_ref(job));
    Ok(of_job.metadata(Sources::TopOwner, TRAIN))
}

fn no_job(workload: &Workload<'_>) -> Invalid {
    workload.pod_invalid("its owner is a CronJob, which owns Jobs only; the owner must be a Job of it")
}
