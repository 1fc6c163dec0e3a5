//! The strategies of Jobs and `CronJob`s.

use super::checks::{Errors, immutable, list, not_negative, number, one_of, part, text};
use super::defaults::set;
use super::{cron, pod};
use crate::field::{Error, Path};
use crate::object;
use serde_json::{Value, json};

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Maximum length of a `CronJob` name: Job names append eleven characters.
const CRON_JOB_NAME_MAX: usize = 52;

/// Defaults completions, parallelism and backoff limit.
pub(super) fn default(job: &mut Value) {
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        set(spec, "completions", json!(1));
    }
    set(spec, "parallelism", json!(1));
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set(spec, "backoffLimit", json!(limit));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "suspend", json!(false));
    set(spec, "manualSelector", json!(false));
    let replace = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", json!(replace));
}

/// Generates the selector and the pod labels.
pub(super) fn prepare_create(job: &mut Value) {
    let (uid, name) = (object::uid(job).to_owned(), object::name(job).to_owned());
    let by_hand = job.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    if !by_hand && let Some(spec) = job.get_mut("spec") {
        let labels = object::map_mut(part_mut(part_mut(spec, "template"), "metadata"), "labels");
        for (key, value) in
            [("controller-uid", &uid), (CONTROLLER_UID, &uid), ("job-name", &name), (JOB_NAME, &name)]
        {
            labels.insert(key.to_owned(), json!(value));
        }
        let selected = object::map_mut(part_mut(spec, "selector"), "matchLabels");
        selected.insert(CONTROLLER_UID.to_owned(), json!(uid));
    }
    let labels = job.pointer("/spec/template/metadata/labels").cloned();
    if let Some(labels) = labels {
        set(object::meta_mut(job), "labels", labels);
    }
}

/// A field, created if it is missing.
fn part_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    object::map_mut(object, field);
    &mut object[field]
}

pub(super) fn validate(job: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(job, "spec");
    let by_hand = spec.get("manualSelector") == Some(&Value::Bool(true));
    let own = json!({"matchLabels": {CONTROLLER_UID: object::uid(job)}});
    if !by_hand && spec.get("selector") != Some(&own) {
        let value = part(spec, "selector").clone();
        errors.push(Error::invalid(&path.field("selector"), value, "`selector` not auto-generated"));
    }
    if by_hand && spec.get("selector").is_none() {
        errors.push(Error::required(&path.field("selector"), ""));
    }
    errors.extend(validate_spec(spec, &path));
    errors
}

fn validate_spec(spec: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(&mut errors, spec, path, &counts);
    one_of(&mut errors, spec, path, "completionMode", &["NonIndexed", "Indexed"]);
    if text(spec, "completionMode") == "Indexed" {
        if spec.get("completions").is_none() {
            let detail = "when completion mode is Indexed";
            errors.push(Error::required(&path.field("completions"), detail));
        }
    } else if let Some(limit) = number(spec, "backoffLimitPerIndex") {
        let detail = "requires indexed completion mode";
        errors.push(Error::invalid(&path.field("backoffLimitPerIndex"), limit, detail));
    }
    one_of(&mut errors, spec, path, "podReplacementPolicy", &["Failed", "TerminatingOrFailed"]);
    let template = part(spec, "template");
    let at = path.field("template");
    errors.extend(pod::validate_template(template, &at));
    let policy = text(part(template, "spec"), "restartPolicy");
    if matches!(policy, "" | "Always") {
        let at = at.field("spec");
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(Error::required(&at.field("restartPolicy"), detail));
    } else if policy != "Never" && spec.get("podFailurePolicy").is_some() {
        let at = at.field("spec");
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(Error::invalid(&at.field("restartPolicy"), policy, detail));
    }
    errors
}

pub(super) fn validate_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let (was, is) = (part(old, "spec"), part(new, "spec"));
    // An indexed job is elastic if completions and parallelism change together (KEP-3715).
    let elastic = text(is, "completionMode") == "Indexed"
        && is.get("completions").is_some()
        && is.get("completions") == is.get("parallelism");
    if !elastic {
        immutable(&mut errors, was, is, &path, "completions");
    }
    for field in ["selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"] {
        let suspended = field == "template" && was.get("suspend") == Some(&Value::Bool(true));
        if !suspended {
            immutable(&mut errors, was, is, &path, field);
        }
    }
    errors
}

/// Validates an update of the status: a finished Job stays finished.
pub(super) fn validate_status_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("status");
    let (was, is) = (part(old, "status"), part(new, "status"));
    not_negative(&mut errors, is, &path, &["active", "succeeded", "failed", "ready", "terminating"]);
    if let Some(ready) = number(is, "ready").filter(|ready| *ready > number(is, "active").unwrap_or(0)) {
        let detail = "cannot set more ready pods than active";
        errors.push(Error::invalid(&path.field("ready"), ready, detail));
    }
    let holds = |status: &Value, name: &str| {
        let mut conditions = list(status, "conditions").iter();
        conditions.any(|one| text(one, "type") == name && text(one, "status") == "True")
    };
    let conditions = path.field("conditions");
    for name in ["Failed", "Complete"] {
        if holds(was, name) && !holds(is, name) {
            let detail = format!("cannot disable the terminal {name}=True condition");
            errors.push(Error::invalid_unshown(&conditions, detail));
        }
    }
    let suspended = new.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if was.get("startTime").is_some() && was.get("startTime") != is.get("startTime") && !suspended {
        let value = is.get("startTime").cloned().unwrap_or(Value::Null);
        let detail = "field is immutable for unsuspended job once set";
        errors.push(Error::invalid(&path.field("startTime"), value, detail));
    }
    for name in ["FailureTarget", "SuccessCriteriaMet"] {
        if holds(was, name) && !holds(is, name) {
            let detail = format!("cannot disable the {name}=True condition");
            errors.push(Error::invalid_unshown(&conditions, detail));
        }
    }
    if holds(is, "Complete") && is.get("completionTime").is_none() {
        let detail = "completionTime is required for Complete jobs";
        errors.push(Error::required(&path.field("completionTime"), detail));
    }
    if holds(is, "Complete") && holds(is, "Failed") {
        errors
            .push(Error::invalid_unshown(&conditions, "cannot set Complete=True and Failed=true conditions"));
    }
    errors
}

pub(super) fn validate_cron(object: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(object, "spec");
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(Error::required(&path.field("schedule"), ""));
    } else if let Err(detail) = cron::check(schedule) {
        errors.push(Error::invalid(&path.field("schedule"), schedule, detail));
    }
    if let Some(zone) = spec.get("timeZone").and_then(Value::as_str)
        && !cron::is_zone(zone)
    {
        let detail = if zone.is_empty() {
            "timeZone must be nil or non-empty string".to_owned()
        } else {
            format!("unknown time zone {zone}")
        };
        errors.push(Error::invalid(&path.field("timeZone"), zone, detail));
    }
    not_negative(&mut errors, spec, &path, &["startingDeadlineSeconds"]);
    one_of(&mut errors, spec, &path, "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    not_negative(&mut errors, spec, &path, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]);
    let template = path.field("jobTemplate");
    errors.extend(validate_spec(part(part(spec, "jobTemplate"), "spec"), &template.field("spec")));
    let name = object::name(object);
    if name.len() > CRON_JOB_NAME_MAX {
        let metadata = Path::of("metadata");
        let detail = format!("must be no more than {CRON_JOB_NAME_MAX} characters");
        errors.push(Error::invalid(&metadata.field("name"), name, detail));
    }
    errors
}
