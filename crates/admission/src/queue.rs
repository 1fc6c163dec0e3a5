//! Validation of queues.
//!
//! A queue must have `spec.resources`, its parents must not lead back to it, and one with children, pods or pod groups in
//! use cannot be deleted. Quotas that exceed the parent's are warnings, where quota validation is enabled; an unlimited quota is never
//! exceeded.

pub mod bounds;

use crate::review::{self, Cause, Operation, Request, Verdict};
use axum::Router;
use bounds::{Pick, RESOURCES};
use kai_api::queue::{QueueResource, QueueResources};
use kai_api::{PodGroup, Queue};
use kai_runtime::ResourceKind;
use kai_runtime::api::{self, Api};
use kai_runtime::url::query_value;
use kai_units::Quantity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The path of KAI's webhook.
pub const PATH: &str = "/validate-scheduling-run-ai-v2-queue";

pub fn router(api: Api, quotas: QuotaValidation) -> Router {
    review::route(PATH, move |request| {
        let api = api.clone();
        async move { validate(&api, quotas, &request).await }
    })
}

/// Pod groups that one request lists; a deletion ends at the first that uses the queue.
const GROUPS_PER_REQUEST: usize = 500;
/// Time for listing them, within the usual limit of a webhook call.
const GROUPS_TIMEOUT: Duration = Duration::from_secs(6);

/// Whether quotas of parents and children are compared (KAI's flag `enable-quota-validation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaValidation {
    Enabled,
    Disabled,
}

/// A change of a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Create(Box<Queue>),
    Update { old: Box<Queue>, new: Box<Queue> },
    Delete(Box<Queue>),
}

impl Change {
    /// The change that a request makes; none for a CONNECT.
    pub fn of(request: &Request) -> Result<Option<Self>, Verdict> {
        Ok(match request.operation {
            Operation::Create => Some(Self::Create(decode(&request.object)?)),
            Operation::Update => {
                Some(Self::Update { old: decode(&request.old_object)?, new: decode(&request.object)? })
            }
            Operation::Delete => Some(Self::Delete(decode(&request.old_object)?)),
            Operation::Connect => None,
        })
    }

    /// Warnings about the bounds of the queue. An update of something else repeats none.
    pub fn warnings(&self) -> Vec<String> {
        let (new, old) = match self {
            Self::Create(new) => (new, None),
            Self::Update { old, new } => (new, Some(old)),
            Self::Delete(_) => return Vec::new(),
        };
        let is_same = old.is_some_and(|old| old.spec.resources == new.spec.resources);
        new.spec.resources.as_ref().filter(|_| !is_same).map(bounds::warnings).unwrap_or_default()
    }

    /// Whether the rules read other queues.
    fn reads_others(&self, quotas: QuotaValidation) -> bool {
        match self {
            Self::Create(new) | Self::Update { new, .. } => {
                new.spec.resources.is_some()
                    && (quotas == QuotaValidation::Enabled || !new.spec.parent_queue.is_empty())
            }
            Self::Delete(_) => true,
        }
    }
}

/// A queue whose durations can be parsed; its definition accepts any text for them.
pub fn decode(object: &Value) -> Result<Box<Queue>, Verdict> {
    let queue: Box<Queue> = review::decode("queue", object)?;
    let durations = [
        ("preemptMinRuntime", &queue.spec.preempt_min_runtime),
        ("reclaimMinRuntime", &queue.spec.reclaim_min_runtime),
    ];
    review::check_durations(durations)?;
    Ok(queue)
}

async fn validate(api: &Api, quotas: QuotaValidation, request: &Request) -> Verdict {
    let change = match Change::of(request) {
        Ok(Some(change)) => change,
        Ok(None) => return Verdict::default(),
        Err(verdict) => return verdict,
    };
    let mut verdict = if change.reads_others(quotas) {
        match api.list::<Queue>("").await {
            Ok(list) => check(&change, quotas, &list.items),
            Err(error) => Verdict::refused(
                Cause::Unavailable,
                format!("the other queues cannot be listed: {error}; hint: try again"),
            ),
        }
    } else {
        check(&change, quotas, &[])
    };
    if verdict.is_allowed() {
        verdict.warnings.extend(change.warnings());
    }
    match &change {
        Change::Delete(queue) if verdict.is_allowed() => without_groups(api, name_of(queue), verdict).await,
        Change::Create(_) | Change::Update { .. } | Change::Delete(_) => verdict,
    }
}

/// The verdict on a deletion that nothing else forbids: the status of a queue may not be written yet, and tells nothing of
/// pods without requests.
async fn without_groups(api: &Api, queue: &str, mut verdict: Verdict) -> Verdict {
    match tokio::time::timeout(GROUPS_TIMEOUT, group_in_use(api, queue)).await {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(group))) => verdict.errors.push(format!(
            "queue `{queue}` is named by pod group `{group}`, whose pods could not run without it; hint: delete the workload of \
             that pod group or move it to another queue first"
        )),
        Ok(Err(error)) => {
            return Verdict::refused(
                Cause::Unavailable,
                format!("the pod groups cannot be listed: {error}; hint: try again"),
            );
        }
        Err(_) => verdict.warnings.push(format!(
            "not all pod groups could be listed in {} s: some may name queue `{queue}`; hint: check `spec.queue` of the \
             pod groups",
            GROUPS_TIMEOUT.as_secs()
        )),
    }
    verdict
}

/// A pod group that uses the queue.
async fn group_in_use(api: &Api, queue: &str) -> api::Result<Option<String>> {
    let path = ResourceKind::of::<PodGroup>().path("");
    let mut next = String::new();
    loop {
        let page = if next.is_empty() { String::new() } else { format!("&continue={}", query_value(&next)) };
        let listed = match api.send("GET", &format!("{path}?limit={GROUPS_PER_REQUEST}{page}"), None).await {
            // Without their definition there are none.
            Err(error) if error.is_not_found() => return Ok(None),
            listed => listed?,
        };
        let mut items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
        if let Some(group) = items.find(|group| uses(group, queue)) {
            let namespace = kai_object::meta_str(group, "namespace");
            return Ok(Some(format!("{namespace}/{}", kai_object::name(group))));
        }
        kai_object::meta_str(&listed, "continue").clone_into(&mut next);
        if next.is_empty() {
            return Ok(None);
        }
    }
}

/// Whether a pod group is in a queue, and has pods or may get them: its resources are not counted yet, or not zero. Those
/// of a workload that has ended were counted and are zero.
pub fn uses(group: &Value, queue: &str) -> bool {
    if kai_object::str_at(group, "/spec/queue") != queue
        || kai_object::meta(group, "deletionTimestamp").is_some_and(|at| !at.is_null())
    {
        return false;
    }
    let Some(resources) = group.pointer("/status/resourcesStatus").and_then(Value::as_object) else {
        return true;
    };
    let mut amounts = resources.values().filter_map(Value::as_object).flat_map(|amounts| amounts.values());
    amounts.any(|amount| {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        text.parse::<Quantity>().is_ok_and(|amount| !amount.is_zero())
    })
}

/// Validates a change against all queues.
pub fn check(change: &Change, quotas: QuotaValidation, all: &[Queue]) -> Verdict {
    match change {
        Change::Delete(queue) => deletion(queue, all),
        Change::Create(queue) => definition(queue, None, quotas, all),
        Change::Update { old, new } => definition(new, Some(old), quotas, all),
    }
}

fn deletion(queue: &Queue, all: &[Queue]) -> Verdict {
    let name = name_of(queue);
    let children: Vec<&str> = children(name, all).map(name_of).collect();
    if !children.is_empty() {
        return Verdict::denied(format!(
            "queue `{name}` has child queues: `{}`; hint: delete those first",
            children.join("`, `")
        ));
    }
    let amounts =
        queue.status.iter().flat_map(|status| status.requested.values().chain(status.allocated.values()));
    let mut amounts = amounts.filter_map(|amount| amount.0.parse::<Quantity>().ok());
    if amounts.any(|amount| !amount.is_zero()) {
        return Verdict::denied(format!(
            "queue `{name}` has pods, which could not run without it; hint: delete them or move them to another queue \
             first (`kai queues` shows what runs)"
        ));
    }
    Verdict::default()
}

fn definition(queue: &Queue, old: Option<&Queue>, quotas: QuotaValidation, all: &[Queue]) -> Verdict {
    let name = name_of(queue);
    let Some(own) = queue.spec.resources else {
        let problem =
            format!("queue `{name}` has no `spec.resources`; hint: write `resources: {{}}` at least");
        return Verdict { errors: vec![problem.clone()], warnings: vec![problem], ..Verdict::default() };
    };
    // An update of something else may repair a queue that is part of a cycle already.
    let moved = old.is_none_or(|old| old.spec.parent_queue != queue.spec.parent_queue);
    if let Some(problem) = cycle(queue, all).filter(|_| moved) {
        return Verdict::denied(problem);
    }
    match quotas {
        QuotaValidation::Disabled => Verdict::default(),
        QuotaValidation::Enabled => compare(queue, own, all),
    }
}

/// The queues below a queue. Terminating ones do not count, since nothing is left to delete or to guarantee; they are
/// still parents of others.
fn children<'a>(name: &str, all: &'a [Queue]) -> impl Iterator<Item = &'a Queue> {
    all.iter().filter(move |other| {
        other.spec.parent_queue == name && !name.is_empty() && other.metadata.deletion_timestamp.is_none()
    })
}

/// Why the parents of a queue lead back to it.
fn cycle(queue: &Queue, all: &[Queue]) -> Option<String> {
    let name = name_of(queue);
    let mut at = queue.spec.parent_queue.as_str();
    if at.is_empty() {
        return None;
    }
    let parents: BTreeMap<&str, &str> =
        all.iter().map(|other| (name_of(other), other.spec.parent_queue.as_str())).collect();
    let mut seen = BTreeSet::new();
    let mut path = Vec::new();
    while !at.is_empty() && seen.insert(at) {
        path.push(at);
        if at == name {
            return Some(format!(
                "queue `{name}` would be below itself: its parents are `{}`; hint: choose a parent that is not below it, \
                 or none",
                path.join("`, `")
            ));
        }
        at = parents.get(at).copied().unwrap_or_default();
    }
    None
}

fn compare(queue: &Queue, own: QueueResources, all: &[Queue]) -> Verdict {
    let name = name_of(queue);
    let parent = queue.spec.parent_queue.as_str();
    let mut warnings = Vec::new();
    if !parent.is_empty() {
        let Some(found) = all.iter().find(|other| name_of(other) == parent) else {
            return Verdict::refused(
                Cause::NotFound,
                format!(
                    "queue `{name}` is below `{parent}`, which does not exist; hint: create `{parent}` first"
                ),
            );
        };
        let Some(of_parent) = found.spec.resources else {
            return Verdict::denied(format!(
                "queue `{parent}`, which `{name}` is below, has no `spec.resources`; hint: write `resources: {{}}` there"
            ));
        };
        let siblings: Vec<&Queue> = children(parent, all).filter(|other| name_of(other) != name).collect();
        for (resource, pick) in RESOURCES {
            let (whole, part) = (quota(pick(&of_parent)), quota(pick(&own)));
            if part > whole {
                warnings.push(exceeds(&format!("queue `{name}`"), part, resource, parent, whole));
            }
            let sum = siblings.iter().fold(part, |sum, other| sum + quota_of(other, pick));
            if sum > whole {
                warnings.push(exceeds(&format!("all queues below `{parent}`"), sum, resource, parent, whole));
            }
        }
    }
    let children: Vec<&Queue> = children(name, all).collect();
    for (resource, pick) in RESOURCES {
        let whole = quota(pick(&own));
        for child in &children {
            let part = quota_of(child, pick);
            if part > whole {
                warnings.push(exceeds(&format!("queue `{}`", name_of(child)), part, resource, name, whole));
            }
        }
        let sum: f64 = children.iter().map(|child| quota_of(child, pick)).sum();
        if sum > whole {
            warnings.push(exceeds(&format!("all queues below `{name}`"), sum, resource, name, whole));
        }
    }
    Verdict { warnings, ..Verdict::default() }
}

fn exceeds(what: &str, part: f64, resource: &str, of: &str, whole: f64) -> String {
    let part = if part.is_finite() { part.to_string() } else { "unlimited".to_owned() };
    format!(
        "{resource} quota of {what} is {part}, but queue `{of}` has {whole}: not all of it is guaranteed; hint: raise the \
         quota of `{of}`, or lower this one"
    )
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
