//! JSON patch operations.
//!
//! Follows kube-apiserver where it differs from RFC 6902: a missing field can be replaced and compares equal to null,
//! and negative indices count from the end of a list.

use super::{Error, OPERATIONS_MAX};
use serde_json::{Map, Value};

pub(super) fn apply(object: &Value, patch: &Value) -> Result<Value, Error> {
    let Value::Array(operations) = patch else {
        let kind = match patch {
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Null | Value::Array(_) => return Ok(object.clone()),
        };
        let text = format!("json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch");
        return Err(Error::Malformed(text));
    };
    if operations.len() > OPERATIONS_MAX {
        return Err(Error::TooManyOperations(operations.len()));
    }
    let mut object = object.clone();
    for operation in operations {
        run(&mut object, operation).map_err(Error::Unprocessable)?;
    }
    Ok(object)
}

fn run(object: &mut Value, operation: &Value) -> Result<(), String> {
    match operation.get("op").and_then(Value::as_str).unwrap_or("unknown") {
        "add" => add(object, operation),
        "remove" => remove(object, operation),
        "replace" => replace(object, operation),
        "move" => move_value(object, operation),
        "copy" => copy(object, operation),
        "test" => test(object, operation),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

const MISSING: &str = "missing value";

fn path_of<'a>(operation: &'a Value, doing: &str) -> Result<&'a str, String> {
    let missing =
        || format!("{doing} operation failed to decode path: operation missing path field: {MISSING}");
    operation.get("path").and_then(Value::as_str).ok_or_else(missing)
}

fn from_of<'a>(operation: &'a Value, doing: &str) -> Result<&'a str, String> {
    let missing =
        || format!("{doing} operation failed to decode from: operation, missing from field: {MISSING}");
    operation.get("from").and_then(Value::as_str).ok_or_else(missing)
}

fn value_of(operation: &Value) -> Value {
    operation.get("value").cloned().unwrap_or(Value::Null)
}

fn add(object: &mut Value, operation: &Value) -> Result<(), String> {
    let path = path_of(operation, "add")?;
    let missing = || format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}");
    let place = Place::find(object, path).ok_or_else(missing)?;
    place.add(value_of(operation)).map_err(|error| format!("error in add for path: '{path}': {error}"))
}

fn remove(object: &mut Value, operation: &Value) -> Result<(), String> {
    let path = path_of(operation, "remove")?;
    let missing = || format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}");
    let place = Place::find(object, path).ok_or_else(missing)?;
    place.remove().map_err(|error| format!("error in remove for path: '{path}': {error}"))?;
    Ok(())
}

fn replace(object: &mut Value, operation: &Value) -> Result<(), String> {
    let path = path_of(operation, "replace")?;
    let value = value_of(operation);
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
        }
        *object = value;
        return Ok(());
    }
    let missing =
        |what: &str| format!("replace operation does not apply: doc is missing {what}: {path}: {MISSING}");
    let place = Place::find(object, path).ok_or_else(|| missing("path"))?;
    place.replace(value).map_err(|_| missing("key"))
}

fn move_value(object: &mut Value, operation: &Value) -> Result<(), String> {
    let from = from_of(operation, "move")?;
    let missing = || format!("move operation does not apply: doc is missing from path: {from}: {MISSING}");
    let place = Place::find(object, from).ok_or_else(missing)?;
    let key = place.key.clone();
    let value = place.remove().map_err(|error| format!("error in move for path: '{key}': {error}"))?;
    let path = path_of(operation, "move")?;
    let missing =
        || format!("move operation does not apply: doc is missing destination path: {path}: {MISSING}");
    let place = Place::find(object, path).ok_or_else(missing)?;
    place.add(value).map_err(|error| format!("error in move for path: '{path}': {error}"))
}

fn copy(object: &mut Value, operation: &Value) -> Result<(), String> {
    let from = from_of(operation, "copy")?;
    let missing = || format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}");
    let place = Place::find(object, from).ok_or_else(missing)?;
    let value = place.get().map_err(|error| format!("error in copy for from: '{from}': {error}"))?.clone();
    let path = path_of(operation, "copy")?;
    let missing =
        || format!("copy operation does not apply: doc is missing destination path: {path}: {MISSING}");
    let place = Place::find(object, path).ok_or_else(missing)?;
    place.add(value).map_err(|error| format!("error while adding value during copy: {error}"))
}

fn test(object: &mut Value, operation: &Value) -> Result<(), String> {
    let path = path_of(operation, "test")?;
    let wanted = value_of(operation);
    let failed = || Err(format!("testing value {path} failed: test failed"));
    if path.is_empty() {
        return if *object == wanted { Ok(()) } else { failed() };
    }
    let missing = || format!("test operation does not apply: is missing path: {path}: {MISSING}");
    let place = Place::find(object, path).ok_or_else(missing)?;
    let found = place.get().map_err(|error| format!("error in test for path: '{path}': {error}"))?;
    if *found == wanted { Ok(()) } else { failed() }
}

/// The parent of the value at a path, and its name or index.
struct Place<'a> {
    holder: Holder<'a>,
    key: String,
}

enum Holder<'a> {
    Fields(&'a mut Map<String, Value>),
    Elements(&'a mut Vec<Value>),
}

static NULL: Value = Value::Null;

impl<'a> Place<'a> {
    fn find(object: &'a mut Value, path: &str) -> Option<Self> {
        let mut parts: Vec<_> =
            path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        let key = parts.pop()?;
        let mut value = object;
        for part in parts {
            value = match value {
                Value::Object(fields) => fields.get_mut(&part)?,
                Value::Array(elements) => {
                    let index = index_of(&part, elements.len()).ok()?;
                    elements.get_mut(index)?
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        let holder = match value {
            Value::Object(fields) => Holder::Fields(fields),
            Value::Array(elements) => Holder::Elements(elements),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        Some(Self { holder, key })
    }

    fn get(&self) -> Result<&Value, String> {
        match &self.holder {
            Holder::Fields(fields) => Ok(fields.get(&self.key).unwrap_or(&NULL)),
            Holder::Elements(elements) => {
                let index = index_of(&self.key, elements.len())?;
                elements.get(index).ok_or_else(|| out_of_bounds(&self.key))
            }
        }
    }

    fn replace(self, value: Value) -> Result<(), String> {
        match self.holder {
            Holder::Fields(fields) => {
                fields.insert(self.key, value);
            }
            Holder::Elements(elements) => {
                let index = index_of(&self.key, elements.len())?;
                *elements.get_mut(index).ok_or_else(|| out_of_bounds(&self.key))? = value;
            }
        }
        Ok(())
    }

    fn add(self, value: Value) -> Result<(), String> {
        match self.holder {
            Holder::Fields(fields) => {
                fields.insert(self.key, value);
            }
            Holder::Elements(elements) if self.key == "-" => elements.push(value),
            Holder::Elements(elements) => {
                if let Err(error) = self.key.parse::<i64>() {
                    let error = number_error(&self.key, &error);
                    return Err(format!("value was not a proper array index: '{}': {error}", self.key));
                }
                let index = index_of(&self.key, elements.len() + 1)?;
                if index > elements.len() {
                    return Err(out_of_bounds(&self.key));
                }
                elements.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, String> {
        match self.holder {
            Holder::Fields(fields) => fields
                .remove(&self.key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: {MISSING}", self.key)),
            Holder::Elements(elements) => {
                let index = index_of(&self.key, elements.len())?;
                if index >= elements.len() {
                    return Err(out_of_bounds(&self.key));
                }
                Ok(elements.remove(index))
            }
        }
    }
}

/// An index that may count from the end; the caller checks the upper bound.
fn index_of(key: &str, length: usize) -> Result<usize, String> {
    let index = key.parse::<i64>().map_err(|error| number_error(key, &error))?;
    let index = if index < 0 { index + length as i64 } else { index };
    usize::try_from(index).map_err(|_| out_of_bounds(key))
}

fn out_of_bounds(key: &str) -> String {
    format!("Unable to access invalid index: {key}: invalid index referenced")
}

fn number_error(key: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = if matches!(error.kind(), PosOverflow | NegOverflow) {
        "value out of range"
    } else {
        "invalid syntax"
    };
    format!("strconv.Atoi: parsing {}: {why}", crate::field::quote(key))
}
