//! Validation of custom resources.

use super::checks::Errors;
use crate::crd::CustomVersion;
use crate::field::{self, Error, Path};
use crate::registry::Subresource;
use crate::schema::{self, Old};
use serde_json::Value;

pub(super) fn validate(custom: &CustomVersion, object: &Value) -> Errors {
    let mut errors = schema::validate(&custom.schema, object, Old::None);
    errors.extend(validate_scale(custom, None, object));
    errors
}

pub(super) fn validate_update(
    custom: &CustomVersion,
    subresource: Option<Subresource>,
    old: &Value,
    new: &Value,
) -> Errors {
    let errors = schema::validate(&custom.schema, new, Old::Value(old));
    let mut errors = if subresource == Some(Subresource::Status) { of_status(errors) } else { errors };
    errors.extend(validate_scale(custom, subresource, new));
    errors
}

/// kube-apiserver validates the status separately, so paths start at `status`.
fn of_status(mut errors: Errors) -> Errors {
    for error in &mut errors {
        if error.field.starts_with("status.") && error.detail.starts_with("status.") {
            error.detail.drain(.."status.".len());
        }
    }
    errors
}

/// Validates the fields of the `scale` subresource; those of the status only when the status is written.
fn validate_scale(custom: &CustomVersion, subresource: Option<Subresource>, object: &Value) -> Errors {
    let Some(paths) = &custom.scale else { return Vec::new() };
    if subresource != Some(Subresource::Status) {
        return validate_replicas(&paths.spec_replicas, object).into_iter().collect();
    }
    let selector =
        object.pointer(&paths.selector).filter(|value| !paths.selector.is_empty() && !value.is_string());
    let selector = selector.map(|value| no_access(&paths.selector, Value::from(""), value, "string"));
    validate_replicas(&paths.status_replicas, object).into_iter().chain(selector).collect()
}

fn validate_replicas(pointer: &str, object: &Value) -> Option<Error> {
    let value = object.pointer(pointer)?;
    match value.as_i64() {
        Some(count) if count < 0 => {
            let path = pointer.replace('/', ".");
            Some(Error::invalid(&Path::of(&path), count, "should be a non-negative integer"))
        }
        Some(_) => None,
        None => Some(no_access(pointer, Value::from(0), value, "int64")),
    }
}

fn no_access(pointer: &str, zero: Value, value: &Value, wanted: &str) -> Error {
    let path = pointer.replace('/', ".");
    let (text, own) = (field::go_text(value), field::go_type(value));
    let detail = format!("{path} accessor error: {text} is of the type {own}, expected {wanted}");
    Error::invalid(&Path::of(&path), zero, detail)
}
