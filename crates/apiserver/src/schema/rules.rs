//! CEL validation rules (`x-kubernetes-validations`).
//!
//! A rule that uses `oldSelf` is a transition rule: it is evaluated only if there is an old value, or with
//! `optionalOldSelf`.

use super::validate::Old;
use super::{Schema, Type, cel};
use crate::field::{Error, Path};
use kube_cel::cel::Program;
use serde_json::{Value, json};
use std::sync::Arc;

/// A compiled rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    text: String,
    program: Option<Arc<Program>>,
    message: Option<String>,
    message_program: Option<Arc<Program>>,
    /// `fieldPath` without its leading dot.
    field_path: String,
    reason: Option<String>,
    uses_old: bool,
    optional_old: bool,
}

impl Rule {
    /// The rules of a JSON schema.
    pub(super) fn all_of(raw: &Value) -> Vec<Self> {
        let rules = raw.get("x-kubernetes-validations").and_then(Value::as_array);
        rules.into_iter().flatten().map(Self::of).collect()
    }

    fn of(raw: &Value) -> Self {
        let text =
            |name: &str| raw.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let rule = text("rule").unwrap_or_default();
        let program = cel::compile(rule).ok();
        Self {
            uses_old: program.as_ref().is_some_and(|program| program.references().has_variable("oldSelf")),
            text: rule.to_owned(),
            program: program.map(Arc::new),
            message: text("message").map(str::to_owned),
            message_program: text("messageExpression").and_then(|text| cel::compile(text).ok()).map(Arc::new),
            field_path: text("fieldPath").map(normal_path).unwrap_or_default(),
            reason: text("reason").map(str::to_owned),
            optional_old: raw.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
        }
    }

    fn message(&self) -> String {
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.text))
    }
}

/// `.spec['a.b'].c` → `spec[a.b].c`.
fn normal_path(path: &str) -> String {
    path.trim_start_matches('.').replace("['", "[").replace("']", "]")
}

/// Whether the schema or a nested one has rules.
pub(super) fn has_rules(schema: &Schema) -> bool {
    if schema.definition.is_some() {
        return !schema.rules.is_empty();
    }
    let below = schema.properties.values().chain(&schema.additional).chain(&schema.items);
    !schema.rules.is_empty() || below.into_iter().any(|below| has_rules(below))
}

/// Evaluates the rules of a value and of the values below it.
pub(super) fn evaluate(
    schema: &Schema,
    value: &Value,
    old: Old<'_>,
    path: &Path<'_>,
    errors: &mut Vec<Error>,
) {
    if value.is_null() {
        return;
    }
    evaluate_value(schema, value, old, path, errors);
    match value {
        Value::Object(fields) => {
            let correlated = if schema.merge.atomic_map { Old::None } else { old };
            for (name, value) in fields {
                if let Some(field) = schema.properties.get(name) {
                    evaluate(field, value, correlated.field(name), &path.field(name), errors);
                } else if let Some(field) = &schema.additional {
                    evaluate(field, value, correlated.field(name), &path.key(name), errors);
                }
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                let old = old.element(&schema.merge.list, element);
                evaluate(schema.element(), element, old, &path.index(index), errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn evaluate_value(schema: &Schema, value: &Value, old: Old<'_>, path: &Path<'_>, errors: &mut Vec<Error>) {
    if schema.rules.is_empty() {
        return;
    }
    let mut scope: Option<cel::Scope<'_>> = None;
    for rule in &schema.rules {
        let Some(program) = &rule.program else { continue };
        if rule.uses_old && old.value().is_none() && !rule.optional_old {
            continue;
        }
        // Ratcheting (KEP-4008): an unchanged value is not validated again.
        if !rule.uses_old && old.value() == Some(value) {
            continue;
        }
        let scope = scope.get_or_insert_with(|| cel::Scope::new(schema, value, old));
        let text = rule.message.as_deref().unwrap_or(&rule.text);
        match scope.run(program, rule.optional_old) {
            Ok(kube_cel::cel::Value::Bool(true)) => {}
            Ok(_) => errors.push(failure(rule, schema, value, scope, path)),
            Err(error) => {
                let detail = format!("{error} evaluating rule: {text}");
                errors.push(Error::invalid(path, schema.kind.name(), detail));
            }
        }
    }
}

fn failure(rule: &Rule, schema: &Schema, value: &Value, scope: &cel::Scope<'_>, path: &Path<'_>) -> Error {
    let own = rule.message_program.as_ref().and_then(|program| scope.text(program));
    let message = own.unwrap_or_else(|| rule.message());
    let path = if rule.field_path.is_empty() { *path } else { path.field(&rule.field_path) };
    let shown = !matches!(schema.kind, Type::Object | Type::Array);
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Error::forbidden(&path, message),
        Some("FieldValueRequired") => Error::required(&path, message),
        Some("FieldValueDuplicate") if shown => Error::duplicate(&path, value.clone()),
        _ if shown => Error::invalid(&path, value.clone(), message),
        _ => Error::invalid_unshown(&path, message),
    }
}

/// Validates the rules of a schema.
pub(super) fn check(raw: &Value, path: &Path<'_>) -> Vec<Error> {
    let mut errors = Vec::new();
    check_at(raw, path, &mut errors);
    errors
}

fn check_at(raw: &Value, path: &Path<'_>, errors: &mut Vec<Error>) {
    let rules = raw.get("x-kubernetes-validations").and_then(Value::as_array);
    let place = path.field("x-kubernetes-validations");
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        check_rule(raw, rule, &place.index(index), errors);
    }
    if let Some(items) = raw.get("items") {
        check_at(items, &path.field("items"), errors);
    }
    if let Some(additional) = raw.get("additionalProperties").filter(|additional| additional.is_object()) {
        check_at(additional, &path.field("additionalProperties"), errors);
    }
    let properties = path.field("properties");
    for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check_at(property, &properties.key(name), errors);
    }
}

fn check_rule(schema: &Value, raw: &Value, path: &Path<'_>, errors: &mut Vec<Error>) {
    let text = |name: &str| raw.get(name).and_then(Value::as_str);
    let rule = text("rule").unwrap_or_default();
    let message = text("message");
    if rule.trim().is_empty() {
        errors.push(Error::required(&path.field("rule"), "rule is not specified"));
        return;
    }
    if let Some(message) = message.filter(|message| !message.is_empty() && message.trim().is_empty()) {
        errors.push(Error::invalid(&path.field("message"), message, "must be non-empty if specified"));
    }
    if let Some(message) = message.filter(|message| message.trim().contains(['\n', '\r'])) {
        errors.push(Error::invalid(&path.field("message"), message, "must not contain line breaks"));
    }
    if rule.trim().contains(['\n', '\r']) && message.unwrap_or_default().is_empty() {
        let message = "message must be specified if rule contains line breaks";
        errors.push(Error::required(&path.field("message"), message));
    }
    let known = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = text("reason").filter(|reason| !known.contains(reason)) {
        errors.push(Error::not_supported(&path.field("reason"), reason, &known));
    }
    for name in ["rule", "messageExpression"] {
        let Some(source) = text(name).filter(|source| !source.trim().is_empty()) else { continue };
        let fault = cel::compile(source).err().or_else(|| {
            cel::undefined_field(source, schema).map(|field| format!("undefined field '{field}'"))
        });
        if let Some(fault) = fault {
            let detail = format!("compilation failed: {fault}");
            errors.push(Error::invalid(&path.field(name), as_printed(raw), detail));
        }
    }
    let optional_old = raw.get("optionalOldSelf").and_then(Value::as_bool);
    let uses_old = cel::compile(rule).is_ok_and(|program| program.references().has_variable("oldSelf"));
    if let Some(optional_old) = optional_old.filter(|_| !uses_old) {
        let message = "may not be set if oldSelf is not used in rule";
        errors.push(Error::invalid(&path.field("optionalOldSelf"), optional_old, message));
    }
}

/// The rule as kube-apiserver prints it in errors.
fn as_printed(raw: &Value) -> Value {
    let text = |name: &str| raw.get(name).cloned().unwrap_or_else(|| Value::from(""));
    json!({
        "Rule": text("rule"), "Message": text("message"), "MessageExpression": text("messageExpression"),
        "Reason": raw.get("reason"), "FieldPath": text("fieldPath"), "OptionalOldSelf": raw.get("optionalOldSelf"),
    })
}
