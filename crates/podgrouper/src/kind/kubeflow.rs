//! Jobs of the Kubeflow training operator: the gang is `minAvailable`, else the sum of all replicas.

use crate::error::Invalid;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::well_known::label;

const MIN_AVAILABLE: &str = "spec.runPolicy.schedulingPolicy.minAvailable";

pub(crate) fn tf_job(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    group(workload, "tfReplicaSpecs", &[])
}

pub(crate) fn xgboost_job(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    group(workload, "xgbReplicaSpecs", &["Master", "Worker"])
}

pub(crate) fn jax_job(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    group(workload, "jaxReplicaSpecs", &["Worker"])
}

/// A delayed launcher is created when all workers are ready, so they cannot wait for it.
pub(crate) fn mpi_job(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    const REPLICAS: &str = "mpiReplicaSpecs";
    let mut desired = group(workload, REPLICAS, &["Launcher", "Worker"])?;
    let job = workload.top_object()?;
    if job.text("spec.launcherCreationPolicy")? != Some("WaitForWorkersReady") {
        return Ok(desired);
    }
    let pods =
        workload.cluster.pods_labelled(&desired.namespace, label::KUBEFLOW_JOB_NAME, &desired.owner.name);
    let has_launcher = pods.iter().any(|pod| {
        pod.metadata.label(label::KUBEFLOW_JOB_ROLE) == Some("launcher")
            && pod.metadata.deletion_timestamp.is_none()
    });
    if !has_launcher {
        let launchers = replicas(job, REPLICAS, "Launcher")?;
        desired.min_member = desired.min_member.saturating_sub(launchers);
    }
    Ok(desired)
}

fn group(workload: &Workload<'_>, field: &str, mandatory: &[&str]) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    desired.min_member = minimum(workload.top_object()?, field, mandatory)?;
    Ok(desired)
}

/// `minAvailable`, which skips all checks of the replicas, else the sum of all replicas.
pub(crate) fn minimum(job: &OwnerObject, field: &str, mandatory: &[&str]) -> Result<i32, Invalid> {
    if let Some(min) = min_available(job)? {
        return Ok(min);
    }
    let path = format!("spec.{field}");
    let roles = job.map(&path)?.ok_or_else(|| job.invalid(format!("`{path}` is missing")))?;
    if let Some(missing) = mandatory.iter().find(|role| !roles.contains_key(**role)) {
        return Err(job.invalid(format!("`{path}.{missing}` is missing")));
    }
    let mut sum = 0i32;
    for role in roles.keys() {
        let of_role = replicas(job, field, role)?;
        sum = sum
            .checked_add(of_role)
            .ok_or_else(|| job.invalid(format!("the replicas in `{path}` are together beyond 32 bits")))?;
    }
    Ok(sum)
}

pub(crate) fn min_available(job: &OwnerObject) -> Result<Option<i32>, Invalid> {
    job.int(MIN_AVAILABLE)
}

/// The replicas of a role, which must be at least one.
fn replicas(job: &OwnerObject, field: &str, role: &str) -> Result<i32, Invalid> {
    let path = format!("spec.{field}.{role}.replicas");
    let count = job.int(&path)?.unwrap_or(0);
    if count <= 0 {
        return Err(job.invalid(format!("`{path}` must be at least 1")));
    }
    Ok(count)
}
