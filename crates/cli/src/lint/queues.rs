//! Rules for queues: those of admission, and bounds that contradict each other.

use super::documents::Document;
use super::finding::{Finding, Level};
use kai_admission::queue::{self, Change, QuotaValidation};
use kai_admission::review::Cause;
use kai_api::Queue;
use kai_api::queue::{QueueResource, QueueResources};

type Pick = fn(&QueueResources) -> Option<QueueResource>;

const RESOURCES: [(&str, Pick); 3] = [("cpu", |of| of.cpu), ("gpu", |of| of.gpu), ("memory", |of| of.memory)];

pub(super) fn check(documents: &[Document], findings: &mut Vec<Finding>) {
    let mut queues = Vec::new();
    for document in documents.iter().filter(|document| document.kind() == "Queue") {
        match queue::decode(&document.object) {
            Ok(queue) => queues.push((document, *queue)),
            Err(verdict) => {
                let messages = verdict.errors.into_iter();
                findings.extend(messages.map(|text| document.finding(Level::Error, "queue-invalid", text)));
            }
        }
    }
    let all: Vec<Queue> = queues.iter().map(|(_, queue)| queue.clone()).collect();
    for (document, queue) in &queues {
        admission(document, queue, &all, findings);
        for (resource, pick) in RESOURCES {
            let bounds = queue.spec.resources.as_ref().and_then(pick);
            bounds_of_resource(document, resource, bounds, findings);
            reach(document, queue, resource, pick, &all, findings);
        }
    }
}

fn admission(document: &Document, queue: &Queue, all: &[Queue], findings: &mut Vec<Finding>) {
    let verdict = queue::check(&Change::Create(Box::new(queue.clone())), QuotaValidation::Enabled, all);
    let (level, rule) = match verdict.cause {
        // The parent may exist in the cluster.
        Cause::NotFound => (Level::Warning, "queue-parent-unknown"),
        Cause::Rule | Cause::Undecodable | Cause::Unavailable => (Level::Error, "queue-invalid"),
    };
    let has_errors = !verdict.errors.is_empty();
    findings.extend(verdict.errors.into_iter().map(|text| document.finding(level, rule, text)));
    if !has_errors {
        let warnings = verdict.warnings.into_iter();
        findings.extend(warnings.map(|text| document.finding(Level::Warning, "queue-exceeds-parent", text)));
    }
}

fn bounds_of_resource(
    document: &Document,
    resource: &str,
    bounds: Option<QueueResource>,
    findings: &mut Vec<Finding>,
) {
    let mut warn = |rule, message| findings.push(document.finding(Level::Warning, rule, message));
    let QueueResource { quota, limit, over_quota_weight: weight } = bounds.unwrap_or_default();
    match limit {
        None => warn(
            "queue-no-limit",
            format!(
                "no limit of {resource} is set, which is 0: no pod that requests it will run; hint: write `limit: -1` for unlimited"
            ),
        ),
        Some(0.0) => warn(
            "queue-zero-limit",
            format!(
                "the limit of {resource} is 0: no pod that requests it will run; hint: write `limit: -1` for unlimited"
            ),
        ),
        Some(limit) if limit >= 0.0 && quota.is_some_and(|quota| quota > limit || quota < 0.0) => warn(
            "queue-limit-below-quota",
            format!(
                "the limit of {resource} ({limit}) is below the quota, which can never be used completely; hint: raise it"
            ),
        ),
        Some(_) => {}
    }
    if quota.is_none() && weight.is_some_and(|weight| weight > 0.0) {
        warn(
            "queue-weight-without-quota",
            format!(
                "{resource} has an overQuotaWeight but no quota: nothing is guaranteed; hint: write `quota: 0` if that is meant"
            ),
        );
    }
    let below = |value: Option<f64>, least: f64| value.is_some_and(|value| value < least);
    if below(quota, -1.0) || below(limit, -1.0) || below(weight, 0.0) {
        warn(
            "queue-negative",
            format!(
                "a quota, limit or weight of {resource} is negative; hint: only -1 has a meaning, for quota and limit"
            ),
        );
    }
}

/// A quota above the limit of a queue further up can never be used.
fn reach(
    document: &Document,
    queue: &Queue,
    resource: &str,
    pick: Pick,
    all: &[Queue],
    findings: &mut Vec<Finding>,
) {
    let of = |queue: &Queue| queue.spec.resources.as_ref().and_then(pick).unwrap_or_default();
    let Some(quota) = of(queue).quota.filter(|quota| *quota > 0.0) else { return };
    let mut at = queue.spec.parent_queue.as_str();
    // As many steps as there are queues: a cycle ends there.
    for _ in all {
        let Some(parent) = all.iter().find(|other| other.metadata.name.as_deref() == Some(at)) else {
            return;
        };
        if let Some(limit) = of(parent).limit.filter(|limit| *limit >= 0.0 && *limit < quota) {
            let message = format!(
                "the quota of {resource} ({quota}) is above the limit of queue `{at}` ({limit}) and can never be used \
                 completely; hint: raise that limit, or lower the quota"
            );
            findings.push(document.finding(Level::Warning, "queue-unreachable-quota", message));
            return;
        }
        at = &parent.spec.parent_queue;
    }
}
