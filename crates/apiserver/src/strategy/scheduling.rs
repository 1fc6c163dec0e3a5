//! The strategies of `PriorityClass`es and `PodDisruptionBudget`s.

use super::checks::{Errors, immutable, number, part, selector, text};
use super::workload::int_or_percent;
use crate::field::{Error, Path};
use crate::object;
use serde_json::Value;

/// The highest user-defined priority (`HighestUserDefinablePriority`).
const PRIORITY_MAX: i64 = 1_000_000_000;
const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];
const RESERVED: &str = "system-";
/// The `PriorityClass`es of every cluster.
pub(crate) const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

pub(super) fn validate_class(class: &Value) -> Errors {
    let mut errors = Vec::new();
    let name = object::name(class);
    let value = number(class, "value").unwrap_or(0);
    let own = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name);
    match own {
        Some((_, known)) if *known == value => {}
        _ if name.starts_with(RESERVED) => {
            let metadata = Path::of("metadata");
            let why = match own {
                Some((_, known)) => format!("value of {name} PriorityClass must be {known}"),
                None => format!("{name} is not a known system priority class"),
            };
            let detail = format!(
                "priority class names with '{RESERVED}' prefix are reserved for system use only. error: {why}"
            );
            errors.push(Error::forbidden(&metadata.field("name"), detail));
        }
        _ if value > PRIORITY_MAX => {
            let detail = format!("maximum allowed value of a user defined priority is {PRIORITY_MAX}");
            errors.push(Error::forbidden(&Path::of("value"), detail));
        }
        _ => {}
    }
    let policy = text(class, "preemptionPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        errors.push(Error::not_supported(&Path::of("preemptionPolicy"), policy, &POLICIES));
    }
    errors
}

pub(super) fn validate_class_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    if number(old, "value") != number(new, "value") {
        errors.push(Error::forbidden(&Path::of("value"), "may not be changed in an update."));
    }
    immutable(&mut errors, old, new, &Path::ROOT, "preemptionPolicy");
    errors
}

pub(super) fn validate_budget(budget: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(budget, "spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if let (Some(least), Some(most)) = (least, most) {
        let shown = |field: &str| spec.get(field).cloned().unwrap_or(Value::Null);
        let value = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            shown("selector"),
            shown("unhealthyPodEvictionPolicy")
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(Error::invalid_unshown(&path, format!("{value}: {detail}")));
    }
    int_or_percent(&mut errors, least, &path.field("minAvailable"));
    int_or_percent(&mut errors, most, &path.field("maxUnavailable"));
    selector(&mut errors, part(spec, "selector"), &path.field("selector"));
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    super::checks::one_of(&mut errors, spec, &path, "unhealthyPodEvictionPolicy", &policies);
    errors
}
