//! Field accessors and validation functions that several kinds share.

use crate::field::{Error, Path};
use crate::names;
use serde_json::Value;

/// The validation errors of an object.
pub(super) type Errors = Vec<Error>;

/// The elements of a list field; empty if missing.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A string field; empty if missing.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// An integer field.
pub(super) fn number(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

/// A nested value; null if missing.
pub(super) fn part<'a>(value: &'a Value, field: &str) -> &'a Value {
    value.get(field).unwrap_or(&Value::Null)
}

/// Validates an enumeration; an empty value is accepted.
pub(super) fn one_of(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, known: &[&str]) {
    let own = text(value, field);
    if !own.is_empty() && !known.contains(&own) {
        errors.push(Error::not_supported(&path.field(field), own, known));
    }
}

/// Validates that fields are not negative.
pub(super) fn not_negative(errors: &mut Errors, value: &Value, path: &Path<'_>, fields: &[&str]) {
    for field in fields {
        if let Some(number) = number(value, field).filter(|number| *number < 0) {
            errors.push(Error::invalid(&path.field(field), number, "must be greater than or equal to 0"));
        }
    }
}

/// Validates a required name.
pub(super) fn required_name(
    errors: &mut Errors,
    value: &Value,
    path: &Path<'_>,
    field: &str,
    faults: fn(&str) -> Vec<String>,
) {
    let name = text(value, field);
    let path = path.field(field);
    if name.is_empty() {
        errors.push(Error::required(&path, ""));
    } else {
        invalid_all(errors, &path, name, faults(name));
    }
}

/// One error for each message.
pub(super) fn invalid_all(errors: &mut Errors, path: &Path<'_>, value: &str, faults: Vec<String>) {
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, value, fault)));
}

pub(super) fn port(errors: &mut Errors, path: &Path<'_>, port: i64) {
    if !(1..=65535).contains(&port) {
        errors.push(Error::invalid(path, port, "must be between 1 and 65535, inclusive"));
    }
}

/// Validates labels of a selector or node; the path is that of the map.
pub(super) fn labels(errors: &mut Errors, labels: &Value, path: &Path<'_>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        invalid_all(errors, path, key, names::label_key(key));
        let value = value.as_str().unwrap_or_default();
        invalid_all(errors, path, value, names::label_value(value));
    }
}

/// Validates a `LabelSelector`.
pub(super) fn selector(errors: &mut Errors, selector: &Value, path: &Path<'_>) {
    labels(errors, part(selector, "matchLabels"), &path.field("matchLabels"));
    let expressions = path.field("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        let values = path.field("values");
        let given = !list(expression, "values").is_empty();
        match text(expression, "operator") {
            "In" | "NotIn" if !given => {
                errors.push(Error::required(&values, "must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if given => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(Error::forbidden(&values, detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(Error::invalid(&path.field("operator"), other, "not a valid selector operator"));
            }
        }
        let key = text(expression, "key");
        invalid_all(errors, &path.field("key"), key, names::label_key(key));
    }
}

/// Validates that a field does not change.
pub(super) fn immutable(errors: &mut Errors, old: &Value, new: &Value, path: &Path<'_>, field: &str) {
    if old.get(field) != new.get(field) {
        let value = new.get(field).cloned().unwrap_or(Value::Null);
        errors.push(Error::invalid(&path.field(field), value, "field is immutable"));
    }
}
