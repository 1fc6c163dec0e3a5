//! PyTorchJobs: a subgroup for the master and one for the workers, which may be divided into segments.

use crate::error::Invalid;
use crate::fields::template_annotation;
use crate::kind::{kubeflow, segments};
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::SubGroup;
use kai_api::well_known::{annotation, label};

const REPLICAS: &str = "pytorchReplicaSpecs";
const MASTER: &str = "master";
const WORKER: &str = "worker";

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let job = workload.top_object()?;
    desired.min_member = kubeflow::minimum(job, REPLICAS, &[])?;
    if kubeflow::min_available(job)?.is_none() {
        match elastic_minimum(job)? {
            Elastic::Minimum(min) => desired.min_member = min,
            Elastic::Ignored(problem) => desired.ignored.push(problem),
            Elastic::Unset => {}
        }
    }
    let roles = job.map("spec.pytorchReplicaSpecs")?;
    let roles = roles.ok_or_else(|| job.invalid("`spec.pytorchReplicaSpecs` is missing"))?;
    let masters = job.int("spec.pytorchReplicaSpecs.Master.replicas")?.unwrap_or(0).max(0);
    let workers_min = desired.min_member.saturating_sub(masters).max(0);
    let role = workload.pod.metadata.label(label::KUBEFLOW_REPLICA_TYPE);
    if masters > 0 {
        desired.sub_groups.push(leaf(MASTER, None, masters));
        if role == Some(MASTER) {
            desired.sub_group = Some(MASTER.to_owned());
        }
    }
    if !roles.contains_key("Worker") {
        return Ok(desired);
    }
    // With `minAvailable` the number of replicas may be missing; the training operator then creates one.
    let workers = job.int("spec.pytorchReplicaSpecs.Worker.replicas")?.unwrap_or(1).max(0);
    let segments =
        segment_size(workload)?.map(|size| (size, workers.div_euclid(size) + i32::from(workers % size > 0)));
    let Some((size, count)) = segments.filter(|(_, count)| *count > 0) else {
        desired.sub_groups.push(leaf(WORKER, None, workers_min));
        if role == Some(WORKER) {
            desired.sub_group = Some(WORKER.to_owned());
        }
        return Ok(desired);
    };
    if count > segments::SEGMENTS_MAX {
        return Err(job.invalid(format!(
            "{count} segments of {size} workers are more than {}; set a larger `{}`",
            segments::SEGMENTS_MAX,
            annotation::SEGMENT_SIZE
        )));
    }
    let template = job.field("spec.pytorchReplicaSpecs.Worker.template")?;
    let topology = segments::topology(workload, template);
    desired.sub_groups.push(SubGroup {
        name: WORKER.to_owned(),
        min_sub_group: Some(count),
        ..SubGroup::default()
    });
    for index in 0..count {
        let is_required = index.saturating_mul(size) < workers_min;
        let pods = if is_required { size.min(workers - index * size) } else { 0 };
        let mut segment = leaf(&segment_name(index), Some(WORKER), pods);
        segment.topology_constraint.clone_from(&topology);
        desired.sub_groups.push(segment);
    }
    if role == Some(WORKER) {
        let index = segments::index(workload, label::KUBEFLOW_REPLICA_INDEX)?.ok_or_else(|| {
            workload.pod_invalid(format!("label `{}` is missing", label::KUBEFLOW_REPLICA_INDEX))
        })?;
        // A worker beyond the replicas, left by a scale-down, is in no segment.
        desired.sub_group = Some(index / size).filter(|segment| *segment < count).map(segment_name);
    }
    Ok(desired)
}

/// What the elastic policy says about the minimum.
enum Elastic {
    Minimum(i32),
    Unset,
    /// As in KAI, a value that is no number has no effect.
    Ignored(String),
}

fn elastic_minimum(job: &OwnerObject) -> Result<Elastic, Invalid> {
    const PATH: &str = "spec.elasticPolicy.minReplicas";
    match job.field(PATH) {
        Ok(None) => Ok(Elastic::Unset),
        Ok(Some(value)) if value.is_i64() || value.is_u64() => {
            Ok(job.int(PATH)?.map_or(Elastic::Unset, Elastic::Minimum))
        }
        Ok(Some(value)) => Ok(Elastic::Ignored(format!(
            "`{PATH}` is {value}, which is not a whole number and has no effect; write a number such as `2`"
        ))),
        Err(_) => Ok(Elastic::Ignored(
            "`spec.elasticPolicy` must be an object, and has no effect; write `minReplicas: 2` below it"
                .to_owned(),
        )),
    }
}

fn segment_name(index: i32) -> String {
    format!("{WORKER}-{index}")
}

fn leaf(name: &str, parent: Option<&str>, min_member: i32) -> SubGroup {
    SubGroup {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        min_member: Some(min_member),
        ..SubGroup::default()
    }
}

/// The segment size on the pod, else on the template of the workers.
fn segment_size(workload: &Workload<'_>) -> Result<Option<i32>, Invalid> {
    let job = workload.top_object()?;
    let positive = |text: &str| {
        let size = segments::size(text)?;
        let wrong =
            || format!("annotation `{}` is `{text}`, and must be at least 1", annotation::SEGMENT_SIZE);
        (size > 0).then_some(size).ok_or_else(wrong)
    };
    let on_pod = workload.pod.metadata.annotation(annotation::SEGMENT_SIZE);
    if let Some(text) = on_pod.filter(|text| !text.is_empty()) {
        return positive(text).map(Some).map_err(|problem| workload.pod_invalid(problem));
    }
    let template = job.field("spec.pytorchReplicaSpecs.Worker.template")?;
    let on_template = template_annotation(template, annotation::SEGMENT_SIZE);
    on_template
        .filter(|text| !text.is_empty())
        .map(positive)
        .transpose()
        .map_err(|problem| job.invalid(format!("template of the workers: {problem}")))
}
