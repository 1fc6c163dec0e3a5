//! Sets of Jobs and of pods: JobSet, TrainJob, LeaderWorkerSet.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use crate::fields;
use crate::objects::MetaExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::well_known::{annotation, label};
use serde_json::{Value, json};

const REPLICATED_JOBS: &str = "spec.replicatedJobs";

pub(super) fn job_set(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let owner = of.as_owner();
    let jobs = of.top.list(REPLICATED_JOBS)?.unwrap_or_default().to_vec();
    let name = of.name();
    jobs_of(of, &owner, &name, &jobs)
}

fn jobs_of(of: &mut Expander<'_>, owner: &OwnerReference, set: &str, jobs: &[Value]) -> Result<(), Invalid> {
    for (at, job) in jobs.iter().enumerate() {
        let at = format!("{REPLICATED_JOBS}[{at}]");
        let role = job.get("name").and_then(Value::as_str).unwrap_or_default();
        let number = |path: &str, default: i32| -> Result<u32, Invalid> {
            let wrong = |problem: String| of.top.invalid(format!("`{at}`: {problem}"));
            let value = fields::field(job, path).map_err(|at| wrong(format!("`{at}` must be an object")))?;
            let number = value.map_or(Ok(default), |value| fields::int(value, path)).map_err(wrong)?;
            u32::try_from(number)
                .map_err(|_| wrong(format!("`{path}` is {number}, and must not be negative")))
        };
        let replicas = number("replicas", 1)?;
        let parallelism = number("template.spec.parallelism", 1)?;
        let template = job.pointer("/template/spec/template");
        let path = format!("{at}.template.spec.template");
        let template = template.ok_or_else(|| of.top.invalid(format!("`{path}` is missing")))?;
        for index in 0..replicas {
            let name = format!("{set}-{role}-{index}");
            let job = of.object(owner, "batch/v1", "Job", name.clone(), job.pointer("/template/metadata"))?;
            let labels = vec![
                ("jobset.sigs.k8s.io/jobset-name", set.to_owned()),
                (label::JOBSET_REPLICATED_JOB, role.to_owned()),
                (label::JOBSET_JOB_INDEX, index.to_string()),
            ];
            let name = format!("{name}-0-{RANDOM}");
            let (annotations, count) = (Vec::new(), parallelism);
            of.add(Pods { owner: &job, name, path: &path, template, labels, annotations, count })?;
        }
    }
    Ok(())
}

/// The JobSet of the runtime that the job names, with as many nodes as the job wants.
pub(super) fn train_job(of: &mut Expander<'_>) -> Result<(), Invalid> {
    const RUNTIME: &str = "spec.runtimeRef.name";
    let name =
        of.top.text(RUNTIME)?.ok_or_else(|| of.top.invalid(format!("`{RUNTIME}` is missing")))?.to_owned();
    let kind = of.top.text("spec.runtimeRef.kind")?.unwrap_or("ClusterTrainingRuntime").to_owned();
    let runtime = of.others.iter().find(|other| other.kind == kind && other.metadata.name_str() == name);
    let runtime = runtime.ok_or_else(|| {
        of.top.invalid(format!(
            "`{RUNTIME}`: {kind} `{name}` is not in the files; hint: add it, since it describes the pods"
        ))
    })?;
    let mut jobs = runtime.list("spec.template.spec.replicatedJobs")?.unwrap_or_default().to_vec();
    if let Some(nodes) = of.top.int("spec.trainer.numNodes")?.or(runtime.int("spec.mlPolicy.numNodes")?) {
        for job in &mut jobs {
            let labels = job.pointer("/template/metadata/labels");
            let step = labels.and_then(|labels| labels.get("trainer.kubeflow.org/trainjob-ancestor-step"));
            let is_trainer = step.and_then(Value::as_str) == Some("trainer")
                || (step.is_none() && job.get("name").and_then(Value::as_str) == Some("node"));
            if let Some(spec) = job.pointer_mut("/template/spec").filter(|_| is_trainer) {
                spec["parallelism"] = json!(nodes);
            }
        }
    }
    let metadata = json!({
        "labels": of.top.field("spec.labels")?, "annotations": of.top.field("spec.annotations")?,
    });
    let (owner, name) = (of.as_owner(), of.name());
    let set = of.object(&owner, "jobset.x-k8s.io/v1alpha2", "JobSet", name.clone(), Some(&metadata))?;
    if let Some(set) = of.between.last_mut() {
        set.data = json!({"spec": {"replicatedJobs": jobs}});
    }
    jobs_of(of, &set, &name, &jobs)
}

/// The leaders are a StatefulSet; each leader owns the StatefulSet of its workers.
pub(super) fn leader_worker_set(of: &mut Expander<'_>) -> Result<(), Invalid> {
    const WORKER: &str = "spec.leaderWorkerTemplate.workerTemplate";
    const LEADER: &str = "spec.leaderWorkerTemplate.leaderTemplate";
    let worker = of.template(WORKER)?;
    let leader_path = if of.top.field(LEADER)?.is_some() { LEADER } else { WORKER };
    let leader = of.template(leader_path)?;
    let replicas = of.count("spec.replicas", 1)?;
    let size = of.count("spec.leaderWorkerTemplate.size", 1)?;
    let starts_alone = of.top.text("spec.startupPolicy")? == Some("LeaderReady");
    let (set, owner) = (of.name(), of.as_owner());
    let leaders = of.object(&owner, "apps/v1", "StatefulSet", set.clone(), None)?;
    let labels = |replica: u32, index: u32| {
        vec![
            ("leaderworkerset.sigs.k8s.io/name", set.clone()),
            (label::LWS_GROUP_INDEX, replica.to_string()),
            (label::LWS_WORKER_INDEX, index.to_string()),
        ]
    };
    let annotations = || vec![(annotation::LWS_SIZE, size.to_string())];
    for replica in 0..replicas {
        let name = format!("{set}-{replica}");
        let leader = of.add(Pods {
            owner: &leaders,
            name: name.clone(),
            path: leader_path,
            template: &leader,
            labels: labels(replica, 0),
            annotations: annotations(),
            count: 1,
        })?;
        if let Some(last) = of.pods.last_mut().filter(|_| starts_alone) {
            // The group of a leader with a node is that of the whole replica.
            last.pod.spec.node_name = Some("any".to_owned());
        }
        if size < 2 {
            continue;
        }
        let workers = of.object(&leader, "apps/v1", "StatefulSet", name.clone(), None)?;
        for index in 1..size {
            of.add(Pods {
                owner: &workers,
                name: format!("{name}-{index}"),
                path: WORKER,
                template: &worker,
                labels: labels(replica, index),
                annotations: annotations(),
                count: 1,
            })?;
        }
    }
    if starts_alone {
        of.notes.push("until a leader has a node, the minimum of its group is 1".to_owned());
    }
    Ok(())
}
