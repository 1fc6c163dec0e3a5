//! The strategies of Deployments, `ReplicaSet`s, `StatefulSet`s and `DaemonSet`s.

use super::checks::{Errors, immutable, list, not_negative, number, one_of, part, selector, text};
use super::defaults::set;
use super::pod;
use crate::field::{Error, Path};
use crate::object;
use crate::selector::LabelSelector;
use serde_json::{Value, json};

const STATEFUL_SET_FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
const STATEFUL_SET_MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
/// The annotation with the template generation of a `DaemonSet`.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets kind and API version of volume claim templates.
pub(super) fn default_stateful_set(object: &mut Value) {
    let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten().filter_map(Value::as_object_mut) {
        set(claim, "apiVersion", json!("v1"));
        set(claim, "kind", json!("PersistentVolumeClaim"));
    }
}

/// Updates the template generation of a `DaemonSet`.
pub(super) fn count_templates(old: Option<&Value>, new: &mut Value) {
    let annotation = |object: &Value| -> i64 {
        let count = object::meta(object, "annotations").and_then(|all| all.get(TEMPLATE_GENERATION));
        count.and_then(Value::as_str).and_then(|count| count.parse().ok()).unwrap_or(1)
    };
    let count = match old {
        None => 1,
        Some(old) => {
            let changed = old.pointer("/spec/template") != new.pointer("/spec/template");
            annotation(old).saturating_add(i64::from(changed))
        }
    };
    let annotations = object::meta_mut(new).entry("annotations").or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION] = json!(count.to_string());
}

pub(super) fn validate_deployment(object: &Value) -> Errors {
    let path = Path::of("spec");
    let spec = part(object, "spec");
    let mut errors = Vec::new();
    not_negative(&mut errors, spec, &path, &["replicas"]);
    validate_selected(&mut errors, spec, &path, "deployment");
    let strategy = path.field("strategy");
    let own = part(spec, "strategy");
    match text(own, "type") {
        "Recreate" => {
            if own.get("rollingUpdate").is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(Error::forbidden(&strategy.field("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => validate_rolling(&mut errors, own, &strategy),
        other => {
            let known = ["Recreate", "RollingUpdate"];
            errors.push(Error::not_supported(&strategy.field("type"), other, &known));
        }
    }
    not_negative(&mut errors, spec, &path, &["minReadySeconds", "revisionHistoryLimit"]);
    not_negative(&mut errors, spec, &path, &["progressDeadlineSeconds"]);
    let ready = number(spec, "minReadySeconds").unwrap_or(0);
    if let Some(seconds) = number(spec, "progressDeadlineSeconds").filter(|seconds| *seconds <= ready) {
        let detail = "must be greater than minReadySeconds";
        errors.push(Error::invalid(&path.field("progressDeadlineSeconds"), seconds, detail));
    }
    errors
}

fn validate_rolling(errors: &mut Errors, strategy: &Value, path: &Path<'_>) {
    let path = path.field("rollingUpdate");
    let own = part(strategy, "rollingUpdate");
    for field in ["maxSurge", "maxUnavailable"] {
        int_or_percent(errors, own.get(field), &path.field(field));
    }
    let none = |field: &str| matches!(part(own, field).to_string().as_str(), "0" | "\"0%\"");
    if none("maxUnavailable") && none("maxSurge") {
        let value = own["maxUnavailable"].clone();
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(Error::invalid(&path.field("maxUnavailable"), value, detail));
    }
}

/// Validates an `IntOrString`: a non-negative integer, or a percentage of at most 100%.
pub(super) fn int_or_percent(errors: &mut Errors, value: Option<&Value>, path: &Path<'_>) {
    match value {
        Some(Value::String(text)) => {
            let share = text.strip_suffix('%').and_then(|share| share.parse::<u32>().ok());
            match share {
                Some(0..=100) => {}
                Some(_) => {
                    errors.push(Error::invalid(path, text.as_str(), "must not be greater than 100%"));
                }
                None => {
                    let message = "a valid percent string must be a numeric string followed by an ending '%'";
                    let detail = crate::names::with_examples(message, "[0-9]+%", &["1%", "93%"]);
                    errors.push(Error::invalid(path, text.as_str(), detail));
                }
            }
        }
        Some(Value::Number(number)) => {
            if let Some(number) = number.as_i64().filter(|number| *number < 0) {
                errors.push(Error::invalid(path, number, "must be greater than or equal to 0"));
            }
        }
        Some(_) | None => {}
    }
}

pub(super) fn validate_replica_set(object: &Value) -> Errors {
    let path = Path::of("spec");
    let spec = part(object, "spec");
    let mut errors = Vec::new();
    not_negative(&mut errors, spec, &path, &["replicas", "minReadySeconds"]);
    validate_selected(&mut errors, spec, &path, "deployment");
    errors
}

pub(super) fn validate_stateful_set(object: &Value) -> Errors {
    let path = Path::of("spec");
    let spec = part(object, "spec");
    let mut errors = Vec::new();
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(Error::invalid(&path.field("podManagementPolicy"), policy, detail));
    }
    let strategy = path.field("updateStrategy");
    one_of(&mut errors, part(spec, "updateStrategy"), &strategy, "type", &["RollingUpdate", "OnDelete"]);
    not_negative(&mut errors, spec, &path, &["replicas", "minReadySeconds"]);
    validate_selected(&mut errors, spec, &path, "statefulset");
    errors
}

pub(super) fn validate_daemon_set(object: &Value) -> Errors {
    let path = Path::of("spec");
    let spec = part(object, "spec");
    let mut errors = Vec::new();
    validate_selected(&mut errors, spec, &path, "daemonset");
    not_negative(&mut errors, spec, &path, &["minReadySeconds"]);
    let strategy = path.field("updateStrategy");
    one_of(&mut errors, part(spec, "updateStrategy"), &strategy, "type", &["RollingUpdate", "OnDelete"]);
    not_negative(&mut errors, spec, &path, &["revisionHistoryLimit"]);
    errors
}

/// Validates that the selector matches the template labels, and that the restart policy is `Always`.
fn validate_selected(errors: &mut Errors, spec: &Value, path: &Path<'_>, kind: &str) {
    let at = path.field("selector");
    let own = part(spec, "selector");
    if own.is_null() {
        errors.push(Error::required(&at, ""));
    } else {
        selector(errors, own, &at);
        let empty = list(own, "matchExpressions").is_empty()
            && part(own, "matchLabels").as_object().is_none_or(serde_json::Map::is_empty);
        if empty {
            let detail = format!("empty selector is invalid for {kind}");
            errors.push(Error::invalid(&at, own.clone(), detail));
        }
    }
    match LabelSelector::from_object(own) {
        Ok(selector) => validate_template(errors, spec, path, Some(&selector)),
        Err(_) => errors.push(Error::invalid(&at, own.clone(), "invalid label selector")),
    }
}

fn validate_template(errors: &mut Errors, spec: &Value, path: &Path<'_>, selector: Option<&LabelSelector>) {
    let template = part(spec, "template");
    let path = path.field("template");
    let labels = part(part(template, "metadata"), "labels");
    if let Some(selector) = selector
        && !selector.is_everything()
        && !selector.matches(labels.as_object())
    {
        let metadata = path.field("metadata");
        let detail = "`selector` does not match template `labels`";
        errors.push(Error::invalid(&metadata.field("labels"), labels.clone(), detail));
    }
    errors.extend(pod::validate_template(template, &path));
    let policy = text(part(template, "spec"), "restartPolicy");
    let path = path.field("spec");
    if matches!(policy, "OnFailure" | "Never") {
        errors.push(Error::not_supported(&path.field("restartPolicy"), policy, &["Always"]));
    }
    if part(template, "spec").get("activeDeadlineSeconds").is_some() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(Error::forbidden(&path.field("activeDeadlineSeconds"), detail));
    }
}

/// The selector is immutable.
pub(super) fn validate_selector_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    immutable(&mut errors, part(old, "spec"), part(new, "spec"), &Path::of("spec"), "selector");
    errors
}

/// Only some fields of a `StatefulSet` are mutable.
pub(super) fn validate_stateful_set_change(old: &Value, new: &Value) -> Errors {
    let fixed = |object: &Value| {
        let mut spec = part(object, "spec").as_object().cloned().unwrap_or_default();
        for field in STATEFUL_SET_MUTABLE {
            spec.remove(field);
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Vec::new();
    }
    vec![Error::forbidden(&Path::of("spec"), STATEFUL_SET_FIXED)]
}

pub(super) fn validate_revision(revision: &Value) -> Errors {
    let mut errors = Vec::new();
    if revision.get("data").is_none_or(Value::is_null) {
        errors.push(Error::required(&Path::of("data"), "data is mandatory"));
    }
    not_negative(&mut errors, revision, &Path::ROOT, &["revision"]);
    errors
}

/// Validates the replica counts of a status.
pub(super) fn validate_status(object: &Value) -> Errors {
    let path = Path::of("status");
    let status = part(object, "status");
    let mut errors = Vec::new();
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "currentReplicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ];
    not_negative(&mut errors, status, &path, &["observedGeneration"]);
    not_negative(&mut errors, status, &path, &counts);
    let replicas = number(status, "replicas").unwrap_or(0);
    for field in ["fullyLabeledReplicas", "currentReplicas", "updatedReplicas", "readyReplicas"] {
        exceeds(&mut errors, status, &path, field, ("status.replicas", replicas));
    }
    exceeds(&mut errors, status, &path, "availableReplicas", ("status.replicas", replicas));
    let ready = number(status, "readyReplicas").unwrap_or(0);
    exceeds(&mut errors, status, &path, "availableReplicas", ("readyReplicas", ready));
    errors
}

fn exceeds(errors: &mut Errors, status: &Value, path: &Path<'_>, field: &str, most: (&str, i64)) {
    if let Some(count) = number(status, field).filter(|count| *count > most.1) {
        let detail = format!("cannot be greater than {}", most.0);
        errors.push(Error::invalid(&path.field(field), count, detail));
    }
}
