//! Workflows: Argo, Kubeflow Pipelines, Tekton, Spark.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::well_known::label;
use serde_json::{Value, json};

pub(super) fn argo(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), of.name());
    steps(of, &owner, &name, "spec")
}

/// A schedule of Kubeflow Pipelines makes Argo Workflows.
pub(super) fn scheduled(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), format!("{}-{RANDOM}", of.name()));
    let workflow = of.object(&owner, "argoproj.io/v1alpha1", "Workflow", name.clone(), None)?;
    steps(of, &workflow, &name, "spec.workflow.spec")
}

/// A pod for every template of a workflow that runs one.
fn steps(of: &mut Expander<'_>, owner: &OwnerReference, name: &str, spec: &str) -> Result<(), Invalid> {
    let of_workflow = |field: &str| of.top.field(&format!("{spec}.{field}")).map(Option::<&Value>::cloned);
    let (scheduler, class, shared) =
        (of_workflow("schedulerName")?, of_workflow("podPriorityClassName")?, of_workflow("podMetadata")?);
    let templates = of.top.list(&format!("{spec}.templates"))?.unwrap_or_default().to_vec();
    let runs = |template: &&Value| {
        ["container", "script", "containerSet"]
            .iter()
            .any(|field| template.get(field).is_some_and(Value::is_object))
    };
    for template in templates.iter().filter(runs) {
        let mut metadata = json!({"labels": {}, "annotations": {}});
        for source in [shared.as_ref(), template.get("metadata")].into_iter().flatten() {
            for field in ["labels", "annotations"] {
                for (key, value) in source.get(field).and_then(Value::as_object).into_iter().flatten() {
                    kai_object::set(&mut metadata, &[field, key], value.clone());
                }
            }
        }
        let own =
            |field: &str, shared: &Option<Value>| template.get(field).cloned().or_else(|| shared.clone());
        let step = template.get("name").and_then(Value::as_str).unwrap_or("step");
        let pod = json!({"metadata": metadata, "spec": {
            "schedulerName": own("schedulerName", &scheduler), "priorityClassName": own("priorityClassName", &class),
        }});
        of.add(Pods {
            owner,
            name: format!("{name}-{step}-{RANDOM}"),
            path: &format!("{spec}.templates"),
            template: &pod,
            labels: vec![("workflows.argoproj.io/workflow", name.to_owned())],
            annotations: Vec::new(),
            count: 1,
        })?;
    }
    of.notes.push("every template is shown once, however often the workflow runs it".to_owned());
    Ok(())
}

pub(super) fn task_run(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), of.name());
    task(of, &owner, &name, "spec.podTemplate")
}

pub(super) fn pipeline_run(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let tasks = of.top.list("spec.pipelineSpec.tasks")?.unwrap_or_default().to_vec();
    let names = tasks.iter().filter_map(|task| task.get("name").and_then(Value::as_str));
    let mut names: Vec<&str> = names.collect();
    if names.is_empty() {
        of.notes.push("one task is assumed, since the pipeline is not part of the run".to_owned());
        names.push("task");
    }
    let (owner, run) = (of.as_owner(), of.name());
    for task_name in names {
        let name = format!("{run}-{task_name}");
        let owner = of.object(&owner, "tekton.dev/v1", "TaskRun", name.clone(), None)?;
        task(of, &owner, &name, "spec.taskRunTemplate.podTemplate")?;
    }
    Ok(())
}

/// The pod of a task. Tekton copies the labels and annotations of a run to it.
fn task(of: &mut Expander<'_>, owner: &OwnerReference, name: &str, path: &str) -> Result<(), Invalid> {
    let template = of.top.field(path)?.cloned().unwrap_or_default();
    let metadata = &of.top.metadata;
    let pod = json!({
        "metadata": {"labels": metadata.labels, "annotations": metadata.annotations},
        "spec": {
            "schedulerName": template.get("schedulerName"), "priorityClassName": template.get("priorityClassName"),
        },
    });
    let labels = vec![("tekton.dev/taskRun", name.to_owned())];
    let (name, annotations) = (format!("{name}-pod"), Vec::new());
    of.add(Pods { owner, name, path, template: &pod, labels, annotations, count: 1 })?;
    Ok(())
}

/// The driver of a Spark application, which owns its executors.
pub(super) fn spark(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let (owner, name) = (of.as_owner(), of.name());
    let executors = of.count("spec.executor.instances", 1)?;
    let driver = spark_pod(of, &owner, format!("{name}-driver"), "driver", 1)?;
    spark_pod(of, &driver, format!("{name}-exec-1"), "executor", executors)?;
    Ok(())
}

fn spark_pod(
    of: &mut Expander<'_>,
    owner: &OwnerReference,
    name: String,
    role: &str,
    count: u32,
) -> Result<OwnerReference, Invalid> {
    let path = format!("spec.{role}");
    let spec = of.top.field(&path)?.cloned().unwrap_or_default();
    let template = spec.get("template").filter(|template| template.is_object()).cloned();
    let template = template.unwrap_or_else(|| {
        json!({
            "metadata": {"labels": spec.get("labels"), "annotations": spec.get("annotations")},
            "spec": {"schedulerName": spec.get("schedulerName"), "priorityClassName": spec.get("priorityClassName")},
        })
    });
    let labels = vec![
        (label::SPARK_APP_NAME, of.name()),
        (label::SPARK_APP_SELECTOR, format!("spark-{}", of.name())),
        ("spark-role", role.to_owned()),
    ];
    of.add(Pods { owner, name, path: &path, template: &template, labels, annotations: Vec::new(), count })
}
