//! Validation of queues.
//!
//! A queue must have `spec.resources`, and one with children cannot be deleted. Quotas that exceed the parent's are
//! warnings, where quota validation is enabled; an unlimited quota is never exceeded.

use crate::review::{self, Operation, Request, Verdict};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use kai_api::Queue;
use kai_api::queue::{QueueResource, QueueResources};
use kai_runtime::api::Api;
use serde::Deserialize;

/// The path of KAI's webhook.
pub const PATH: &str = "/validate-scheduling-run-ai-v2-queue";

pub fn router(api: Api, quotas: QuotaValidation) -> Router {
    let handler = move |body: Bytes| async move {
        review::respond(&body, |request| validate(api, quotas, request)).await
    };
    Router::new().route(PATH, post(handler))
}

/// Whether quotas of parents and children are compared (KAI's flag `enable-quota-validation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaValidation {
    Enabled,
    Disabled,
}

async fn validate(api: Api, quotas: QuotaValidation, request: Request) -> Verdict {
    let (new, old) = (Queue::deserialize(&request.object), Queue::deserialize(&request.old_object));
    let queue = match request.operation {
        Operation::Create | Operation::Update => new,
        Operation::Delete => old,
        Operation::Connect => return Verdict::default(),
    };
    let queue = match queue {
        Ok(queue) => queue,
        Err(error) => return Verdict::denied(format!("the queue is invalid: {error}")),
    };
    if request.operation != Operation::Delete
        && (quotas == QuotaValidation::Disabled || queue.spec.resources.is_none())
    {
        return check(&queue, request.operation, quotas, &[]);
    }
    match api.list::<Queue>("").await {
        Ok(list) => {
            let is_active = |other: &Queue| other.metadata.deletion_timestamp.is_none();
            let others: Vec<Queue> = list.items.into_iter().filter(is_active).collect();
            check(&queue, request.operation, quotas, &others)
        }
        Err(error) => Verdict::denied(format!("the other queues cannot be listed: {error}; hint: try again")),
    }
}

/// Validates a create, update or delete of a queue against all queues.
pub fn check(queue: &Queue, operation: Operation, quotas: QuotaValidation, all: &[Queue]) -> Verdict {
    let name = name_of(queue);
    let children: Vec<&Queue> = all.iter().filter(|other| other.spec.parent_queue == name).collect();
    match operation {
        Operation::Delete if children.is_empty() => Verdict::default(),
        Operation::Delete => {
            let names: Vec<&str> = children.iter().map(|child| name_of(child)).collect();
            Verdict::denied(format!(
                "queue `{name}` has child queues: `{}`; hint: delete those first",
                names.join("`, `")
            ))
        }
        Operation::Connect => Verdict::default(),
        Operation::Create | Operation::Update => {
            let Some(own) = queue.spec.resources else {
                let problem =
                    format!("queue `{name}` has no `spec.resources`; hint: write `resources: {{}}` at least");
                return Verdict { errors: vec![problem.clone()], warnings: vec![problem] };
            };
            match quotas {
                QuotaValidation::Disabled => Verdict::default(),
                QuotaValidation::Enabled => compare(queue, own, &children, all),
            }
        }
    }
}

type Pick = fn(&QueueResources) -> Option<QueueResource>;

const RESOURCES: [(&str, Pick); 3] = [("cpu", |of| of.cpu), ("gpu", |of| of.gpu), ("memory", |of| of.memory)];

fn compare(queue: &Queue, own: QueueResources, children: &[&Queue], all: &[Queue]) -> Verdict {
    let name = name_of(queue);
    let mut verdict = Verdict::default();
    let parent = queue.spec.parent_queue.as_str();
    if !parent.is_empty() {
        let Some(found) = all.iter().find(|other| name_of(other) == parent) else {
            return Verdict::denied(format!("queue `{name}` is part of `{parent}`, which does not exist"));
        };
        let Some(of_parent) = found.spec.resources else {
            return Verdict::denied(format!(
                "queue `{parent}`, which `{name}` is part of, has no `spec.resources`"
            ));
        };
        let siblings = all.iter().filter(|other| other.spec.parent_queue == parent && name_of(other) != name);
        for (resource, pick) in RESOURCES {
            let (whole, part) = (quota(pick(&of_parent)), quota(pick(&own)));
            if part > whole {
                verdict
                    .warnings
                    .push(format!("quota of {resource} of queue `{name}` is more than that of `{parent}`"));
            }
            let sum = siblings.clone().fold(part, |sum, other| sum + quota_of(other, pick));
            if sum > whole && resource == "cpu" {
                verdict.warnings.push(format!(
                    "quotas of {resource} of the parts of queue `{parent}` are more than its own"
                ));
            }
        }
    }
    for (resource, pick) in RESOURCES {
        let whole = quota(pick(&own));
        for child in children.iter().filter(|child| resource == "cpu" && quota_of(child, pick) > whole) {
            let child = name_of(child);
            verdict
                .warnings
                .push(format!("quota of {resource} of queue `{child}` is more than that of `{name}`"));
        }
        let sum: f64 = children.iter().map(|child| quota_of(child, pick)).sum();
        if sum > whole {
            verdict
                .warnings
                .push(format!("quotas of {resource} of the parts of queue `{name}` are more than its own"));
        }
    }
    verdict
}

fn quota_of(queue: &Queue, pick: Pick) -> f64 {
    quota(queue.spec.resources.as_ref().and_then(pick))
}

/// A negative quota is unlimited.
fn quota(of: Option<QueueResource>) -> f64 {
    let quota = of.and_then(|of| of.quota).unwrap_or(0.0);
    if quota < 0.0 { f64::INFINITY } else { quota }
}

fn name_of(queue: &Queue) -> &str {
    queue.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
