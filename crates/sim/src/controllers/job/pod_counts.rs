//! Counts the pods of a job by state, and derives the outcome of the job.

use super::pod_failure_policy::{self, FailureAction, INDEX_FAILURE_COUNT};
use super::{TRACKING_FINALIZER, index};
use crate::controllers::{annotation, condition, int_at, pod, time};
use jiff::Timestamp;
use kai_object as object;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Backoff after the first failed pod; doubles with each further one.
const BACKOFF_SECONDS: i64 = 10;
const BACKOFF_SECONDS_MAX: i64 = 600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Active,
    Complete { reason: String, message: String },
    Failed { reason: String, message: String },
}

impl Outcome {
    fn complete(reason: &str, message: impl Into<String>) -> Self {
        Self::Complete { reason: reason.to_owned(), message: message.into() }
    }

    fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::Failed { reason: reason.to_owned(), message: message.into() }
    }
}

#[derive(Debug)]
pub(super) struct PodCounts {
    completions: Option<usize>,
    parallelism: usize,
    backoff_limit: i64,
    deadline: Option<Timestamp>,
    now: Timestamp,
    /// The outcome of an interim condition in the status.
    announced: Option<Outcome>,
    pub(super) active: Vec<Arc<Value>>,
    pub(super) terminating: usize,
    /// Terminated pods with the finalizer, which may be removed once the new status is written.
    pub(super) counted: Vec<Arc<Value>>,
    succeeded: usize,
    failed: usize,
    restarts: i64,
    last_failure: Option<Timestamp>,
    /// Completed indexes of an indexed job.
    pub(super) completed: Option<BTreeSet<usize>>,
    /// `backoffLimitPerIndex`.
    limit_per_index: Option<i64>,
    pub(super) failed_indexes: BTreeSet<usize>,
    failed_indexes_max: Option<usize>,
    /// Failures by index.
    pub(super) failures: BTreeMap<usize, i64>,
    /// Message of a matching `FailJob` rule.
    fail_job: Option<String>,
    /// Index of the rule of `successPolicy` that is met.
    success_rule: Option<usize>,
    uncounted_succeeded: Vec<String>,
    uncounted_failed: Vec<String>,
}

impl PodCounts {
    /// Adds the pods of a job to the counts in its status.
    pub(super) fn new(job: &Value, pods: &[Arc<Value>], now: Timestamp) -> Self {
        let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_i64);
        let parallelism = number("/spec/parallelism").unwrap_or(1);
        // Both default to 1 where neither is set.
        let completions = match (number("/spec/completions"), number("/spec/parallelism")) {
            (Some(completions), _) => Some(completions),
            (None, None) => Some(1),
            (None, Some(_)) => None,
        };
        let indexed = object::str_at(job, "/spec/completionMode") == "Indexed";
        let started = time::at(job, "/status/startTime");
        let deadline = number("/spec/activeDeadlineSeconds").zip(started);
        let mut counts = Self {
            completions: completions.map(|count| usize::try_from(count).unwrap_or(0)),
            parallelism: usize::try_from(parallelism).unwrap_or(0),
            backoff_limit: int_at(job, "/spec/backoffLimit", 6),
            deadline: deadline.map(|(seconds, started)| time::plus(started, seconds)),
            now,
            announced: announced(job),
            active: Vec::new(),
            terminating: 0,
            counted: Vec::new(),
            succeeded: usize::try_from(int_at(job, "/status/succeeded", 0)).unwrap_or(0),
            failed: usize::try_from(int_at(job, "/status/failed", 0)).unwrap_or(0),
            restarts: 0,
            last_failure: None,
            completed: indexed.then(|| index::parse(object::str_at(job, "/status/completedIndexes"))),
            limit_per_index: number("/spec/backoffLimitPerIndex"),
            failed_indexes: index::parse(object::str_at(job, "/status/failedIndexes")),
            failed_indexes_max: number("/spec/maxFailedIndexes")
                .map(|most| usize::try_from(most).unwrap_or(0)),
            failures: BTreeMap::new(),
            fail_job: None,
            success_rule: None,
            uncounted_succeeded: Vec::new(),
            uncounted_failed: Vec::new(),
        };
        let seen = |list: &str| -> BTreeSet<&str> {
            let uids = job["status"]["uncountedTerminatedPods"][list].as_array().into_iter().flatten();
            uids.filter_map(Value::as_str).collect()
        };
        let before: BTreeSet<&str> = seen("succeeded").union(&seen("failed")).copied().collect();
        for pod in pods {
            counts.add(job, pod, &before);
        }
        counts.success_rule =
            counts.completed.as_ref().and_then(|completed| pod_failure_policy::success(job, completed));
        counts
    }

    fn add(&mut self, job: &Value, pod: &Arc<Value>, before: &BTreeSet<&str>) {
        let phase = object::str_at(pod, "/status/phase");
        let tracked = object::finalizers(pod).contains(&TRACKING_FINALIZER);
        match phase {
            _ if pod::is_terminal(pod) => {}
            _ if object::is_deleting(pod) => {
                let bound = !object::str_at(pod, "/spec/nodeName").is_empty();
                let running = bound && object::grace_period(pod).unwrap_or(0) > 0;
                if running {
                    self.terminating += 1;
                    return;
                }
            }
            _ => {
                if object::str_at(job, "/spec/template/spec/restartPolicy") == "OnFailure" {
                    self.restarts += restarts(pod);
                }
                self.active.push(Arc::clone(pod));
                return;
            }
        }
        let success = phase == "Succeeded";
        let action = if phase == "Failed" {
            pod_failure_policy::failure_action(job, pod)
        } else {
            FailureAction::Count
        };
        if !success && action != FailureAction::Ignore {
            self.last_failure = self.last_failure.max(finished_at(pod));
            if let Some(index) = index::of(pod) {
                let failures = self.failures.entry(index).or_insert(0);
                *failures = failures_before(pod).saturating_add(1).max(*failures);
            }
        }
        if !tracked {
            return;
        }
        self.counted.push(Arc::clone(pod));
        let uid = object::uid(pod).to_owned();
        let known = before.contains(uid.as_str());
        let list = if success { &mut self.uncounted_succeeded } else { &mut self.uncounted_failed };
        list.push(uid);
        if known {
            return;
        }
        match (success, &mut self.completed) {
            (true, Some(completed)) => {
                completed.extend(index::of(pod));
            }
            (true, None) => self.succeeded += 1,
            (false, _) => self.count_failure(pod, action),
        }
    }

    fn count_failure(&mut self, pod: &Value, action: FailureAction) {
        let limit_reached = self.limit_per_index.is_some_and(|limit| failures_before(pod) >= limit);
        let fails_index = match action {
            FailureAction::Ignore => return,
            FailureAction::Count => limit_reached,
            FailureAction::FailIndex => true,
            FailureAction::FailJob(why) => {
                self.fail_job.get_or_insert(why);
                limit_reached
            }
        };
        self.failed += 1;
        if fails_index {
            self.failed_indexes.extend(index::of(pod));
        }
    }

    fn succeeded(&self) -> usize {
        self.completed.as_ref().map_or(self.succeeded, BTreeSet::len)
    }

    pub(super) fn outcome(&self) -> Outcome {
        if let Some(outcome) = &self.announced {
            return outcome.clone();
        }
        if let Some(why) = &self.fail_job {
            return Outcome::failed("PodFailurePolicy", why);
        }
        let failures = i64::try_from(self.failed).unwrap_or(i64::MAX);
        if failures > self.backoff_limit || (self.restarts > 0 && self.restarts >= self.backoff_limit.max(1))
        {
            return Outcome::failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if self.failed_indexes_max.is_some_and(|most| self.failed_indexes.len() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Outcome::failed("MaxFailedIndexesExceeded", message);
        }
        if self.deadline.is_some_and(|deadline| deadline <= self.now) {
            return Outcome::failed("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        if let Some(rule) = self.success_rule {
            return Outcome::complete("SuccessPolicy", format!("Matched rules at index {rule}"));
        }
        let tried = self.succeeded() + self.failed_indexes.len();
        if !self.failed_indexes.is_empty() && self.completions.is_some_and(|completions| tried >= completions)
        {
            return Outcome::failed("FailedIndexes", "Job has failed indexes");
        }
        let enough = match self.completions {
            Some(completions) => self.succeeded() >= completions,
            None => self.succeeded() > 0 && self.active.is_empty() && self.terminating == 0,
        };
        if enough {
            return Outcome::complete("CompletionsReached", "Reached expected number of succeeded pods");
        }
        Outcome::Active
    }

    /// How many pods should be active.
    pub(super) fn wanted_active(&self) -> usize {
        match self.completions {
            Some(completions) => {
                let done = self.succeeded() + self.failed_indexes.len();
                self.parallelism.min(completions.saturating_sub(done))
            }
            // Work queue jobs: after the first success no pod is added.
            None if self.succeeded() > 0 => self.active.len().min(self.parallelism),
            None => self.parallelism,
        }
    }

    /// Remaining backoff before a failed pod is replaced.
    pub(super) fn backoff(&self, now: Timestamp) -> Option<Duration> {
        let last = self.last_failure.filter(|_| self.failed > 0)?;
        let doublings = u32::try_from(self.failed - 1).unwrap_or(u32::MAX).min(16);
        let seconds = (BACKOFF_SECONDS << doublings).min(BACKOFF_SECONDS_MAX);
        let wait = time::until(now, time::plus(last, seconds));
        (!wait.is_zero()).then_some(wait)
    }

    pub(super) fn write(&self, status: &mut Value) {
        if self.succeeded() > 0 {
            status["succeeded"] = Value::from(self.succeeded());
        }
        if self.failed > 0 {
            status["failed"] = Value::from(self.failed);
        }
        if let Some(completed) = self.completed.as_ref().filter(|completed| !completed.is_empty()) {
            status["completedIndexes"] = Value::from(index::print(completed));
        }
        if self.limit_per_index.is_some() {
            status["failedIndexes"] = Value::from(index::print(&self.failed_indexes));
        }
        let mut uncounted = json!({});
        for (list, uids) in [("succeeded", &self.uncounted_succeeded), ("failed", &self.uncounted_failed)] {
            if !uids.is_empty() {
                uncounted[list] = json!(uids);
            }
        }
        status["uncountedTerminatedPods"] = uncounted;
    }
}

fn announced(job: &Value) -> Option<Outcome> {
    let holding = |name: &str| condition(job, name).filter(|condition| condition["status"] == "True");
    let text = |condition: &Value, field: &str| object::str_at(condition, field).to_owned();
    if let Some(met) = holding("SuccessCriteriaMet") {
        return Some(Outcome::Complete { reason: text(met, "/reason"), message: text(met, "/message") });
    }
    let target = holding("FailureTarget")?;
    Some(Outcome::Failed { reason: text(target, "/reason"), message: text(target, "/message") })
}

fn failures_before(pod: &Value) -> i64 {
    annotation(pod, INDEX_FAILURE_COUNT).parse().unwrap_or(0)
}

fn restarts(pod: &Value) -> i64 {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    statuses.into_iter().flatten().map(|status| int_at(status, "/restartCount", 0)).sum()
}

fn finished_at(pod: &Value) -> Option<Timestamp> {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let finished = statuses.into_iter().flatten();
    let finished = finished.filter_map(|status| time::at(status, "/state/terminated/finishedAt"));
    finished.max().or_else(|| time::at(pod, "/metadata/deletionTimestamp")).or_else(|| {
        condition(pod, "Ready")
            .filter(|_| pod::is_terminal(pod))
            .and_then(|ready| time::at(ready, "/lastTransitionTime"))
    })
}
