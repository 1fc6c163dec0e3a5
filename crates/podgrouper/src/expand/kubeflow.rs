//! Jobs of the Kubeflow training operator and of the MPI operator.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::well_known::label;
use serde_json::Value;

/// A job whose roles are in a map of replica specs: the pods of a role are numbered.
pub(super) fn job(of: &mut Expander<'_>, field: &str) -> Result<(), Invalid> {
    let owner = of.as_owner();
    for role in roles(of, field)? {
        numbered(of, &owner, field, &role)?;
    }
    Ok(())
}

/// In v2beta1 the launcher is a Job.
pub(super) fn mpi_job(of: &mut Expander<'_>) -> Result<(), Invalid> {
    const FIELD: &str = "mpiReplicaSpecs";
    let owner = of.as_owner();
    for role in roles(of, FIELD)? {
        if role != "Launcher" {
            numbered(of, &owner, FIELD, &role)?;
            continue;
        }
        let name = format!("{}-launcher", of.name());
        let path = format!("spec.{FIELD}.{role}.template");
        let template = of.template(&path)?;
        let labels = labels(of, &role);
        let is_job = of.top.api_version.ends_with("/v2beta1");
        let (owner, name) = if is_job {
            let job = of.object(&owner, "batch/v1", "Job", name.clone(), None)?;
            (job, format!("{name}-{RANDOM}"))
        } else {
            (owner.clone(), name)
        };
        let (annotations, count) = (Vec::new(), 1);
        of.add(Pods { owner: &owner, name, path: &path, template: &template, labels, annotations, count })?;
    }
    if of.top.text("spec.launcherCreationPolicy")? == Some("WaitForWorkersReady") {
        of.notes.push("until the launcher exists, the minimum is without it".to_owned());
    }
    Ok(())
}

fn roles(of: &Expander<'_>, field: &str) -> Result<Vec<String>, Invalid> {
    let path = format!("spec.{field}");
    let roles = of.top.map(&path)?.map(|roles| roles.keys().cloned().collect::<Vec<_>>());
    roles.ok_or_else(|| of.top.invalid(format!("`{path}` is missing")))
}

fn labels(of: &Expander<'_>, role: &str) -> Vec<(&'static str, String)> {
    let role = role.to_lowercase();
    let mut labels =
        vec![(label::KUBEFLOW_JOB_NAME, of.name()), (label::KUBEFLOW_REPLICA_TYPE, role.clone())];
    if of.top.kind == "MPIJob" || role == "master" {
        labels.push((label::KUBEFLOW_JOB_ROLE, role));
    }
    labels
}

/// The pods of a role.
fn numbered(of: &mut Expander<'_>, owner: &OwnerReference, field: &str, role: &str) -> Result<(), Invalid> {
    let path = format!("spec.{field}.{role}.template");
    let template: Value = of.template(&path)?;
    for index in 0..of.count(&format!("spec.{field}.{role}.replicas"), 1)? {
        let mut labels = labels(of, role);
        labels.push((label::KUBEFLOW_REPLICA_INDEX, index.to_string()));
        let name = format!("{}-{}-{index}", of.name(), role.to_lowercase());
        let (annotations, count) = (Vec::new(), 1);
        of.add(Pods { owner, name, path: &path, template: &template, labels, annotations, count })?;
    }
    Ok(())
}
