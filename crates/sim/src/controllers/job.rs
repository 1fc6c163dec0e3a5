//! Runs the pods of a `Job` until its completions are reached or it has failed.
//!
//! A terminated pod is counted exactly once, also across crashes: it has a finalizer until its uid is in
//! `status.uncountedTerminatedPods`; then the finalizer is removed, then the uid (KEP-2307).

mod index;
mod pod_counts;
mod pod_failure_policy;

use super::pod;
use super::{has_condition, int_at, label, set_condition, set_entry, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use pod_counts::{Outcome, PodCounts};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Finalizer of pods that are not counted yet.
const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Label and annotation: the completion index of a pod.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Limit of the pods that one reconciliation creates or deletes.
const BURST: usize = 500;

#[derive(Debug)]
pub struct JobController;

impl DynamicController for JobController {
    const NAME: &'static str = "job";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::JOB, kind::POD]
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::JOB {
            return vec![kai_runtime::key_of(changed)];
        }
        let owners = object::meta(changed, "ownerReferences").and_then(Value::as_array);
        let owners = owners.into_iter().flatten();
        owners
            .filter(|owner| owner["controller"] == true && owner["kind"] == "Job")
            .map(|owner| Key::new(object::namespace(changed), object::str_at(owner, "/name")))
            .collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(job) = context.informers.dynamic(&kind::JOB).get(key) else {
            return release_orphans(context, key).await;
        };
        let managed_by = object::str_at(&job, "/spec/managedBy");
        if !matches!(managed_by, "" | "kubernetes.io/job-controller") {
            return Ok(Action::AwaitChange);
        }
        let pods = context.informers.dynamic(&kind::POD).controlled_by(object::uid(&job));
        if is_finished(&job) || object::is_deleting(&job) {
            remove_finalizers(context, &pods, |_| true).await?;
            return enforce_ttl(context, &job).await;
        }
        sync(context, &job, &pods).await
    }
}

/// Whether the job is complete or failed.
pub(super) fn is_finished(job: &Value) -> bool {
    has_condition(job, "Complete") || has_condition(job, "Failed")
}

/// Removes the finalizers of the pods of a deleted job.
async fn release_orphans(context: &Context, key: &Key) -> Result<Action> {
    for pod in context.informers.dynamic(&kind::POD).in_namespace(&key.namespace) {
        if label(&pod, "batch.kubernetes.io/job-name") == key.name {
            remove_finalizers(context, &[pod], |_| true).await?;
        }
    }
    Ok(Action::AwaitChange)
}

/// Removes the tracking finalizer from the pods that `counted` selects.
async fn remove_finalizers(
    context: &Context,
    pods: &[Arc<Value>],
    counted: impl Fn(&Value) -> bool,
) -> Result<()> {
    for pod in pods {
        let finalizers = object::finalizers(pod);
        if !finalizers.contains(&TRACKING_FINALIZER) || !counted(pod) {
            continue;
        }
        let left: Vec<&str> = finalizers.into_iter().filter(|name| *name != TRACKING_FINALIZER).collect();
        let mut new = (**pod).clone();
        object::set_finalizers(&mut new, &left);
        match context.patch_difference_dynamic(&kind::POD, Part::Main, pod, &new).await {
            Err(error) if error.is_not_found() => context.informers.remove_dynamic(&kind::POD, pod),
            written => {
                written?;
            }
        }
    }
    Ok(())
}

/// Deletes a finished job after `ttlSecondsAfterFinished`.
async fn enforce_ttl(context: &Context, job: &Value) -> Result<Action> {
    let ttl = job.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64);
    let ended = ["Complete", "Failed"].iter().find_map(|name| {
        let condition = super::condition(job, name).filter(|condition| condition["status"] == "True")?;
        time::at(condition, "/lastTransitionTime")
    });
    let (Some(ttl), Some(ended), false) = (ttl, ended, object::is_deleting(job)) else {
        return Ok(Action::AwaitChange);
    };
    let (due, now) = (time::plus(ended, ttl), context.clock.now());
    if due > now {
        return Ok(Action::RequeueAfter(time::until(now, due)));
    }
    context.delete_dynamic(&kind::JOB, job, DeleteOptions::of(job).propagate("Foreground")).await?;
    Ok(Action::AwaitChange)
}

async fn sync(context: &Context, job: &Arc<Value>, pods: &[Arc<Value>]) -> Result<Action> {
    let now = context.clock.now();
    let counts = PodCounts::new(job, pods, now);
    let mut new = (**job).clone();
    let status = object::map_mut(&mut new, "status");
    let mut status = Value::Object(std::mem::take(status));
    let suspended = job.pointer("/spec/suspend") == Some(&json!(true));
    update_suspension(context, job, &mut status, suspended);
    let outcome = counts.outcome();
    counts.write(&mut status);
    let mut next = Action::AwaitChange;
    match outcome {
        Outcome::Active if suspended => {
            delete_pods(context, job, &counts.active).await?;
        }
        Outcome::Active => next = scale(context, job, &counts, now).await?,
        Outcome::Complete { reason, message } => {
            finish(context, job, &mut status, &counts, ["SuccessCriteriaMet", "Complete"], &reason, &message)
                .await?;
        }
        Outcome::Failed { reason, message } => {
            finish(context, job, &mut status, &counts, ["FailureTarget", "Failed"], &reason, &message)
                .await?;
        }
    }
    let known = context.informers.dynamic(&kind::POD).controlled_by(object::uid(job));
    let active = known.iter().filter(|pod| pod::is_active(pod)).count();
    let ready = known.iter().filter(|pod| pod::is_active(pod) && pod::is_ready(pod)).count();
    let terminating = known.iter().filter(|pod| object::is_deleting(pod) && !pod::is_terminal(pod)).count();
    if active > 0 {
        status["active"] = Value::from(active);
    } else if let Some(fields) = status.as_object_mut() {
        fields.remove("active");
    }
    status["ready"] = Value::from(ready);
    status["terminating"] = Value::from(terminating);
    new["status"] = status;
    context.patch_difference_dynamic(&kind::JOB, Part::Status, job, &new).await?;
    // Only pods that the written status accounts for.
    remove_finalizers(context, &counts.counted, |_| true).await?;
    let deadline = job.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let started = time::at(&new, "/status/startTime");
    if let (Some(deadline), Some(started), Outcome::Active) = (deadline, started, counts.outcome()) {
        next = next.or(Action::RequeueAfter(time::until(now, time::plus(started, deadline))));
    }
    if !counts.counted.is_empty() {
        // The next sync removes their uids from the status.
        next = Action::RequeueAfter(std::time::Duration::ZERO);
    }
    Ok(next)
}

fn update_suspension(context: &Context, job: &Value, status: &mut Value, suspended: bool) {
    let time = context.clock.time();
    let was = status["conditions"].as_array().is_some_and(|conditions| {
        conditions.iter().any(|condition| condition["type"] == "Suspended" && condition["status"] == "True")
    });
    let condition = |holds: &str, reason: &str, message: &str| {
        json!({
            "type": "Suspended", "status": holds, "reason": reason, "message": message,
            "lastProbeTime": time, "lastTransitionTime": time,
        })
    };
    if suspended && !was {
        set_condition(status, condition("True", "JobSuspended", "Job suspended"));
        context.record(job, "Suspended", "Job suspended");
        if let Some(fields) = status.as_object_mut() {
            fields.remove("startTime");
        }
    } else if !suspended && was {
        set_condition(status, condition("False", "JobResumed", "Job resumed"));
        context.record(job, "Resumed", "Job resumed");
    }
    if !suspended && status.get("startTime").is_none() {
        status["startTime"] = Value::from(time.as_str());
    }
}

/// Sets the interim condition at once, and the terminal one after all pods have terminated.
async fn finish(
    context: &Context,
    job: &Value,
    status: &mut Value,
    counts: &PodCounts,
    conditions: [&str; 2],
    reason: &str,
    message: &str,
) -> Result<()> {
    delete_pods(context, job, &counts.active).await?;
    let time = context.clock.time();
    let all_terminated = counts.active.is_empty() && counts.terminating == 0 && counts.counted.is_empty();
    let wanted = if all_terminated { &conditions[..] } else { &conditions[..1] };
    for condition in wanted {
        set_condition(
            status,
            json!({
                "type": condition, "status": "True", "reason": reason, "message": message,
                "lastProbeTime": time, "lastTransitionTime": time,
            }),
        );
    }
    if all_terminated && conditions[1] == "Complete" {
        status["completionTime"] = Value::from(time.as_str());
        context.record(job, "Completed", "Job completed");
    } else if all_terminated {
        context.warn(job, reason, message);
    }
    Ok(())
}

async fn delete_pods(context: &Context, job: &Value, pods: &[Arc<Value>]) -> Result<()> {
    for pod in pods.iter().take(BURST) {
        pod::delete(context, job, pod).await?;
    }
    Ok(())
}

/// Creates missing pods, and deletes surplus ones.
async fn scale(context: &Context, job: &Value, counts: &PodCounts, now: Timestamp) -> Result<Action> {
    let wanted = counts.wanted_active();
    if counts.active.len() > wanted {
        let mut active: Vec<&Value> = counts.active.iter().map(|pod| &**pod).collect();
        pod::sort_by_deletion_cost(&mut active);
        for pod in active.iter().take((counts.active.len() - wanted).min(BURST)) {
            pod::delete(context, job, pod).await?;
        }
        return Ok(Action::AwaitChange);
    }
    let busy = counts.active.len() + counts.terminating;
    let missing = wanted.saturating_sub(busy).min(BURST);
    if missing == 0 {
        return Ok(Action::AwaitChange);
    }
    if let Some(wait) = counts.backoff(now) {
        return Ok(Action::RequeueAfter(wait));
    }
    let indices: Vec<Option<usize>> = match &counts.completed {
        Some(completed) => free_indexes(job, counts, completed).into_iter().take(missing).map(Some).collect(),
        None => vec![None; missing],
    };
    for index in indices {
        let mut new = new_pod(job, index);
        if let (Some(index), true) = (index, job.pointer("/spec/backoffLimitPerIndex").is_some()) {
            let failures = counts.failures.get(&index).copied().unwrap_or(0);
            set_entry(
                &mut new,
                "annotations",
                pod_failure_policy::INDEX_FAILURE_COUNT,
                &failures.to_string(),
            );
        }
        pod::create(context, job, &new).await?;
    }
    Ok(Action::AwaitChange)
}

fn free_indexes(job: &Value, counts: &PodCounts, completed: &BTreeSet<usize>) -> Vec<usize> {
    let completions = usize::try_from(int_at(job, "/spec/completions", 1)).unwrap_or(0);
    let taken: BTreeSet<usize> = counts.active.iter().filter_map(|pod| index::of(pod)).collect();
    let is_free = |index: &usize| {
        !completed.contains(index) && !taken.contains(index) && !counts.failed_indexes.contains(index)
    };
    (0..completions).filter(is_free).collect()
}

fn new_pod(job: &Value, index: Option<usize>) -> Value {
    let mut pod = pod::from_template(job, &job["spec"]["template"]);
    let (name, uid) = (object::name(job).to_owned(), object::uid(job).to_owned());
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        set_entry(&mut pod, "labels", key, value);
    }
    object::set_meta(&mut pod, "finalizers", Some(json!([TRACKING_FINALIZER])));
    let Some(index) = index else { return pod };
    let number = index.to_string();
    set_entry(&mut pod, "labels", COMPLETION_INDEX, &number);
    set_entry(&mut pod, "annotations", COMPLETION_INDEX, &number);
    object::set_meta(&mut pod, "generateName", Some(Value::from(format!("{name}-{index}-"))));
    pod["spec"]["hostname"] = Value::from(format!("{name}-{index}"));
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let variable = json!({"name": "JOB_COMPLETION_INDEX", "value": number});
            match container["env"].as_array_mut() {
                Some(variables) => variables.push(variable),
                None => container["env"] = json!([variable]),
            }
        }
    }
    pod
}
