//! Changes an object by a patch: JSON patch, JSON merge patch and strategic merge patch, with the server's limits.
//!
//! All three take the object as it is and give the object as it would be; what may change is decided elsewhere.
//! Server-side apply is the fourth kind of patch and lives in [`crate::apply`].

mod json;
mod strategic;

use crate::schema::Schema;
use serde_json::Value;

/// A JSON patch of more operations is refused.
pub const OPERATIONS_MAX: usize = 10_000;

/// Why a patch cannot be applied; the text is what clients see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch itself is malformed: status 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is too large: status 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// The patch does not fit this object: status 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch makes the server stumble, as it does with the real one: status 500.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// The status code of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooManyOperations(_) => 413,
            Self::Unprocessable(_) => 422,
            Self::Failed(_) => 500,
        }
    }
}

/// Applies a JSON patch (RFC 6902), a list of operations; either all of them or none.
pub fn json(object: &Value, patch: &Value) -> Result<Value, Error> {
    json::apply(object, patch)
}

/// Applies a JSON merge patch (RFC 7396): fields replace fields, null removes, lists are replaced.
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

/// Applies a strategic merge patch: as a merge patch, but lists are merged where the schema of the kind says how.
///
/// Only built-in kinds can be patched so; for others the real server answers 415.
pub fn strategic(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, Error> {
    strategic::apply(object, patch, schema)
}

#[cfg(test)]
mod tests;
