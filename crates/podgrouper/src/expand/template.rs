//! Pod templates: reading one, and finding those of a kind that is not known.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use crate::objects::{OwnerObject, PodSummary};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kinds with pod templates that create no pods by themselves.
pub(super) const IGNORED: [&str; 9] = [
    "CustomResourceDefinition",
    "PodTemplate",
    "TrainingRuntime",
    "ClusterTrainingRuntime",
    "WorkflowTemplate",
    "ClusterWorkflowTemplate",
    "Task",
    "Pipeline",
    "PodGroup",
];

/// The depth below which no template is searched.
const DEPTH_MAX: usize = 16;

/// A pod of a template; an error is the rest of a path and the problem.
pub(super) fn pod(template: &Value) -> Result<PodSummary, String> {
    if !template.is_object() {
        return Err("` must be an object with `metadata` and `spec".to_owned());
    }
    texts(template.get("metadata"), "labels").map_err(|problem| format!(".metadata.labels`: {problem}"))?;
    let part =
        |name: &str| template.get(name).filter(|part| !part.is_null()).cloned().unwrap_or_else(|| json!({}));
    PodSummary::deserialize(json!({"metadata": part("metadata"), "spec": part("spec")}))
        .map_err(|error| format!("`: {error}; hint: values of labels and annotations are strings, in quotes if they look like numbers"))
}

/// The labels or annotations in metadata.
pub(super) fn texts(
    metadata: Option<&Value>,
    field: &str,
) -> Result<Option<BTreeMap<String, String>>, String> {
    let Some(value) = metadata.and_then(|metadata| metadata.get(field)).filter(|value| !value.is_null())
    else {
        return Ok(None);
    };
    BTreeMap::deserialize(value)
        .map(Some)
        .map_err(|error| format!("`{field}`: {error}; hint: put numbers and booleans in quotes"))
}

/// A template of a workload of any kind.
pub(super) struct Found {
    path: String,
    template: Value,
    /// `replicas` beside the template.
    replicas: Option<u32>,
}

/// The pod templates of a workload: what has `spec.containers`.
pub(super) fn search(top: &OwnerObject) -> Vec<Found> {
    let mut found = Vec::new();
    if let Some(spec) = top.data.get("spec") {
        collect("spec", spec, DEPTH_MAX, &mut found);
    }
    found
}

fn collect(path: &str, value: &Value, depth: usize, found: &mut Vec<Found>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                let path = format!("{path}.{name}");
                if below.pointer("/spec/containers").is_some_and(Value::is_array) {
                    let replicas = fields.get("replicas").and_then(Value::as_u64);
                    let replicas = replicas.and_then(|count| u32::try_from(count).ok());
                    found.push(Found { path, template: below.clone(), replicas });
                } else {
                    collect(&path, below, depth - 1, found);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(&format!("{path}[{index}]"), item, depth - 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Pods of all templates, owned by the workload itself.
pub(super) fn any_kind(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let owner = of.as_owner();
    let found = search(&of.top);
    let is_only = found.len() == 1;
    for (index, Found { path, template, replicas }) in found.into_iter().enumerate() {
        // Pods of different templates need different names.
        let number = if is_only { String::new() } else { format!("-{index}") };
        let name = format!("{}{number}-{RANDOM}", of.name());
        if replicas.is_none() {
            of.notes.push(format!("one pod of `{path}` is assumed"));
        }
        of.add(Pods {
            owner: &owner,
            name,
            path: &path,
            template: &template,
            labels: Vec::new(),
            annotations: Vec::new(),
            count: replicas.unwrap_or(1),
        })?;
    }
    Ok(())
}
