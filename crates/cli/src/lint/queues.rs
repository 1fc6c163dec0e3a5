//! Rules for queues: those of admission, and bounds that contradict each other.

use super::finding::{Finding, Level};
use crate::documents::Document;
use kai_admission::queue::bounds::{self, Pick, RESOURCES, Rule};
use kai_admission::queue::{self, Change, QuotaValidation};
use kai_admission::review::Cause;
use kai_api::Queue;

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
            let problems = bounds::check(resource, queue.spec.resources.as_ref().and_then(pick));
            findings.extend(
                problems
                    .into_iter()
                    .map(|(rule, message)| document.finding(Level::Warning, id(rule), message)),
            );
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

/// The stable id of a rule.
fn id(rule: Rule) -> &'static str {
    match rule {
        Rule::NoLimit => "queue-no-limit",
        Rule::ZeroLimit => "queue-zero-limit",
        Rule::LimitBelowQuota => "queue-limit-below-quota",
        Rule::WeightWithoutQuota => "queue-weight-without-quota",
        Rule::Negative => "queue-negative",
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
