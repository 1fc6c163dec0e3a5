//! Conditions of the `Config` and of shards.
//!
//! Types, reasons and texts are KAI's. Other than there, `Deployed` and `Ready` are false and `Reconciling` stays true while
//! something cannot be deployed, and `Available` is false while a rollout has not been observed.

use crate::{Object, ObjectKey, Operand};
use serde_json::Value;
use std::collections::BTreeMap;

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub type_: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: i64,
}

/// What the conditions of an owner follow from.
pub struct Observed<'a> {
    pub generation: i64,
    pub operands: &'a [Operand],
    /// Current objects.
    pub objects: &'a BTreeMap<ObjectKey, Value>,
    /// Objects that are owned although their operand has an error: the last good state.
    pub kept: Vec<&'a Value>,
    /// Writes that failed, each with the object.
    pub failures: &'a [String],
    /// Whether an external Prometheus is reachable, or why not; `None` where there is none, or it has not been asked.
    pub external_prometheus: Option<&'a Result<(), String>>,
}

/// The conditions, sorted by type.
pub fn conditions(observed: &Observed<'_>) -> Vec<Condition> {
    let condition = |type_, status, reason, message: String| Condition {
        type_,
        status,
        reason,
        message,
        observed_generation: observed.generation,
    };
    let errors: Vec<String> = observed
        .operands
        .iter()
        .filter_map(|operand| operand.error.as_ref().map(|error| format!("{}: {error}", operand.name)))
        .chain(observed.failures.iter().cloned())
        .collect();
    let unavailable = unavailable(observed);
    let undeployed = undeployed(observed);
    let missing = missing(observed.operands);
    let available = unavailable.is_empty();
    let ready = available && undeployed.is_empty() && errors.is_empty();
    let message = |problems: &[String], fine: &str| match problems {
        [] => fine.to_owned(),
        problems => problems.join("\n"),
    };
    vec![
        condition(
            "Available",
            available,
            available_reason(observed, available),
            message(&unavailable, "System available"),
        ),
        condition(
            "DependenciesFulfilled",
            missing.is_empty(),
            if missing.is_empty() { "dependencies_fulfilled" } else { "dependencies_missing" },
            message(&missing, "Dependencies are fulfilled"),
        ),
        condition("Deployed", undeployed.is_empty(), "deployed", message(&undeployed, "Resources deployed")),
        condition(
            "Ready",
            ready,
            if ready { "ready" } else { "not_ready" },
            if ready { "System is ready" } else { "System not ready" }.to_owned(),
        ),
        condition(
            "Reconciling",
            !errors.is_empty(),
            if errors.is_empty() { "reconciled" } else { "reconcile_failed" },
            message(&errors, "Reconciliation completed successfully"),
        ),
    ]
}

/// The conditions while an object cannot be read at all.
pub fn unreadable(generation: i64, error: &str) -> Vec<Condition> {
    let operand = Operand { name: "Settings", error: Some(error.to_owned()), ..Operand::default() };
    conditions(&Observed {
        generation,
        operands: &[operand],
        objects: &BTreeMap::new(),
        kept: Vec::new(),
        failures: &[],
        external_prometheus: None,
    })
}

/// The reasons of KAI's probe of an external Prometheus, which writes the same condition.
fn available_reason(observed: &Observed<'_>, available: bool) -> &'static str {
    let is_external = observed.operands.iter().any(|operand| operand.name == "KAI-prometheus");
    match observed.external_prometheus.filter(|_| is_external) {
        Some(Err(_)) => "prometheus_connection_failed",
        Some(Ok(())) if available => "prometheus_connected",
        Some(Ok(())) | None => "available",
    }
}

fn missing(operands: &[Operand]) -> Vec<String> {
    let all = operands.iter().flat_map(|operand| {
        operand.missing.iter().map(|dependency| format!("{} is missing {dependency}", operand.name))
    });
    all.collect()
}

fn undeployed(observed: &Observed<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for operand in observed.operands {
        if let Some(error) = operand.error.as_ref().or(operand.waiting.as_ref()) {
            problems.push(format!("{}: {error}", operand.name));
        } else if operand.objects.iter().any(|object| !observed.objects.contains_key(&ObjectKey::of(object)))
        {
            problems.push(format!("{}: not deployed", operand.name));
        }
    }
    problems
}

fn unavailable(observed: &Observed<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for operand in observed.operands {
        let mut details = Vec::new();
        let mut available = true;
        let mut check = |object: &Object| match observed.objects.get(&ObjectKey::of(object)) {
            None => {
                available = false;
                details.push(not_found(object));
            }
            Some(current) => match availability(current) {
                Availability::Available => {}
                Availability::Unknown => available = false,
                Availability::Unavailable => {
                    available = false;
                    let kind = kai_object::kind(current);
                    details.push(format!("{kind} [{}] is not available", kai_object::name(current)));
                }
            },
        };
        operand.objects.iter().for_each(&mut check);
        if let Some(error) = &operand.error {
            observed.kept.iter().copied().for_each(&mut check);
            if !observed.kept.iter().any(|object| kai_object::kind(object) == "Deployment") {
                available = false;
                details.push(error.clone());
            }
        }
        if let Some(waiting) = &operand.waiting {
            available = false;
            details.push(waiting.clone());
        }
        if let Some(process) = &operand.runs_in
            && !observed.objects.get(process).is_some_and(is_available)
        {
            available = false;
            details.push(format!("{} [{}] is not available", process.kind, process.name));
        }
        if operand.name == "KAI-prometheus"
            && let Some(Err(error)) = observed.external_prometheus
        {
            available = false;
            details.push(error.clone());
        }
        if !available {
            if !details.is_empty() {
                problems.push(format!("{}: {}", operand.name, details.join("\n")));
            }
            problems.push(format!("{}: not available", operand.name));
        }
    }
    problems
}

fn not_found(object: &Object) -> String {
    let group = kai_object::api_version(object).split_once('/').map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group} \"{}\" not found", kai_object::kind(object), kai_object::name(object))
}

/// Whether the pods of an object run as it describes.
pub(crate) fn is_available(object: &Value) -> bool {
    matches!(availability(object), Availability::Available)
}

enum Availability {
    Available,
    Unavailable,
    /// The object does not say.
    Unknown,
}

fn availability(object: &Value) -> Availability {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let observed = number("/status/observedGeneration");
    let outdated = observed.is_some_and(|observed| observed < kai_object::generation(object));
    match kai_object::kind(object) {
        "Deployment" => {
            let replicas = number("/spec/replicas").unwrap_or(1);
            let updated = number("/status/updatedReplicas").unwrap_or(0) == replicas;
            yes_or_no(!outdated && updated && has_condition(object, "Available"))
        }
        "DaemonSet" => {
            let wanted = number("/status/desiredNumberScheduled").unwrap_or(0);
            let available = number("/status/numberAvailable").unwrap_or(0);
            yes_or_no(!outdated && wanted == available)
        }
        "Prometheus" if has_condition(object, "Available") => Availability::Available,
        "Prometheus" => Availability::Unknown,
        _ => Availability::Available,
    }
}

fn yes_or_no(available: bool) -> Availability {
    if available { Availability::Available } else { Availability::Unavailable }
}

fn has_condition(object: &Value, type_: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some(type_)
            && condition.get("status").and_then(Value::as_str) == Some("True")
    })
}
