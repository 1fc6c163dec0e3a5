//! Kinds of Kubernetes itself, and those that make one of them.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

const TEMPLATE: &str = "spec.template";

pub(super) fn deployment(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), of.name());
    let (template, count) = (of.template(TEMPLATE)?, of.count("spec.replicas", 1)?);
    below_deployment(of, &owner, &name, TEMPLATE, &template, count, Vec::new())
}

/// The ReplicaSet of a Deployment and its pods.
pub(super) fn below_deployment(
    of: &mut Expander<'_>,
    deployment: &OwnerReference,
    name: &str,
    path: &str,
    template: &Value,
    count: u32,
    labels: Vec<(&'static str, String)>,
) -> Result<(), Invalid> {
    let set = format!("{name}-xxxxxxxxxx");
    let owner = of.object(deployment, "apps/v1", "ReplicaSet", set.clone(), template.get("metadata"))?;
    let name = format!("{set}-{RANDOM}");
    of.add(Pods { owner: &owner, name, path, template, labels, annotations: Vec::new(), count })?;
    Ok(())
}

pub(super) fn replica_set(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let name = format!("{}-{RANDOM}", of.name());
    owned(of, name, "spec.replicas")
}

pub(super) fn stateful_set(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let name = format!("{}-0", of.name());
    owned(of, name, "spec.replicas")
}

/// As many pods as a field says, owned by the workload itself.
fn owned(of: &mut Expander<'_>, name: String, replicas: &str) -> Result<(), Invalid> {
    let (owner, template, count) = (of.as_owner(), of.template(TEMPLATE)?, of.count(replicas, 1)?);
    let (labels, annotations) = (Vec::new(), Vec::new());
    of.add(Pods { owner: &owner, name, path: TEMPLATE, template: &template, labels, annotations, count })?;
    Ok(())
}

pub(super) fn job(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let parallelism = of.count("spec.parallelism", 1)?;
    let completions = of.count("spec.completions", parallelism)?;
    let (owner, name) = (of.as_owner(), format!("{}-{RANDOM}", of.name()));
    let template = of.template(TEMPLATE)?;
    pods_of_job(of, &owner, name, TEMPLATE, &template, parallelism.min(completions))
}

fn pods_of_job(
    of: &mut Expander<'_>,
    owner: &OwnerReference,
    name: String,
    path: &str,
    template: &Value,
    count: u32,
) -> Result<(), Invalid> {
    let labels = vec![("batch.kubernetes.io/job-name", owner.name.clone())];
    of.add(Pods { owner, name, path, template, labels, annotations: Vec::new(), count })?;
    Ok(())
}

/// One run.
pub(super) fn cron_job(of: &mut Expander<'_>) -> Result<(), Invalid> {
    const JOB: &str = "spec.jobTemplate";
    let parallelism = of.count("spec.jobTemplate.spec.parallelism", 1)?;
    let completions = of.count("spec.jobTemplate.spec.completions", parallelism)?;
    let path = format!("{JOB}.spec.template");
    let (job, template) = (of.template(JOB)?, of.template(&path)?);
    let name = format!("{}-xxxxxxxx", of.name());
    let owner = of.as_owner();
    let owner = of.object(&owner, "batch/v1", "Job", name.clone(), job.get("metadata"))?;
    of.notes.push("one run is shown; each has a group of its own".to_owned());
    pods_of_job(of, &owner, format!("{name}-{RANDOM}"), &path, &template, parallelism.min(completions))
}

/// A notebook is a StatefulSet of one pod.
pub(super) fn notebook(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), of.name());
    let template = of.template(TEMPLATE)?;
    let owner = of.object(&owner, "apps/v1", "StatefulSet", name.clone(), None)?;
    // The controller copies the labels of the notebook to its pod.
    let own: Vec<(String, String)> = of.top.metadata.labels.clone().into_iter().flatten().collect();
    let labels = vec![("notebook-name", name.clone())];
    let pod = Pods {
        owner: &owner,
        name: format!("{name}-0"),
        path: TEMPLATE,
        template: &template,
        labels,
        annotations: Vec::new(),
        count: 1,
    };
    of.add(pod)?;
    if let Some(last) = of.pods.last_mut() {
        let labels = last.pod.metadata.labels.get_or_insert_default();
        for (key, value) in own {
            labels.entry(key).or_insert(value);
        }
    }
    Ok(())
}
