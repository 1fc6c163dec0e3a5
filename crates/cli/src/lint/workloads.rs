//! Rules for pods, in every kind of workload: those of admission, and names that do not exist.

use super::finding::{Finding, Level};
use super::gangs::{self, Pool};
use crate::documents::Document;
use kai_admission::pod;
use kai_api::spelling;
use kai_api::well_known::{annotation, label, name, priority_class, resource};
use kai_object as object;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Priority classes of every cluster.
const BUILT_IN_CLASSES: [&str; 6] = [
    "system-cluster-critical",
    "system-node-critical",
    priority_class::TRAIN,
    priority_class::BUILD_PREEMPTIBLE,
    priority_class::BUILD,
    priority_class::INFERENCE,
];

/// Depth below which no pod template is searched.
const DEPTH_MAX: usize = 16;

/// What the documents declare besides workloads.
struct Declared<'a> {
    queues: BTreeSet<&'a str>,
    parents: BTreeSet<&'a str>,
    classes: BTreeSet<&'a str>,
    pools: BTreeMap<String, Pool>,
    most_gpus_of_a_node: i64,
}

pub(super) fn check(documents: &[Document], findings: &mut Vec<Finding>) {
    let declared = declared(documents);
    for document in documents {
        if ["Queue", "Node", "PriorityClass", "Topology", ""].contains(&document.kind()) {
            continue;
        }
        let misspelt = |object: &Value| {
            let problems = spelling::check(object).into_iter();
            problems.map(|text| document.finding(Level::Warning, "key-misspelt", text)).collect::<Vec<_>>()
        };
        findings.extend(misspelt(&document.object));
        for pod in templates(document) {
            findings.extend(misspelt(&pod));
            check_pod(document, &pod, &declared, findings);
        }
        names(document, &declared, findings);
    }
    gangs::check(documents, &declared.pools, findings);
}

fn declared(documents: &[Document]) -> Declared<'_> {
    let of = |kind: &'static str| documents.iter().filter(move |document| document.kind() == kind);
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    let mut most_gpus_of_a_node = 0;
    for node in of("Node") {
        let amount = |resource: &str| {
            let allocatable = node.object.pointer("/status/allocatable").and_then(|all| all.get(resource));
            amount(allocatable.unwrap_or(&Value::Null))
        };
        let pool = object::meta(&node.object, "labels").and_then(|labels| labels.get(label::NODE_POOL));
        let pool = pools.entry(pool.and_then(Value::as_str).unwrap_or_default().to_owned()).or_default();
        pool.gpus += amount(resource::NVIDIA_GPU);
        pool.pods += amount(resource::PODS);
        most_gpus_of_a_node = most_gpus_of_a_node.max(amount(resource::NVIDIA_GPU));
    }
    Declared {
        queues: of("Queue").map(Document::name).collect(),
        parents: of("Queue").map(|queue| object::str_at(&queue.object, "/spec/parentQueue")).collect(),
        classes: of("PriorityClass").map(Document::name).chain(BUILT_IN_CLASSES).collect(),
        pools,
        most_gpus_of_a_node,
    }
}

/// A whole amount; 0 where it cannot be read.
fn amount(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or_default(),
        Value::String(text) => text.parse().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => 0,
    }
}

/// The pods that a workload creates: itself, or every template in it.
pub(super) fn templates(document: &Document) -> Vec<Value> {
    let mut found = Vec::new();
    if document.kind() == "Pod" {
        found.push(document.object.clone());
    } else if let Some(spec) = document.object.get("spec") {
        collect(spec, DEPTH_MAX, &mut found);
    }
    for pod in &mut found {
        if object::name(pod).is_empty() {
            object::set_meta(pod, "name", Some(Value::from(document.name())));
        }
    }
    found
}

fn collect(value: &Value, depth: usize, found: &mut Vec<Value>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if value.pointer("/spec/containers").is_some_and(Value::is_array) {
                    let metadata = value.get("metadata").cloned().unwrap_or_else(|| json!({}));
                    found.push(json!({"metadata": metadata, "spec": value["spec"]}));
                } else if name != "status" {
                    collect(value, depth - 1, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, depth - 1, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_pod(document: &Document, pod: &Value, declared: &Declared<'_>, findings: &mut Vec<Finding>) {
    let options = pod::Options { gpu_sharing: true, ..pod::Options::default() };
    let scheduler = object::str_at(pod, "/spec/schedulerName");
    let annotations = object::meta(pod, "annotations").and_then(Value::as_object);
    let shares = [annotation::GPU_FRACTION, annotation::GPU_MEMORY]
        .into_iter()
        .find(|key| annotations.is_some_and(|annotations| annotations.contains_key(*key)));
    if let (Some(key), true) = (shares, scheduler != name::SCHEDULER) {
        let message = format!(
            "annotation `{key}` has no effect, since the schedulerName is not `{0}`; hint: add `schedulerName: {0}`",
            name::SCHEDULER
        );
        findings.push(document.finding(Level::Warning, "pod-other-scheduler", message));
    }
    // The rules hold for pods of this scheduler; offline, the others are checked as if they were.
    let mut own = pod.clone();
    if let Some(spec) = own.get_mut("spec").and_then(Value::as_object_mut).filter(|_| shares.is_some()) {
        spec.insert("schedulerName".to_owned(), Value::from(name::SCHEDULER));
    }
    if let Err(message) = pod::check(&own, &options) {
        findings.push(document.finding(Level::Error, "pod-invalid", message));
    }
    let class = object::str_at(pod, "/spec/priorityClassName");
    priority(document, class, declared, findings);
    let gpus = whole_gpus(pod);
    if !declared.pools.is_empty() && gpus > declared.most_gpus_of_a_node {
        let message = format!(
            "a pod requests {gpus} GPUs, but no node has more than {}; hint: request fewer GPUs in more pods",
            declared.most_gpus_of_a_node
        );
        findings.push(document.finding(Level::Warning, "pod-larger-than-every-node", message));
    }
}

/// Whole GPUs that a pod requests: the API server takes a limit without a request for the request.
pub(super) fn whole_gpus(pod: &Value) -> i64 {
    let of = |container: &Value| {
        let part = |part: &str| container.get("resources")?.get(part)?.get(resource::NVIDIA_GPU).map(amount);
        part("requests").or_else(|| part("limits")).unwrap_or_default().max(0)
    };
    let list = |pointer| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten().map(of);
    let init = list("/spec/initContainers").max().unwrap_or_default();
    list("/spec/containers").fold(0, i64::saturating_add).max(init)
}

/// Queue and priority class of a workload, by its labels or the spec of a pod group.
fn names(document: &Document, declared: &Declared<'_>, findings: &mut Vec<Finding>) {
    let labels = object::meta(&document.object, "labels");
    let label =
        |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str).unwrap_or_default();
    let is_group = document.kind() == "PodGroup";
    let spec = |field: &str| object::str_at(&document.object, if is_group { field } else { "" });
    for queue in [label(label::QUEUE), spec("/spec/queue")].into_iter().filter(|queue| !queue.is_empty()) {
        if declared.queues.is_empty() {
            continue;
        }
        let problem = if !declared.queues.contains(queue) {
            "is not among the given queues; hint: name one of them, or add it"
        } else if declared.parents.contains(queue) {
            "has queues below it, and only queues without any run workloads; hint: name one of those"
        } else {
            continue;
        };
        findings.push(document.finding(
            Level::Warning,
            "workload-queue",
            format!("queue `{queue}` {problem}"),
        ));
    }
    priority(document, label(label::PRIORITY_CLASS), declared, findings);
    priority(document, spec("/spec/priorityClassName"), declared, findings);
}

fn priority(document: &Document, class: &str, declared: &Declared<'_>, findings: &mut Vec<Finding>) {
    if class.is_empty() || declared.classes.contains(class) {
        return;
    }
    let known: Vec<&str> = declared.classes.iter().copied().collect();
    let message = format!(
        "priority class `{class}` is unknown: the API server refuses pods with it, and a pod group gets the default; \
         hint: create it, or use one of `{}`",
        known.join("`, `")
    );
    findings.push(document.finding(Level::Warning, "priority-class-unknown", message));
}
