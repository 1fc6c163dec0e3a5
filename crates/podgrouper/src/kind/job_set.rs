//! JobSets: a subgroup for every replicated job, and below it one for every job.

use crate::error::Invalid;
use crate::fields::{self, template_annotation};
use crate::kind::segments::{SEGMENTS_MAX, with_level};
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::{SubGroup, TopologyConstraint};
use kai_api::well_known::{annotation, label};
use serde_json::Value;

const REPLICATED_JOBS: &str = "spec.replicatedJobs";

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let set = workload.top_object()?;
    let jobs = set.list(REPLICATED_JOBS)?.filter(|jobs| !jobs.is_empty());
    let jobs = jobs.ok_or_else(|| set.invalid(format!("`{REPLICATED_JOBS}` is empty")))?;
    let is_in_order = set.text("spec.startupPolicy.startupPolicyOrder")? == Some("InOrder");
    let of_pod = |name| {
        let value = workload.pod.metadata.label(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| workload.pod_invalid(format!("label `{name}` is missing")))
    };
    // Groups of KAI before 0.16 have no subgroups; their pods keep them.
    let stored = workload.cluster.groups_named(&desired.namespace, &desired.name);
    if stored.iter().any(|group| !group.has_sub_groups) {
        let job = of_pod(label::JOBSET_REPLICATED_JOB)?;
        if let Some(min) = set.metadata.annotation(annotation::BATCH_MIN_MEMBER) {
            desired.min_member = workload.top().annotation_number(annotation::BATCH_MIN_MEMBER, min)?;
        }
        if is_in_order {
            desired.name = format!("{}-{job}", desired.name);
        }
        return Ok(desired);
    }
    for job in jobs {
        add_job(set, job, &mut desired.sub_groups)?;
    }
    // A replicated job without replicas has no pods that could be required.
    let all = desired.sub_groups.iter().filter(|sub_group| sub_group.parent.is_none()).count();
    let all = i32::try_from(all).unwrap_or(i32::MAX);
    let required = minimum(set)?.map(|min| min.min(all));
    desired.min_sub_group = Some(required.unwrap_or(if is_in_order { 1 } else { all }));
    let leaf = leaf_name(of_pod(label::JOBSET_REPLICATED_JOB)?, of_pod(label::JOBSET_JOB_INDEX)?);
    if !desired.sub_groups.iter().any(|sub_group| sub_group.name == leaf && sub_group.parent.is_some()) {
        let problem =
            format!("its labels name the job `{leaf}`, which JobSet `{}` does not have", desired.owner.name);
        return Err(workload.pod_invalid(problem));
    }
    desired.sub_group = Some(leaf);
    Ok(desired)
}

fn leaf_name(job: &str, index: impl std::fmt::Display) -> String {
    format!("{job}-replica-{index}")
}

/// The annotation that sets how many replicated jobs are required.
fn minimum(set: &OwnerObject) -> Result<Option<i32>, Invalid> {
    let Some(text) = set.metadata.annotation(annotation::BATCH_MIN_MEMBER) else { return Ok(None) };
    positive(text).map(Some).map_err(|problem| set.invalid(problem))
}

fn positive(text: &str) -> Result<i32, String> {
    let name = annotation::BATCH_MIN_MEMBER;
    match fields::number(text) {
        Ok(number) if number >= 1 => Ok(number),
        Ok(number) => Err(format!("annotation `{name}` is {number}, and must be at least 1")),
        Err(problem) => {
            Err(format!("annotation `{name}` is {problem}; write a number such as `2`, or remove it"))
        }
    }
}

/// Appends the subgroups of a replicated job: one for it and one for each of its jobs. One without replicas has none: a
/// subgroup without a part is invalid.
fn add_job(set: &OwnerObject, job: &Value, sub_groups: &mut Vec<SubGroup>) -> Result<(), Invalid> {
    let name = job.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| set.invalid(format!("a job in `{REPLICATED_JOBS}` has no name")))?;
    let wrong = |problem: String| set.invalid(format!("replicated job `{name}`: {problem}"));
    let int = |path: &str| match fields::field(job, path) {
        Ok(Some(value)) => fields::int(value, path).map(Some),
        Ok(None) => Ok(None),
        Err(at) => Err(format!("`{at}` must be an object")),
    };
    let replicas = int("replicas").map_err(wrong)?.unwrap_or(1);
    if replicas == 0 {
        return Ok(());
    }
    let template = job.get("template");
    let least = template_annotation(template, annotation::BATCH_MIN_MEMBER);
    let pods = match least.filter(|text| !text.is_empty()) {
        Some(text) => positive(text).map_err(wrong)?,
        None => int("template.spec.parallelism").map_err(wrong)?.unwrap_or(1),
    };
    let left = SEGMENTS_MAX - i32::try_from(sub_groups.len()).unwrap_or(SEGMENTS_MAX);
    if replicas > left {
        return Err(wrong(format!(
            "with {replicas} replicas the JobSet has more than {SEGMENTS_MAX} subgroups"
        )));
    }
    let of = |name| template_annotation(template, name).unwrap_or_default().to_owned();
    let topology = with_level(TopologyConstraint {
        topology: of(annotation::TOPOLOGY),
        required_topology_level: of(annotation::TOPOLOGY_REQUIRED),
        preferred_topology_level: of(annotation::TOPOLOGY_PREFERRED),
    });
    sub_groups.push(SubGroup { name: name.to_owned(), min_sub_group: Some(replicas), ..SubGroup::default() });
    for index in 0..replicas {
        sub_groups.push(SubGroup {
            name: leaf_name(name, index),
            parent: Some(name.to_owned()),
            min_member: Some(pods),
            topology_constraint: topology.clone(),
            ..SubGroup::default()
        });
    }
    Ok(())
}
