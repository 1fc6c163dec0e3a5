//! JSON patch, JSON merge patch and strategic merge patch.
//!
//! Each takes the current object and returns the patched one; validation follows elsewhere. Server-side apply is in
//! [`crate::apply`].

mod json;
mod strategic;

use crate::schema::Schema;
use serde_json::Value;

/// Limit of operations in a JSON patch, as in kube-apiserver.
pub const OPERATIONS_MAX: usize = 10_000;

/// Why a patch cannot be applied; the text is returned to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is malformed: status 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch has too many operations: status 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// The patch does not apply to this object: status 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch causes an internal error in kube-apiserver: status 500.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooManyOperations(_) => 413,
            Self::Unprocessable(_) => 422,
            Self::Failed(_) => 500,
        }
    }
}

/// Applies a JSON patch (RFC 6902) atomically.
pub fn json(object: &Value, patch: &Value) -> Result<Value, Error> {
    json::apply(object, patch)
}

/// Applies a JSON merge patch (RFC 7396).
pub fn merge(object: &Value, patch: &Value) -> Result<Value, Error> {
    if !patch.is_object() {
        return Err(Error::Malformed("Invalid JSON Patch".to_owned()));
    }
    let mut object = object.clone();
    merge_into(&mut object, patch.clone());
    Ok(object)
}

fn merge_into(value: &mut Value, patch: Value) {
    match (value, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                if change.is_null() {
                    fields.remove(&name);
                } else {
                    merge_into(fields.entry(name).or_insert(Value::Null), change);
                }
            }
        }
        (value, mut patch) => {
            strategic::drop_nulls(&mut patch);
            *value = patch;
        }
    }
}

/// Applies a strategic merge patch: a merge patch that merges lists by the merge keys of the schema.
///
/// Only built-in kinds support it; for others kube-apiserver returns 415.
pub fn strategic(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, Error> {
    strategic::apply(object, patch, schema)
}

#[cfg(test)]
mod tests;
