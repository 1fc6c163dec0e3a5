//! Validation of affinity, tolerations and topology spread constraints.

use crate::field::{Error, Path};
use crate::names;
use crate::strategy::checks::{
    Errors, invalid_all, list, number, one_of, part, selector as label_selector, text,
};
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// Taint effects.
pub(in crate::strategy) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(affinity: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    if let Some(node) = affinity.get("nodeAffinity") {
        let path = path.field("nodeAffinity");
        if let Some(required) = node.get(REQUIRED) {
            validate_node_selector(&mut errors, required, &path.field(REQUIRED));
        }
        let path = path.field(PREFERRED);
        for (index, term) in list(node, PREFERRED).iter().enumerate() {
            let path = path.index(index);
            validate_weight(&mut errors, term, &path);
            validate_node_term(&mut errors, part(term, "preference"), &path.field("preference"));
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.get(kind) else { continue };
        let path = path.field(kind);
        for (index, term) in list(pods, REQUIRED).iter().enumerate() {
            validate_pod_term(&mut errors, term, &path.field(REQUIRED).index(index));
        }
        let path = path.field(PREFERRED);
        for (index, term) in list(pods, PREFERRED).iter().enumerate() {
            let path = path.index(index);
            validate_weight(&mut errors, term, &path);
            validate_pod_term(&mut errors, part(term, "podAffinityTerm"), &path.field("podAffinityTerm"));
        }
    }
    errors
}

fn validate_weight(errors: &mut Errors, term: &Value, path: &Path<'_>) {
    let weight = number(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(Error::invalid(&path.field("weight"), weight, "must be in the range 1-100"));
    }
}

/// Validates a `NodeSelector`.
pub(in crate::strategy) fn validate_node_selector(errors: &mut Errors, selector: &Value, path: &Path<'_>) {
    let path = path.field("nodeSelectorTerms");
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(Error::required(&path, "must have at least one node selector term"));
    }
    for (index, term) in terms.iter().enumerate() {
        validate_node_term(errors, term, &path.index(index));
    }
}

fn validate_node_term(errors: &mut Errors, term: &Value, path: &Path<'_>) {
    let expressions = path.field("matchExpressions");
    for (index, requirement) in list(term, "matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        validate_requirement(errors, requirement, &path);
        let key = text(requirement, "key");
        invalid_all(errors, &path.field("key"), key, names::label_key(key));
        let values = path.field("values");
        for (index, value) in list(requirement, "values").iter().filter_map(Value::as_str).enumerate() {
            invalid_all(errors, &values.index(index), value, names::label_value(value));
        }
    }
    let fields = path.field("matchFields");
    for (index, requirement) in list(term, "matchFields").iter().enumerate() {
        let path = fields.index(index);
        let operator = text(requirement, "operator");
        match (operator, list(requirement, "values").len()) {
            ("In" | "NotIn", 1) => {}
            ("In" | "NotIn", _) => {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(Error::required(&path.field("values"), detail));
            }
            _ => {
                let detail = "not a valid selector operator";
                errors.push(Error::invalid(&path.field("operator"), operator, detail));
            }
        }
        let key = text(requirement, "key");
        if key != "metadata.name" {
            errors.push(Error::invalid(&path.field("key"), key, "not a valid field selector key"));
        }
    }
}

fn validate_requirement(errors: &mut Errors, requirement: &Value, path: &Path<'_>) {
    let values = path.field("values");
    let count = list(requirement, "values").len();
    match (text(requirement, "operator"), count) {
        ("In" | "NotIn", 0) => {
            errors.push(Error::required(&values, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        ("Exists" | "DoesNotExist", 1..) => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&values, detail));
        }
        ("Gt" | "Lt", 0 | 2..) => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(Error::required(&values, detail));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
        (other, _) => {
            let detail = "not a valid selector operator";
            errors.push(Error::invalid(&path.field("operator"), other, detail));
        }
    }
}

fn validate_pod_term(errors: &mut Errors, term: &Value, path: &Path<'_>) {
    label_selector(errors, part(term, "labelSelector"), &path.field("labelSelector"));
    label_selector(errors, part(term, "namespaceSelector"), &path.field("namespaceSelector"));
    let namespaces = path.field("namespaces");
    for (index, namespace) in list(term, "namespaces").iter().enumerate() {
        let name = namespace.as_str().unwrap_or_default();
        invalid_all(errors, &namespaces.index(index), name, names::dns_label(name));
    }
    let path = path.field("topologyKey");
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(Error::required(&path, "can not be empty"));
    }
    invalid_all(errors, &path, key, names::label_key(key));
}

pub(super) fn validate_tolerations(tolerations: &[Value], path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        let at_operator = path.field("operator");
        if !key.is_empty() {
            invalid_all(&mut errors, &path.field("key"), key, names::label_key(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(Error::invalid(&at_operator, operator, detail));
        }
        if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(Error::invalid(&path.field("effect"), effect, detail));
        }
        match operator {
            "" | "Equal" => invalid_all(&mut errors, &at_operator, value, names::label_value(value)),
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(Error::invalid(&at_operator, value, detail));
            }
            "Exists" => {}
            other => errors.push(Error::not_supported(&at_operator, other, &["Equal", "Exists"])),
        }
        one_of(&mut errors, toleration, &path, "effect", &EFFECTS);
    }
    errors
}

pub(super) fn validate_spread(constraints: &[Value], path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = number(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.push(Error::invalid(&path.field("maxSkew"), skew, "must be greater than zero"));
        }
        if text(constraint, "topologyKey").is_empty() {
            errors.push(Error::required(&path.field("topologyKey"), "can not be empty"));
        }
        let when = text(constraint, "whenUnsatisfiable");
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        if !known.contains(&when) {
            errors.push(Error::not_supported(&path.field("whenUnsatisfiable"), when, &known));
        }
        label_selector(&mut errors, part(constraint, "labelSelector"), &path.field("labelSelector"));
    }
    errors
}
