//! The rows of workloads, nodes, disruption budgets and priority classes.

use super::age;
use super::cells::Cells;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TEMPLATE: &str = "/spec/template/spec/containers";

pub(super) fn deployment(object: &Cells<'_>) -> Vec<Value> {
    let ready = format!("{}/{}", object.number("/status/readyReplicas"), object.number("/spec/replicas"));
    let [names, images] = object.containers(TEMPLATE);
    let selector = match object.selector("/spec/selector").as_str() {
        "<none>" => String::new(),
        "<error>" => "<invalid>".to_owned(),
        other => other.to_owned(),
    };
    vec![
        json!(object.name()),
        json!(ready),
        json!(object.number("/status/updatedReplicas")),
        json!(object.number("/status/availableReplicas")),
        json!(object.age()),
        names,
        images,
        json!(selector),
    ]
}

pub(super) fn replica_set(object: &Cells<'_>) -> Vec<Value> {
    let mut row = replicas(object);
    row.push(json!(object.selector("/spec/selector")));
    row
}

fn replicas(object: &Cells<'_>) -> Vec<Value> {
    let [names, images] = object.containers(TEMPLATE);
    vec![
        json!(object.name()),
        json!(object.number("/spec/replicas")),
        json!(object.number("/status/replicas")),
        json!(object.number("/status/readyReplicas")),
        json!(object.age()),
        names,
        images,
    ]
}

pub(super) fn stateful_set(object: &Cells<'_>) -> Vec<Value> {
    let ready = format!("{}/{}", object.number("/status/readyReplicas"), object.number("/spec/replicas"));
    let [names, images] = object.containers(TEMPLATE);
    vec![json!(object.name()), json!(ready), json!(object.age()), names, images]
}

pub(super) fn daemon_set(object: &Cells<'_>) -> Vec<Value> {
    let [names, images] = object.containers(TEMPLATE);
    vec![
        json!(object.name()),
        json!(object.number("/status/desiredNumberScheduled")),
        json!(object.number("/status/currentNumberScheduled")),
        json!(object.number("/status/numberReady")),
        json!(object.number("/status/updatedNumberScheduled")),
        json!(object.number("/status/numberAvailable")),
        json!(object.labels("/spec/template/spec/nodeSelector")),
        json!(object.age()),
        names,
        images,
        json!(object.selector("/spec/selector")),
    ]
}

pub(super) fn job(object: &Cells<'_>) -> Vec<Value> {
    let succeeded = object.number("/status/succeeded");
    let parallelism = object.number("/spec/parallelism");
    let completions = match object.get("/spec/completions") {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let time = |pointer: &str| object.text(pointer).parse::<Timestamp>().ok();
    let duration = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => age::since(start, end.unwrap_or(object.now)),
    };
    let [names, images] = object.containers(TEMPLATE);
    vec![
        json!(object.name()),
        json!(job_status(object)),
        json!(completions),
        json!(duration),
        json!(object.age()),
        names,
        images,
        json!(object.selector("/spec/selector")),
    ]
}

fn job_status(object: &Cells<'_>) -> &'static str {
    let first = [("Complete", "Complete"), ("Failed", "Failed")];
    let later = [
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ];
    let find = |list: &[(&str, &'static str)]| {
        list.iter().find(|(kind, _)| object.has_condition(kind)).map(|(_, word)| *word)
    };
    let deleting = object.is_deleting().then_some("Terminating");
    find(&first).or(deleting).or_else(|| find(&later)).unwrap_or("Running")
}

pub(super) fn cron_job(object: &Cells<'_>) -> Vec<Value> {
    let template = "/spec/jobTemplate/spec/template/spec/containers";
    let [names, images] = object.containers(template);
    let suspend = match object.get("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match object.get("/status/lastScheduleTime") {
        Some(_) => object.since("/status/lastScheduleTime"),
        None => "<none>".to_owned(),
    };
    vec![
        json!(object.name()),
        json!(object.text("/spec/schedule")),
        json!(object.get("/spec/timeZone").and_then(Value::as_str).unwrap_or("<none>")),
        json!(suspend),
        json!(object.count("/status/active")),
        json!(last),
        json!(object.age()),
        names,
        images,
        json!(object.selector("/spec/jobTemplate/spec/selector")),
    ]
}

pub(super) fn controller_revision(object: &Cells<'_>) -> Vec<Value> {
    let owner = object.list("/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
            let kind = text("kind").to_lowercase();
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", text("name"))
        },
    );
    vec![json!(object.name()), json!(controller), json!(object.number("/revision")), json!(object.age())]
}

pub(super) fn node(object: &Cells<'_>) -> Vec<Value> {
    let mut status = match object.condition("Ready") {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.flag("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| object.text_or(&format!("/status/nodeInfo/{field}"), "<unknown>");
    let mut kernel = info("kernelVersion").to_owned();
    let architecture = object.text("/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    let address = |kind: &str| {
        let mut addresses = object.list("/status/addresses").iter();
        addresses.find(|one| one["type"] == kind).and_then(|one| one["address"].as_str()).unwrap_or("<none>")
    };
    vec![
        json!(object.name()),
        json!(status),
        json!(node_roles(object)),
        json!(object.age()),
        json!(object.text("/status/nodeInfo/kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

fn node_roles(object: &Cells<'_>) -> String {
    let labels = object.get("/metadata/labels").and_then(Value::as_object);
    let mut roles = BTreeSet::new();
    for (key, value) in labels.into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => "",
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

pub(super) fn pod_disruption_budget(object: &Cells<'_>) -> Vec<Value> {
    let limit = |pointer: &str| object.printed(pointer).unwrap_or_else(|| "N/A".to_owned());
    vec![
        json!(object.name()),
        json!(limit("/spec/minAvailable")),
        json!(limit("/spec/maxUnavailable")),
        json!(object.number("/status/disruptionsAllowed")),
        json!(object.age()),
    ]
}

pub(super) fn priority_class(object: &Cells<'_>) -> Vec<Value> {
    vec![
        json!(object.name()),
        json!(object.number("/value")),
        json!(object.flag("/globalDefault")),
        json!(object.age()),
        json!(object.text("/preemptionPolicy")),
    ]
}

pub(super) fn scale(object: &Cells<'_>) -> Vec<Value> {
    vec![
        json!(object.name()),
        json!(object.number("/spec/replicas")),
        json!(object.number("/status/replicas")),
        json!(object.age()),
    ]
}
