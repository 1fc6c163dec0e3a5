//! Clusters of KubeRay, and the jobs and services that make one.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use crate::fields;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::well_known::label;
use serde_json::{Value, json};

pub(super) fn cluster(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), of.name());
    pods(of, &owner, &name, "spec")
}

pub(super) fn job(of: &mut Expander<'_>) -> Result<(), Invalid> {
    const SUBMITTER: &str = "spec.submitterPodTemplate";
    let name = below(of, "spec.rayClusterSpec")?;
    kai_object::set(&mut of.top.data, &["status"], json!({"rayClusterName": name}));
    if of.top.field(SUBMITTER)?.is_some() {
        let template = of.template(SUBMITTER)?;
        let owner = of.as_owner();
        let name = of.name();
        let owner = of.object(&owner, "batch/v1", "Job", name.clone(), None)?;
        of.add(Pods {
            owner: &owner,
            name: format!("{name}-{RANDOM}"),
            path: SUBMITTER,
            template: &template,
            labels: Vec::new(),
            annotations: Vec::new(),
            count: 1,
        })?;
    }
    Ok(())
}

pub(super) fn service(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let name = below(of, "spec.rayClusterConfig")?;
    kai_object::set(&mut of.top.data, &["status"], json!({"pendingServiceStatus": {"rayClusterName": name}}));
    Ok(())
}

/// The cluster of a job or service, with its pods; its name.
fn below(of: &mut Expander<'_>, path: &str) -> Result<String, Invalid> {
    let spec = of.top.field(path)?.cloned();
    let spec =
        spec.ok_or_else(|| of.top.invalid(format!("`{path}` is missing; it must describe the RayCluster")))?;
    let name = format!("{}-{RANDOM}", of.name());
    let (owner, api_version) = (of.as_owner(), of.top.api_version.clone());
    let owner = of.object(&owner, &api_version, "RayCluster", name.clone(), None)?;
    if let Some(cluster) = of.between.last_mut() {
        cluster.data = json!({"spec": spec});
    }
    pods(of, &owner, &name, path)?;
    Ok(name)
}

fn pods(of: &mut Expander<'_>, owner: &OwnerReference, cluster: &str, spec: &str) -> Result<(), Invalid> {
    let path = format!("{spec}.headGroupSpec.template");
    let template = of.template(&path)?;
    add(of, owner, format!("{cluster}-head"), &path, &template, ("head", "headgroup"), 1)?;
    let groups = of.top.list(&format!("{spec}.workerGroupSpecs"))?.unwrap_or_default().to_vec();
    for (index, group) in groups.iter().enumerate() {
        let at = format!("{spec}.workerGroupSpecs[{index}]");
        let name = group.get("groupName").and_then(Value::as_str).unwrap_or_default();
        let number = |field: &str, default: i32| match group.get(field).filter(|value| !value.is_null()) {
            None => Ok(default),
            Some(value) => {
                fields::int(value, &format!("{at}.{field}")).map_err(|problem| of.top.invalid(problem))
            }
        };
        let replicas = number("replicas", number("minReplicas", 0)?)?;
        let hosts = number("numOfHosts", 1)?;
        let is_suspended = group.get("suspend").and_then(Value::as_bool) == Some(true);
        let pods = replicas.checked_mul(hosts).and_then(|pods| u32::try_from(pods).ok());
        let count = pods.ok_or_else(|| {
            of.top.invalid(format!("`{at}`: {replicas} replicas of {hosts} hosts are no number of pods"))
        })?;
        let path = format!("{at}.template");
        let missing = || of.top.invalid(format!("`{path}` is missing"));
        let template = group.get("template").ok_or_else(missing)?;
        if count > 0 && !is_suspended {
            let pod = format!("{cluster}-{name}-worker-{RANDOM}");
            add(of, owner, pod, &path, template, ("worker", name), count)?;
        }
    }
    Ok(())
}

fn add(
    of: &mut Expander<'_>,
    owner: &OwnerReference,
    name: String,
    path: &str,
    template: &Value,
    (node_type, group): (&str, &str),
    count: u32,
) -> Result<(), Invalid> {
    let labels = vec![
        ("ray.io/cluster", owner.name.clone()),
        (label::RAY_NODE_TYPE, node_type.to_owned()),
        (label::RAY_GROUP, group.to_owned()),
    ];
    of.add(Pods { owner, name, path, template, labels, annotations: Vec::new(), count })?;
    Ok(())
}
