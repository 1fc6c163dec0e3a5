//! Accessors for the type and object metadata of untyped Kubernetes objects.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]

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
#[expect(clippy::expect_used, reason = "both are replaced by objects first")]
pub fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("replaced by an object above");
    let value = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
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
    let end = name.char_indices().nth(length).map_or(name.len(), |(at, _)| at);
    if end == name.len() { name } else { name[..end].trim_end_matches(['-', '.']) }
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
