//! Accessors for the type and object metadata of untyped Kubernetes objects.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

use serde_json::{Map, Value};

/// A string field of `metadata`; empty if missing.
pub fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A field of `metadata`; null counts as missing.
pub fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|metadata| metadata.get(field)).filter(|value| !value.is_null())
}

/// `metadata`, created if it is missing or not an object.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(object, "metadata")
}

/// An object field, created if it is missing or not an object.
pub fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    fields_mut(fields_mut(object).entry(field).or_insert(Value::Null))
}

/// Sets the field at a path. Unlike `object["a"]["b"] = value`, it replaces what is no object on the way, instead of
/// panicking.
pub fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let Some((field, parents)) = path.split_last() else { return };
    let mut fields = fields_mut(object);
    for parent in parents {
        fields = fields_mut(fields.entry(*parent).or_insert(Value::Null));
    }
    fields.insert((*field).to_owned(), value.into());
}

/// The fields of an object; anything else is replaced by an object.
#[expect(clippy::expect_used, reason = "it is replaced by an object first")]
fn fields_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("replaced by an object above")
}

/// Sets or removes a field of `metadata`.
pub fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = meta_mut(object);
    match value {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

pub fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

/// Length of the longest object name: that of a DNS subdomain.
pub const NAME_MAX: usize = 253;

/// The first `length` characters of a valid object name, without separators at the end: the start of another name.
pub fn name_start(name: &str, length: usize) -> &str {
    let start = name.char_indices().nth(length).and_then(|(end, _)| name.get(..end));
    start.map_or(name, |start| start.trim_end_matches(['-', '.']))
}

pub fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

pub fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

pub fn api_version(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// A string at a JSON pointer such as `/spec/nodeName`; empty if missing.
pub fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let finalizers = meta(object, "finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Sets the finalizers; an empty list removes the field.
pub fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let value = if finalizers.is_empty() { None } else { Some(Value::from(finalizers)) };
    set_meta(object, "finalizers", value);
}

/// Whether the object has a `deletionTimestamp`.
pub fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some()
}

/// `metadata.deletionGracePeriodSeconds`.
pub fn grace_period(object: &Value) -> Option<i64> {
    meta(object, "deletionGracePeriodSeconds").and_then(Value::as_i64)
}

/// `metadata.generation`; 0 if missing.
pub fn generation(object: &Value) -> i64 {
    meta(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a pod phase is terminal: the containers have ended and are not restarted.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Whether a pod is in a terminal phase.
pub fn is_terminal(pod: &Value) -> bool {
    is_terminal_phase(str_at(pod, "/status/phase"))
}
