//! Runs a `Job` to its end: as many pods at once as it may have, until enough have succeeded or too many have failed.
//!
//! A finished pod is counted exactly once, whatever crashes in between: it carries a finalizer until its uid has been
//! written to the job's status, then the finalizer goes, then the uid.

mod index;
mod policy;
mod tally;

use super::pod;
use super::{holds, int_at, label, set_condition, set_entry, time};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::api::{Deletion, Part, Result};
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tally::{Tally, Verdict};

/// Keeps a pod until it has been counted.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Where a pod says which of the completions it works on; a label and an annotation.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The most pods that are made or deleted before the state is looked at again.
const BURST: usize = 500;

/// The controller of jobs.
#[derive(Debug)]
pub struct Jobs;

impl Controller for Jobs {
    const NAME: &'static str = "job";

    fn kinds(&self) -> Vec<Kind> {
        vec![kind::JOB, kind::POD]
    }

    fn wakes(&self, _: &Caches, kind: &Kind, changed: &Value) -> Vec<Key> {
        if *kind == kind::JOB {
            return vec![Key::of(changed)];
        }
        let owners = object::meta(changed, "ownerReferences").and_then(Value::as_array);
        let owners = owners.into_iter().flatten();
        owners
            .filter(|owner| owner["controller"] == true && owner["kind"] == "Job")
            .map(|owner| Key::new(object::namespace(changed), object::str_at(owner, "/name")))
            .collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(job) = context.caches.get(&kind::JOB, key) else {
            return release_orphans(context, key).await;
        };
        let managed_by = object::str_at(&job, "/spec/managedBy");
        if !matches!(managed_by, "" | "kubernetes.io/job-controller") {
            return Ok(Next::Wait);
        }
        let pods = context.caches.owned(&kind::POD, object::uid(&job));
        if is_over(&job) || object::is_deleting(&job) {
            release(context, &pods, |_| true).await?;
            return expire(context, &job).await;
        }
        sync(context, &job, &pods).await
    }
}

fn is_over(job: &Value) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

/// Lets go of the pods of jobs that are no more.
async fn release_orphans(context: &Context, key: &Key) -> Result<Next> {
    for pod in context.caches.in_namespace(&kind::POD, &key.namespace) {
        if label(&pod, "batch.kubernetes.io/job-name") == key.name {
            release(context, &[pod], |_| true).await?;
        }
    }
    Ok(Next::Wait)
}

/// Takes the finalizer from those pods that `counted` picks.
async fn release(context: &Context, pods: &[Arc<Value>], counted: impl Fn(&Value) -> bool) -> Result<()> {
    for pod in pods {
        let finalizers = object::finalizers(pod);
        if !finalizers.contains(&TRACKING) || !counted(pod) {
            continue;
        }
        let left: Vec<&str> = finalizers.into_iter().filter(|name| *name != TRACKING).collect();
        let mut new = (**pod).clone();
        object::set_finalizers(&mut new, &left);
        match context.update(&kind::POD, Part::Main, pod, &new).await {
            Err(error) if error.is_not_found() => context.caches.note_gone(&kind::POD, pod),
            written => {
                written?;
            }
        }
    }
    Ok(())
}

/// Deletes a finished job when its time is over.
async fn expire(context: &Context, job: &Value) -> Result<Next> {
    let ttl = job.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64);
    let ended = ["Complete", "Failed"].iter().find_map(|name| {
        let condition = super::condition(job, name).filter(|condition| condition["status"] == "True")?;
        time::at(condition, "/lastTransitionTime")
    });
    let (Some(ttl), Some(ended), false) = (ttl, ended, object::is_deleting(job)) else {
        return Ok(Next::Wait);
    };
    let (due, now) = (time::plus(ended, ttl), context.clock.now());
    if due > now {
        return Ok(Next::After(time::until(now, due)));
    }
    context.delete(&kind::JOB, job, Deletion::of(job).propagate("Foreground")).await?;
    Ok(Next::Wait)
}

async fn sync(context: &Context, job: &Arc<Value>, pods: &[Arc<Value>]) -> Result<Next> {
    let now = context.clock.now();
    let tally = Tally::take(job, pods, now);
    let mut new = (**job).clone();
    let status = object::map_mut(&mut new, "status");
    let mut status = Value::Object(std::mem::take(status));
    let suspended = job.pointer("/spec/suspend") == Some(&json!(true));
    note_suspension(context, job, &mut status, suspended);
    let verdict = tally.verdict();
    tally.write(&mut status);
    let mut next = Next::Wait;
    match verdict {
        Verdict::GoesOn if suspended => {
            delete_pods(context, job, &tally.active).await?;
        }
        Verdict::GoesOn => next = fill(context, job, &tally, now).await?,
        Verdict::Succeeds { reason, message } => {
            end(context, job, &mut status, &tally, ["SuccessCriteriaMet", "Complete"], &reason, &message)
                .await?;
        }
        Verdict::Fails { reason, message } => {
            end(context, job, &mut status, &tally, ["FailureTarget", "Failed"], &reason, &message).await?;
        }
    }
    let known = context.caches.owned(&kind::POD, object::uid(job));
    let active = known.iter().filter(|pod| pod::is_active(pod)).count();
    let ready = known.iter().filter(|pod| pod::is_active(pod) && pod::is_ready(pod)).count();
    let terminating = known.iter().filter(|pod| object::is_deleting(pod) && !pod::is_finished(pod)).count();
    if active > 0 {
        status["active"] = Value::from(active);
    } else if let Some(fields) = status.as_object_mut() {
        fields.remove("active");
    }
    status["ready"] = Value::from(ready);
    status["terminating"] = Value::from(terminating);
    new["status"] = status;
    context.update(&kind::JOB, Part::Status, job, &new).await?;
    // Only what the status accounts for may be let go.
    release(context, &tally.counted, |_| true).await?;
    let deadline = job.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let started = time::at(&new, "/status/startTime");
    if let (Some(deadline), Some(started), Verdict::GoesOn) = (deadline, started, tally.verdict()) {
        next = next.or(Next::After(time::until(now, time::plus(started, deadline))));
    }
    if !tally.counted.is_empty() {
        // The uids leave the status as soon as their pods are free.
        next = Next::After(std::time::Duration::ZERO);
    }
    Ok(next)
}

fn note_suspension(context: &Context, job: &Value, status: &mut Value, suspended: bool) {
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
        context.tell(job, "Suspended", "Job suspended");
        if let Some(fields) = status.as_object_mut() {
            fields.remove("startTime");
        }
    } else if !suspended && was {
        set_condition(status, condition("False", "JobResumed", "Job resumed"));
        context.tell(job, "Resumed", "Job resumed");
    }
    if !suspended && status.get("startTime").is_none() {
        status["startTime"] = Value::from(time.as_str());
    }
}

/// Ends a job: it says so at once, and is over when none of its pods is left.
async fn end(
    context: &Context,
    job: &Value,
    status: &mut Value,
    tally: &Tally,
    conditions: [&str; 2],
    reason: &str,
    message: &str,
) -> Result<()> {
    delete_pods(context, job, &tally.active).await?;
    let time = context.clock.time();
    let all_gone = tally.active.is_empty() && tally.terminating == 0 && tally.counted.is_empty();
    let wanted = if all_gone { &conditions[..] } else { &conditions[..1] };
    for condition in wanted {
        set_condition(
            status,
            json!({
                "type": condition, "status": "True", "reason": reason, "message": message,
                "lastProbeTime": time, "lastTransitionTime": time,
            }),
        );
    }
    if all_gone && conditions[1] == "Complete" {
        status["completionTime"] = Value::from(time.as_str());
        context.tell(job, "Completed", "Job completed");
    } else if all_gone {
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

/// Makes the pods that are missing, and deletes those that are too many.
async fn fill(context: &Context, job: &Value, tally: &Tally, now: Timestamp) -> Result<Next> {
    let wanted = tally.wanted_active();
    if tally.active.len() > wanted {
        let mut active: Vec<&Value> = tally.active.iter().map(|pod| &**pod).collect();
        pod::cheapest_first(&mut active);
        for pod in active.iter().take((tally.active.len() - wanted).min(BURST)) {
            pod::delete(context, job, pod).await?;
        }
        return Ok(Next::Wait);
    }
    let busy = tally.active.len() + tally.terminating;
    let missing = wanted.saturating_sub(busy).min(BURST);
    if missing == 0 {
        return Ok(Next::Wait);
    }
    if let Some(wait) = tally.backoff(now) {
        return Ok(Next::After(wait));
    }
    let indices: Vec<Option<usize>> = match &tally.completed {
        Some(completed) => free_indices(job, tally, completed).into_iter().take(missing).map(Some).collect(),
        None => vec![None; missing],
    };
    for index in indices {
        let mut new = pod_of(job, index);
        if let (Some(index), true) = (index, job.pointer("/spec/backoffLimitPerIndex").is_some()) {
            let failures = tally.failures.get(&index).copied().unwrap_or(0);
            set_entry(&mut new, "annotations", policy::FAILURES, &failures.to_string());
        }
        pod::create(context, job, &new).await?;
    }
    Ok(Next::Wait)
}

fn free_indices(job: &Value, tally: &Tally, completed: &BTreeSet<usize>) -> Vec<usize> {
    let completions = usize::try_from(int_at(job, "/spec/completions", 1)).unwrap_or(0);
    let taken: BTreeSet<usize> = tally.active.iter().filter_map(|pod| index::of(pod)).collect();
    let is_free = |index: &usize| {
        !completed.contains(index) && !taken.contains(index) && !tally.failed_indexes.contains(index)
    };
    (0..completions).filter(is_free).collect()
}

fn pod_of(job: &Value, index: Option<usize>) -> Value {
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
    object::set_meta(&mut pod, "finalizers", Some(json!([TRACKING])));
    let Some(index) = index else { return pod };
    let number = index.to_string();
    set_entry(&mut pod, "labels", INDEX, &number);
    set_entry(&mut pod, "annotations", INDEX, &number);
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
