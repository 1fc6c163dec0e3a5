//! Creates the Jobs of a `CronJob` on schedule, and deletes finished ones above the history limits.

use super::job::is_finished;
use super::{has_condition, int_at, owner_reference, time};
use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;

/// Annotation: the scheduled time of a Job.
const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Limit of the missed starts that are enumerated; only the latest one is started anyway.
const MISSED_MAX: usize = 1_500;

#[derive(Debug)]
pub struct CronJobController;

impl DynamicController for CronJobController {
    const NAME: &'static str = "cronjob";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::CRON_JOB, kind::JOB]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        super::replica_set::owners(informers, &kind::CRON_JOB, kind, changed)
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(cron) = context.informers.dynamic(&kind::CRON_JOB).get(key) else {
            return Ok(Action::AwaitChange);
        };
        if object::is_deleting(&cron) {
            return Ok(Action::AwaitChange);
        }
        let jobs = context.informers.dynamic(&kind::JOB).controlled_by(object::uid(&cron));
        enforce_history_limits(context, &cron, &jobs).await?;
        let mut status = cron["status"].clone();
        let next = if cron.pointer("/spec/suspend") == Some(&json!(true)) {
            Action::AwaitChange
        } else {
            start_due(context, &cron, &jobs, &mut status).await?
        };
        let jobs = context.informers.dynamic(&kind::JOB).controlled_by(object::uid(&cron));
        update_status(&mut status, &jobs);
        let mut new = (*cron).clone();
        if !status.is_null() {
            new["status"] = status;
        }
        context.patch_difference_dynamic(&kind::CRON_JOB, Part::Status, &cron, &new).await?;
        Ok(next)
    }
}

/// Sets `active` and `lastSuccessfulTime`.
fn update_status(status: &mut Value, jobs: &[Arc<Value>]) {
    let active: Vec<Value> = jobs
        .iter()
        .filter(|job| !is_finished(job) && !object::is_deleting(job))
        .map(|job| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "namespace": object::namespace(job),
                "name": object::name(job), "uid": object::uid(job),
                "resourceVersion": object::meta_str(job, "resourceVersion"),
            })
        })
        .collect();
    let same = status["active"].as_array().map_or(0, Vec::len) == active.len()
        && status["active"]
            .as_array()
            .into_iter()
            .flatten()
            .zip(&active)
            .all(|(one, two)| one["uid"] == two["uid"]);
    if !same {
        status["active"] = Value::from(active);
    }
    let latest = jobs.iter().filter_map(|job| job.pointer("/status/completionTime")?.as_str()).max();
    if let Some(latest) = latest
        && latest > status["lastSuccessfulTime"].as_str().unwrap_or_default()
    {
        status["lastSuccessfulTime"] = Value::from(latest);
    }
}

/// Deletes the oldest finished jobs above the history limits.
async fn enforce_history_limits(context: &Context, cron: &Value, jobs: &[Arc<Value>]) -> Result<()> {
    for (condition, pointer, default) in
        [("Complete", "/spec/successfulJobsHistoryLimit", 3), ("Failed", "/spec/failedJobsHistoryLimit", 1)]
    {
        let keep = usize::try_from(int_at(cron, pointer, default)).unwrap_or(0);
        let mut finished: Vec<&Arc<Value>> =
            jobs.iter().filter(|job| has_condition(job, condition) && !object::is_deleting(job)).collect();
        finished.sort_by_key(|job| (object::str_at(job, "/status/startTime"), object::name(job)));
        for job in finished.iter().take(finished.len().saturating_sub(keep)) {
            context.delete_dynamic(&kind::JOB, job, DeleteOptions::of(job).propagate("Background")).await?;
        }
    }
    Ok(())
}

/// Creates the latest due job, and requeues for the next one.
async fn start_due(
    context: &Context,
    cron: &Value,
    jobs: &[Arc<Value>],
    status: &mut Value,
) -> Result<Action> {
    let now = context.clock.now();
    let Some(schedule) = Schedule::read(cron) else {
        tracing::warn!(cron_job = %kai_runtime::key_of(cron), "invalid schedule or time zone");
        return Ok(Action::AwaitChange);
    };
    let created = time::at(cron, "/metadata/creationTimestamp").unwrap_or(now);
    let mut from = time::at(status, "/lastScheduleTime").unwrap_or(created);
    let deadline = cron.pointer("/spec/startingDeadlineSeconds").and_then(Value::as_i64);
    if let Some(deadline) = deadline {
        from = from.max(time::plus(now, -deadline));
    }
    let next =
        schedule.after(now).map_or(Action::AwaitChange, |at| Action::RequeueAfter(time::until(now, at)));
    let Some(due) = schedule.latest_between(from, now) else { return Ok(next) };
    let active: Vec<&Arc<Value>> =
        jobs.iter().filter(|job| !is_finished(job) && !object::is_deleting(job)).collect();
    let name = format!("{}-{}", object::name(cron), due.as_second() / 60);
    let exists = jobs.iter().any(|job| object::name(job) == name);
    if !exists {
        match object::str_at(cron, "/spec/concurrencyPolicy") {
            "Forbid" if !active.is_empty() => return Ok(next),
            "Replace" => {
                for job in active {
                    context
                        .delete_dynamic(&kind::JOB, job, DeleteOptions::of(job).propagate("Background"))
                        .await?;
                }
            }
            _ => {}
        }
        match context.create_dynamic(&kind::JOB, object::namespace(cron), &job_of(cron, &name, due)).await {
            // Created before a crash; the informer has not seen it yet.
            Err(error) if error.is_conflict() => {}
            created => {
                created?;
                context.record(cron, "SuccessfulCreate", format!("Created job {name}"));
            }
        }
    }
    status["lastScheduleTime"] = Value::from(kai_clock::time(due));
    Ok(next)
}

fn job_of(cron: &Value, name: &str, due: Timestamp) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": object::namespace(cron), "ownerReferences": [owner_reference(cron)],
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({})),
            "annotations": template.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({})),
        },
        "spec": template["spec"].clone(),
    });
    super::set_entry(&mut job, "annotations", SCHEDULED_TIMESTAMP, &kai_clock::time(due));
    job
}

#[derive(Debug)]
struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    fn read(object: &Value) -> Option<Self> {
        let cron = Cron::from_str(object::str_at(object, "/spec/schedule")).ok()?;
        let zone = match object::str_at(object, "/spec/timeZone") {
            "" | "Etc/UTC" | "UTC" => TimeZone::UTC,
            name => TimeZone::get(name).ok()?,
        };
        Some(Self { cron, zone })
    }

    fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let from = at.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&from, false).ok().map(|found| found.timestamp())
    }

    /// The latest time after `from` and not after `to`.
    fn latest_between(&self, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let mut latest = None;
        let mut at = from;
        for _ in 0..MISSED_MAX {
            match self.after(at) {
                Some(next) if next <= to => {
                    latest = Some(next);
                    at = next;
                }
                Some(_) | None => return latest,
            }
        }
        // Too many missed starts: continue with the last day.
        let recent = time::plus(to, -86_400).max(at);
        if recent > at { self.latest_between(recent, to).or(latest) } else { latest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_latest_missed_start_is_due() {
        let cron = json!({"spec": {"schedule": "*/15 * * * *"}});
        let schedule = Schedule::read(&cron).unwrap();
        let (from, to) = (time("2026-01-01T00:00:00Z"), time("2026-01-01T01:07:00Z"));
        assert_eq!(schedule.latest_between(from, to), Some(time("2026-01-01T01:00:00Z")));
        assert_eq!(schedule.latest_between(time("2026-01-01T01:00:00Z"), to), None);
        assert_eq!(schedule.after(to), Some(time("2026-01-01T01:15:00Z")));
        assert!(Schedule::read(&json!({"spec": {"schedule": "whenever"}})).is_none());
    }

    #[test]
    fn schedule_is_evaluated_in_its_time_zone() {
        let schedule = |zone: &str| {
            Schedule::read(&json!({"spec": {"schedule": "30 2 * * *", "timeZone": zone}})).unwrap()
        };
        let after = |zone: &str, from: &str| schedule(zone).after(time(from)).unwrap().to_string();
        assert_eq!(after("Europe/Berlin", "2026-01-10T00:00:00Z"), "2026-01-10T01:30:00Z");
        assert_eq!(after("Europe/Berlin", "2026-07-10T00:00:00Z"), "2026-07-10T00:30:00Z");
        assert_eq!(after("Asia/Kolkata", "2026-01-10T00:00:00Z"), "2026-01-10T21:00:00Z");
        assert_eq!(after("America/New_York", "2026-01-10T00:00:00Z"), "2026-01-10T07:30:00Z");
        assert_eq!(after("Etc/UTC", "2026-01-10T00:00:00Z"), "2026-01-10T02:30:00Z");
    }
}
