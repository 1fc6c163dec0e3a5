//! Compares the state after a step with the recorded one.

use super::case::{Action, Case, Step};
use super::store::World;
use kai_api::PodGroup;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a grouper writes into a pod; where a pod is the topmost owner, its group may have copied it.
const ASSIGNMENT: [&str; 2] = ["pod-group-name", "kai.scheduler/subgroup-name"];

/// What is not as recorded.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) state: Vec<String>,
    pub(super) calls: Vec<String>,
    /// Whether some call is made more often than recorded.
    pub(super) has_more_calls: bool,
}

impl Differences {
    pub(super) fn is_empty(&self) -> bool {
        self.state.is_empty() && self.calls.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.iter().chain(&self.calls).try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// The differences between the state of the world and the expectation of a step.
pub(super) fn state(case: &Case, world: &World<'_>, step: &Step, index: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: String, expected: &Value, actual: &Value| {
        if expected != actual {
            found.push(format!("step {index}: {what}\n      expected {expected}\n      actual   {actual}"));
        }
    };
    let expected: BTreeMap<&str, Value> =
        step.expect.pod_groups.iter().map(|group| (name_of(group), normalized(group))).collect();
    let actual: BTreeMap<String, Value> =
        world.groups().map(recorded).map(|group| (name_of(&group).to_owned(), group)).collect();
    let names: BTreeSet<&str> = expected.keys().copied().chain(actual.keys().map(String::as_str)).collect();
    for name in names {
        let group = |of: Option<&Value>| of.cloned().unwrap_or_default();
        check(format!("group {name}"), &group(expected.get(name)), &group(actual.get(name)));
    }
    for (name, expected) in &step.expect.pods {
        let Some(pod) = world.pod(name) else {
            check(format!("pod {name}"), expected, &Value::Null);
            continue;
        };
        check(format!("pod {name}"), expected, &written(case, name, pod));
    }
    let failed: Vec<&String> = world.failed.keys().collect();
    let expected: Vec<&String> = step.expect.errors.keys().collect();
    let with_texts = json!({"pods": failed});
    check(format!("errors ({:?})", world.failed), &json!({"pods": expected}), &with_texts);
    found
}

pub(super) fn calls(expected: &BTreeMap<String, usize>, actual: &BTreeMap<String, usize>) -> Vec<String> {
    if expected == actual {
        return Vec::new();
    }
    vec![format!("calls\n      expected {expected:?}\n      actual   {actual:?}")]
}

/// Whether some call, each of which writes, is made more often than recorded.
pub(super) fn has_more_calls(expected: &BTreeMap<String, usize>, actual: &BTreeMap<String, usize>) -> bool {
    actual.iter().any(|(call, made)| *made > expected.get(call).copied().unwrap_or(0))
}

fn name_of(group: &Value) -> &str {
    group["name"].as_str().unwrap_or_default()
}

/// A stored group in the form of a recorded one.
fn recorded(group: &PodGroup) -> Value {
    let value = json!(group);
    let metadata = &value["metadata"];
    let mut owners = metadata["ownerReferences"].clone();
    for owner in owners.as_array_mut().into_iter().flatten() {
        if let Some(owner) = owner.as_object_mut() {
            owner.remove("uid");
        }
    }
    normalized(&json!({
        "name": metadata["name"],
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "ownerReferences": owners,
        "spec": value["spec"],
    }))
}

/// Without what is empty and what a pod may have had copied.
fn normalized(group: &Value) -> Value {
    let mut group = group.clone();
    for field in ["labels", "annotations"] {
        if let Some(map) = group[field].as_object_mut() {
            map.retain(|key, _| !ASSIGNMENT.contains(&key.as_str()));
        }
    }
    let drop_empty = |of: &mut Value| {
        if let Some(fields) = of.as_object_mut() {
            fields.retain(|key, value| {
                key != "topologyConstraint" || value.as_object().is_some_and(|of| !of.is_empty())
            });
        }
    };
    drop_empty(&mut group["spec"]);
    for sub_group in group["spec"]["subGroups"].as_array_mut().into_iter().flatten() {
        drop_empty(sub_group);
    }
    if let Some(fields) = group.as_object_mut() {
        fields.retain(|_, value| {
            !value.is_null()
                && value.as_object().is_none_or(|of| !of.is_empty())
                && value.as_array().is_none_or(|of| !of.is_empty())
        });
    }
    group
}

/// The labels and annotations of a pod that the case did not write.
fn written(case: &Case, name: &str, pod: &Value) -> Value {
    let mut by_case: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for action in case.steps.iter().flat_map(|step| &step.actions) {
        let metadata = match action {
            Action::Create { create } if create["kind"] == "Pod" && create["metadata"]["name"] == name => {
                create
            }
            Action::Patch { target, patch } if target.kind == "Pod" && target.name == name => patch,
            Action::Create { .. } | Action::Patch { .. } | Action::Delete { .. } | Action::Bind { .. } => {
                continue;
            }
        };
        for field in ["labels", "annotations"] {
            let keys = metadata["metadata"][field].as_object().into_iter().flat_map(Map::keys);
            by_case.entry(field).or_default().extend(keys.cloned());
        }
    }
    let of = |field: &str| {
        let is_written = |key: &String| {
            ASSIGNMENT.contains(&key.as_str()) || !by_case.get(field).is_some_and(|keys| keys.contains(key))
        };
        let all = pod["metadata"][field].as_object().into_iter().flatten();
        let kept: Map<String, Value> =
            all.filter(|(key, _)| is_written(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
        kept
    };
    json!({"annotations": of("annotations"), "labels": of("labels")})
}
