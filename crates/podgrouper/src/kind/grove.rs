//! Grove: the PodGang of a pod names the subgroups, their minima and where they are placed.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::fields;
use crate::kind::skip_top::inherit;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload, topology_of};
use kai_api::pod_group::{Preemptibility, SubGroup, TopologyConstraint};
use kai_api::well_known::{annotation, label};
use kai_units::duration;
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let reference = gang_of(workload)
        .ok_or_else(|| workload.pod_invalid(format!("label `{}` is missing", label::GROVE_POD_GANG)))?;
    let Some(gang) = workload.objects.get(&reference) else {
        let name = workload.pod.metadata.label(label::GROVE_POD_GANG).unwrap_or_default();
        return Err(workload.pod_invalid(format!("its PodGang `{name}` does not exist")));
    };
    let of_gang = workload.below(std::slice::from_ref(gang));
    let mut desired = of_gang.metadata(Sources::TopOwner, TRAIN);
    if let Some(class) = gang.text("spec.priorityClassName")? {
        class.clone_into(&mut desired.priority_class);
    }
    let topology = gang.metadata.annotation(annotation::GROVE_TOPOLOGY);
    let topology = topology.or_else(|| gang.metadata.annotation(annotation::TOPOLOGY)).unwrap_or_default();
    let wrong = |problem: String| gang.invalid(problem);
    if let Some(constraint) = constraint(&gang.data, "spec.topologyConstraint", topology).map_err(wrong)? {
        desired.topology = constraint;
    }
    apply_owner(workload, gang, &mut desired)?;
    add_sub_groups(workload, gang, topology, &mut desired).map_err(wrong)?;
    Ok(desired)
}

pub(crate) fn reads(workload: &Workload<'_>) -> Vec<ObjectRef> {
    gang_of(workload).into_iter().collect()
}

fn gang_of(workload: &Workload<'_>) -> Option<ObjectRef> {
    let name = workload.pod.metadata.label(label::GROVE_POD_GANG)?;
    Some(ObjectRef::Object {
        api_version: "scheduler.grove.io/v1alpha1".to_owned(),
        kind: "PodGang".to_owned(),
        name: name.to_owned(),
    })
}

/// The set at the top of the owners sets what the PodGang does not.
fn apply_owner(workload: &Workload<'_>, gang: &OwnerObject, desired: &mut Desired) -> Result<(), Invalid> {
    let top = workload.top();
    let mut metadata = gang.metadata.clone();
    inherit(&mut metadata, top.metadata);
    for (key, value) in top.metadata.labels.iter().flatten() {
        desired.labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    for (key, value) in top.metadata.annotations.iter().flatten() {
        desired.annotations.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let queue = &workload.options.queue_label_key;
    if gang.metadata.label(queue).is_none()
        && workload.pod.metadata.label(queue).is_none()
        && let Some(of_owner) = top.metadata.label(queue)
    {
        of_owner.clone_into(&mut desired.queue);
    }
    if let Some(class) = metadata.label(label::PRIORITY_CLASS) {
        class.clone_into(&mut desired.priority_class);
    }
    if let Some(value) = metadata.label(label::PREEMPTIBILITY) {
        desired.preemptibility = match value {
            "" => None,
            "preemptible" => Some(Preemptibility::Preemptible),
            "non-preemptible" => Some(Preemptibility::NonPreemptible),
            _ => {
                return Err(gang.invalid(format!(
                    "label `{}` is `{value}`, and must be `preemptible` or `non-preemptible`",
                    label::PREEMPTIBILITY
                )));
            }
        };
    }
    let span = |name| metadata.annotation(name).and_then(|text| duration::parse_go(text).ok());
    if let Some(delay) = span(annotation::PREEMPTION_DELAY).filter(|delay| delay.0 >= 0) {
        desired.preemption_delay = Some(duration::format_go(delay));
    }
    if desired.staleness_grace_period.is_none() {
        desired.staleness_grace_period = span(annotation::STALENESS_GRACE_PERIOD).map(duration::format_go);
    }
    let of_owner = topology_of(&metadata);
    let fill = |field: &mut String, from: String| {
        if field.is_empty() {
            *field = from;
        }
    };
    fill(&mut desired.topology.topology, of_owner.topology);
    fill(&mut desired.topology.required_topology_level, of_owner.required_topology_level);
    fill(&mut desired.topology.preferred_topology_level, of_owner.preferred_topology_level);
    Ok(())
}

/// The pack constraint at a path; an error where it has a level and there is no topology.
fn constraint(value: &Value, path: &str, topology: &str) -> Result<Option<TopologyConstraint>, String> {
    let path = format!("{path}.packConstraint");
    let Some(pack) = fields::field(value, &path).map_err(|at| format!("`{at}` must be an object"))? else {
        return Ok(None);
    };
    let level = |name: &str| match pack.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(level)) => Ok(Some(level.clone())),
        Some(_) => Err(format!("`{path}.{name}` must be a string")),
    };
    let (required, preferred) = (level("required")?, level("preferred")?);
    if required.is_none() && preferred.is_none() {
        return Ok(None);
    }
    let constraint = TopologyConstraint {
        topology: topology.to_owned(),
        required_topology_level: required.unwrap_or_default(),
        preferred_topology_level: preferred.unwrap_or_default(),
    };
    if topology.is_empty() {
        return Err(format!("`{path}` needs a topology; set annotation `{}`", annotation::GROVE_TOPOLOGY));
    }
    Ok(Some(constraint))
}

fn add_sub_groups(
    workload: &Workload<'_>,
    gang: &OwnerObject,
    topology: &str,
    desired: &mut Desired,
) -> Result<(), String> {
    const CONFIGS: &str = "topologyConstraintGroupConfigs";
    let list = |name: &str| match gang.data.pointer(&format!("/spec/{name}")) {
        None | Some(Value::Null) => Ok([].as_slice()),
        Some(value) => {
            value.as_array().map(Vec::as_slice).ok_or_else(|| format!("`spec.{name}` must be a list"))
        }
    };
    let name_of = |value: &Value, at: String| {
        let name = value.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        name.map(str::to_owned).ok_or_else(|| format!("`{at}.name` is missing"))
    };
    let mut parents: BTreeMap<&str, String> = BTreeMap::new();
    for (index, config) in list(CONFIGS)?.iter().enumerate() {
        let at = format!("spec.{CONFIGS}[{index}]");
        let name = name_of(config, at.clone())?;
        let members = match config.get("podGroupNames") {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(names) => {
                names.as_array().and_then(|names| names.iter().map(Value::as_str).collect::<Option<_>>())
            }
        };
        let members: Vec<&str> =
            members.ok_or_else(|| format!("`{at}.podGroupNames` must be a list of names"))?;
        if members.is_empty() {
            continue;
        }
        desired.sub_groups.push(SubGroup {
            name: name.clone(),
            min_sub_group: Some(i32::try_from(members.len()).unwrap_or(i32::MAX)),
            topology_constraint: constraint(config, "topologyConstraint", topology)?,
            ..SubGroup::default()
        });
        parents.extend(members.into_iter().map(|member| (member, name.clone())));
    }
    desired.min_member = 0;
    for (index, group) in list("podgroups")?.iter().enumerate() {
        let at = format!("spec.podgroups[{index}]");
        let name = name_of(group, at.clone())?;
        let least = group.get("minReplicas").filter(|value| !value.is_null());
        let least = least.ok_or_else(|| format!("`{at}.minReplicas` is missing"))?;
        let least = fields::int(least, &format!("{at}.minReplicas"))?;
        if least <= 0 {
            return Err(format!("`{at}.minReplicas` is {least}, and must be at least 1"));
        }
        let references = group.get("podReferences").and_then(Value::as_array);
        let references = references.ok_or_else(|| format!("`{at}.podReferences` is missing"))?;
        for reference in references {
            let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
            if text("name").is_empty() {
                return Err(format!("`{at}.podReferences` has a reference without a name"));
            }
            if text("namespace") != gang.metadata.namespace_str() {
                return Err(format!("`{at}` references pod `{}` of another namespace", text("name")));
            }
            if text("name") == workload.pod.metadata.name_str() {
                desired.sub_group = Some(name.clone());
            }
        }
        desired.min_member = desired.min_member.saturating_add(least);
        desired.sub_groups.push(SubGroup {
            parent: parents.get(name.as_str()).cloned(),
            min_member: Some(least),
            topology_constraint: constraint(group, "topologyConstraint", topology)?,
            name,
            ..SubGroup::default()
        });
    }
    Ok(())
}
