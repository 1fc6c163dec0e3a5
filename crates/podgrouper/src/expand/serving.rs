//! Kinds that serve: Knative Services, Seldon Core, virtual machines.

use super::{Expander, Pods, RANDOM, builtin};
use crate::error::Invalid;
use kai_api::well_known::{annotation, label};
use serde_json::{Value, json};

/// The first Revision of the service.
pub(super) fn knative(of: &mut Expander<'_>) -> Result<(), Invalid> {
    const TEMPLATE: &str = "spec.template";
    const API: &str = "serving.knative.dev/v1";
    let template = of.template(TEMPLATE)?;
    let (owner, name) = (of.as_owner(), of.name());
    let configuration = of.object(&owner, API, "Configuration", name.clone(), None)?;
    let revision = format!("{name}-00001");
    let owner = of.object(&configuration, API, "Revision", revision.clone(), template.get("metadata"))?;
    let deployment = format!("{revision}-deployment");
    let owner = of.object(&owner, "apps/v1", "Deployment", deployment.clone(), None)?;
    let annotations = template.pointer("/metadata/annotations");
    let scale = annotations.and_then(|all| all.get(annotation::KNATIVE_MIN_SCALE)).and_then(Value::as_str);
    let count = scale.and_then(|text| text.parse().ok()).unwrap_or(1);
    let labels = vec![(label::KNATIVE_REVISION, revision)];
    builtin::below_deployment(of, &owner, &deployment, TEMPLATE, &template, count, labels)
}

/// A Deployment for every component of every predictor.
pub(super) fn seldon(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let owner = of.as_owner();
    let predictors = of.top.list("spec.predictors")?.unwrap_or_default().to_vec();
    for (at, predictor) in predictors.iter().enumerate() {
        let replicas = predictor.get("replicas").and_then(Value::as_u64).unwrap_or(1);
        let components =
            predictor.get("componentSpecs").and_then(Value::as_array).cloned().unwrap_or_default();
        for (index, component) in components.iter().enumerate() {
            let path = format!("spec.predictors[{at}].componentSpecs[{index}]");
            let predictor = predictor.get("name").and_then(Value::as_str).unwrap_or_default();
            let name = format!("{}-{predictor}-{index}", of.name());
            let deployment = of.object(&owner, "apps/v1", "Deployment", name.clone(), None)?;
            let count = u32::try_from(replicas).unwrap_or(u32::MAX);
            builtin::below_deployment(of, &deployment, &name, &path, component, count, Vec::new())?;
        }
    }
    Ok(())
}

/// The pod that runs the machine has its labels and annotations.
pub(super) fn machine_instance(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), format!("virt-launcher-{}-{RANDOM}", of.name()));
    let metadata = &of.top.metadata;
    let field = |path: &str| of.top.field(path).map(|value| value.cloned().unwrap_or_default());
    let template = json!({
        "metadata": {"labels": metadata.labels, "annotations": metadata.annotations},
        "spec": {
            "schedulerName": field("spec.schedulerName")?, "priorityClassName": field("spec.priorityClassName")?,
        },
    });
    let (path, labels, annotations) = ("spec", Vec::new(), Vec::new());
    of.add(Pods { owner: &owner, name, path, template: &template, labels, annotations, count: 1 })?;
    Ok(())
}
