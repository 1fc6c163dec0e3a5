//! Reads and writes the parts every Kubernetes object has: what it is, and its metadata.

use serde_json::{Map, Value};

/// A string of the metadata; empty where it is missing.
pub fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A value of the metadata.
pub fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|metadata| metadata.get(field)).filter(|value| !value.is_null())
}

/// The metadata, made where it is missing or no object.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(object, "metadata")
}

/// A field that is an object, made where it is missing or something else.
pub fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("it was made an object");
    let value = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object")
}

/// Sets a value of the metadata, or takes it away.
pub fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = meta_mut(object);
    match value {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

/// The object's name.
pub fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

/// The object's namespace.
pub fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

/// The object's uid.
pub fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

/// The object's kind.
pub fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// The object's group and version.
pub fn api_version(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// A string at a pointer such as `/spec/nodeName`; empty where it is missing.
pub fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The names of what must be done before the object may go.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let finalizers = meta(object, "finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Sets the finalizers; an empty list is left out.
pub fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let value = if finalizers.is_empty() { None } else { Some(Value::from(finalizers)) };
    set_meta(object, "finalizers", value);
}

/// Whether somebody asked for the object to go.
pub fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some()
}

/// How many seconds the object has to go.
pub fn grace_period(object: &Value) -> Option<i64> {
    meta(object, "deletionGracePeriodSeconds").and_then(Value::as_i64)
}

/// The generation; 0 where it is missing.
pub fn generation(object: &Value) -> i64 {
    meta(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}
