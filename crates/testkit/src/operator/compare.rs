//! Compares the state of the cluster with the recorded one.

use super::State;
use super::cluster::Cluster;
use super::normalise::normalise;
use crate::recorded;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Kinds that the recordings contain.
const KINDS: [&str; 13] = [
    "ConfigMap",
    "DaemonSet",
    "Deployment",
    "EndpointSlice",
    "MutatingWebhookConfiguration",
    "PodDisruptionBudget",
    "Prometheus",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "ValidatingWebhookConfiguration",
    "VerticalPodAutoscaler",
];

/// A field that differs.
#[derive(Clone, Debug)]
pub(super) struct Mismatch {
    /// The object (`Kind/namespace/name`) and the path of the field, or `condition OWNER TYPE`.
    pub(super) place: String,
    /// The number of the step after which it differs.
    pub(super) step: usize,
    pub(super) kai: Value,
    pub(super) ours: Value,
}

impl Mismatch {
    /// The object, without the path of the field.
    pub(super) fn object(&self) -> &str {
        self.place.split(' ').next().unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.object().split('/').next().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.object().rsplit('/').next().unwrap_or_default()
    }

    /// The path of the field; empty for a whole object.
    pub(super) fn field(&self) -> &str {
        self.place.split_once(' ').map_or("", |(_, field)| field)
    }

    /// Kind and name of the owner of a condition.
    pub(super) fn condition_of(&self) -> Option<(&str, &str)> {
        self.place.strip_prefix("condition ")?.split(' ').next()?.split_once('/')
    }

    /// Whether only KAI lacks the object.
    pub(super) fn is_only_here(&self) -> bool {
        self.condition_of().is_none() && self.field().is_empty() && self.kai.is_null()
    }

    /// Whether only we lack the object.
    pub(super) fn is_only_there(&self) -> bool {
        self.condition_of().is_none() && self.field().is_empty() && self.ours.is_null()
    }

    /// Whether our condition says that something is wrong.
    pub(super) fn reports_failure(&self) -> bool {
        let failed = if self.place.ends_with(" Reconciling") { "True" } else { "False" };
        self.condition_of().is_some() && self.ours.get("status").and_then(Value::as_str) == Some(failed)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: KAI {}, here {}", self.place, short(&self.kai), short(&self.ours))?;
        if self.step > 0 { write!(f, " (after step {})", self.step + 1) } else { Ok(()) }
    }
}

fn short(value: &Value) -> String {
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The recorded objects with references to other states resolved.
pub(super) fn resolve(
    recorded: &BTreeMap<String, Value>,
    default: &BTreeMap<String, Value>,
    previous: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Value>> {
    let resolved = recorded.iter().map(|(key, value)| {
        let source = match value.get("$same").and_then(Value::as_str) {
            Some("default") => default.get(key),
            Some(_) => previous.get(key),
            None => Some(value),
        };
        let value = source.with_context(|| format!("no state has the object `{key}`"))?;
        Ok((key.clone(), value.clone()))
    });
    resolved.collect()
}

/// All differences of a state.
pub(super) fn compare(
    step: usize,
    expected: &State,
    objects: &BTreeMap<String, Value>,
    cluster: &Cluster<'_>,
) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let ours = cluster.objects.iter().filter(|(key, _)| KINDS.contains(&key.kind.as_str()));
    let ours: BTreeMap<String, Value> =
        ours.map(|(key, object)| (key.to_string(), normalise(object))).collect();
    let keys: BTreeSet<&String> = objects.keys().chain(ours.keys()).collect();
    for key in keys {
        if expected.nondeterministic && expected.sometimes.contains(key) {
            continue;
        }
        let kai = objects.get(key).map(normalise).unwrap_or_default();
        let here = ours.get(key).cloned().unwrap_or_default();
        let mut add = |place: &str, kai: &Value, ours: &Value| {
            found.push(Mismatch { place: place.to_owned(), step, kai: kai.clone(), ours: ours.clone() });
        };
        recorded::differences(key, &kai, &here, &mut add);
    }
    compare_conditions(step, expected, cluster, &mut found);
    if let Some(strategy) = &expected.queue_crd_conversion {
        let here = if cluster.queue_conversion { "Webhook" } else { "None" };
        if strategy != here {
            let place = "queue CRD conversion".to_owned();
            found.push(Mismatch { place, step, kai: strategy.as_str().into(), ours: here.into() });
        }
    }
    found
}

/// `2` and `2.0` are the same.
fn compare_conditions(step: usize, expected: &State, cluster: &Cluster<'_>, found: &mut Vec<Mismatch>) {
    let owners: BTreeSet<&String> = expected.conditions.keys().chain(cluster.conditions.keys()).collect();
    for owner in owners {
        let ours = cluster.conditions.get(owner).into_iter().flatten().map(|condition| {
            let value = serde_json::json!({
                "status": if condition.status { "True" } else { "False" },
                "reason": condition.reason,
                "message": condition.message.trim(),
                "observedGeneration": condition.observed_generation,
            });
            (condition.type_.to_owned(), value)
        });
        let ours: BTreeMap<String, Value> = ours.collect();
        let recorded = expected.conditions.get(owner).and_then(Option::as_ref);
        let recorded: BTreeMap<String, Value> =
            recorded.into_iter().flatten().map(recorded_condition).collect();
        let types: BTreeSet<&String> = ours.keys().chain(recorded.keys()).collect();
        for type_ in types {
            let kai = recorded.get(type_).cloned().unwrap_or_default();
            let mut here = ours.get(type_).cloned().unwrap_or_default();
            // Messages that the two recordings did not agree on are not recorded.
            if kai.is_object()
                && kai.get("message").is_none()
                && let Some(fields) = here.as_object_mut()
            {
                fields.remove("message");
            }
            if kai != here {
                found.push(Mismatch { place: format!("condition {owner} {type_}"), step, kai, ours: here });
            }
        }
    }
}

fn recorded_condition(condition: &Value) -> (String, Value) {
    let mut condition = condition.clone();
    let type_ = condition.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(fields) = condition.as_object_mut() {
        fields.remove("type");
        fields.remove("lastTransitionTime");
        if let Some(message) = fields.get_mut("message") {
            *message = Value::from(message.as_str().unwrap_or_default().trim());
        }
    }
    (type_, condition)
}
