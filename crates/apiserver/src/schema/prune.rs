//! Pruning of custom resources and normalization of built-in objects.

use super::builtin::OBJECT_META;
use super::{Schema, Type};
use serde_json::{Map, Value};

/// Removes fields that the schema does not declare.
pub fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| match schema.field(name) {
                Some(field) => {
                    prune(field, value);
                    true
                }
                None => false,
            });
        }
        Value::Array(elements) => {
            for element in elements {
                prune(schema.element(), element);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Normalizes a built-in object to the form in which kube-apiserver encodes it.
///
/// Removes unknown fields, nulls, empty lists and maps, and zero values with `omitempty`. Missing required scalars are
/// written as zero, and missing embedded structs as empty. Quantities are written canonically.
pub fn normalize(schema: &Schema, value: &mut Value) {
    match value {
        Value::String(_) | Value::Number(_) if schema.is_quantity() => normalize_quantity(value),
        Value::Object(fields) if schema.is_map() => {
            for value in fields.values_mut() {
                normalize(schema.field("").unwrap_or(Schema::untyped()), value);
            }
        }
        Value::Object(fields) if !schema.is_untyped() => normalize_struct(schema, fields),
        Value::Array(elements) => {
            for element in elements {
                normalize(schema.element(), element);
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Formats a quantity canonically.
fn normalize_quantity(value: &mut Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(canonical) = crate::quantity::canonical(&text) {
        *value = Value::String(canonical);
    }
}

fn normalize_struct(schema: &Schema, fields: &mut Map<String, Value>) {
    let omitempty = schema.omitempty;
    fields.retain(|name, value| {
        let Some(field) = schema.field(name) else { return false };
        normalize(field, value);
        let required = || schema.required.contains(name) && !omitempty.omit(name);
        !value.is_null() && (!is_zero(field, value) || omitempty.keep(name) || required())
    });
    for (name, zero) in schema.written.get_or_init(|| always_written(schema)) {
        if !fields.contains_key(name) {
            fields.insert(name.clone(), zero.clone());
        }
    }
}

/// The fields of a struct that are written even if they are not set, with their values.
fn always_written(schema: &Schema) -> Vec<(String, Value)> {
    let omitempty = schema.omitempty;
    let mut written = Vec::new();
    let is_kind = schema.properties.contains_key("apiVersion") && schema.properties.contains_key("kind");
    for (name, field) in &schema.properties {
        let embedded = match name.as_str() {
            "metadata" => field.definition == Some(OBJECT_META),
            "spec" | "status" if is_kind => true,
            _ => omitempty.embed(name),
        };
        let scalar = (schema.required.contains(name) && !omitempty.omit(name)) || omitempty.write(name);
        let zero = match field.kind {
            Type::String | Type::Array if omitempty.null(name) => Value::Null,
            Type::Object if embedded => {
                let mut empty = Value::Object(Map::new());
                normalize(field, &mut empty);
                empty
            }
            Type::String if scalar && field.format.is_none() => Value::from(""),
            Type::Integer if scalar => Value::from(0),
            Type::Boolean if scalar => Value::from(false),
            Type::IntOrString if omitempty.write(name) => Value::from("0"),
            Type::Any
            | Type::Object
            | Type::Array
            | Type::Number
            | Type::IntOrString
            | Type::String
            | Type::Integer
            | Type::Boolean => continue,
        };
        written.push((name.clone(), zero));
    }
    written
}

/// Whether the value is the Go zero value of the field.
fn is_zero(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Null => true,
        // Arbitrary JSON has no zero value: a default of 0 is significant.
        _ if schema.kind == Type::Any => false,
        Value::Bool(value) => !value,
        Value::Number(number) => schema.kind != Type::IntOrString && number.as_i64() == Some(0),
        Value::String(text) => text.is_empty() && schema.kind != Type::IntOrString,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty() && schema.is_map(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;
    use crate::schema::builtin;
    use serde_json::json;

    fn custom(schema: &Value) -> Schema {
        Schema::of_definition(schema, &Path::of("schema")).unwrap()
    }

    #[test]
    fn unknown_fields_are_pruned_unless_preserved() {
        let schema = custom(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "known": {"type": "string"},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"strict": {"type": "object"}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            }},
        }}));
        let mut object = json!({
            "apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}, "nonsense": 1},
            "spec": {"known": "x", "unknown": 1,
                "any": {"free": {"deep": 1}, "strict": {"gone": 1}},
                "map": {"k": {"a": "1", "b": "2"}}, "list": [{"a": "1", "b": "2"}]},
            "extra": {},
        });
        prune(&schema, &mut object);
        assert_eq!(
            object,
            json!({
                "apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}},
                "spec": {"known": "x", "any": {"free": {"deep": 1}, "strict": {}},
                    "map": {"k": {"a": "1"}}, "list": [{"a": "1"}]},
            })
        );
    }

    #[test]
    fn zero_values_with_omitempty_are_removed() {
        let mut pod = json!({
            "metadata": {"name": "p", "labels": {}, "creationTimestamp": null},
            "spec": {
                "nodeName": "", "hostNetwork": false, "priority": 0, "volumes": [{"name": "v", "emptyDir": {}}],
                "tolerations": [], "terminationGracePeriodSeconds": 0, "unknown": 1,
                "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": ""}], "ports": null}],
            },
        });
        normalize(builtin::schema("v1", "Pod").unwrap(), &mut pod);
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "p"},
                "spec": {"priority": 0, "terminationGracePeriodSeconds": 0, "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{"name": "c", "image": "i", "env": [{"name": "E"}], "resources": {}}]},
                "status": {},
            })
        );
    }

    #[test]
    fn fields_without_omitempty_are_added() {
        let mut event = json!({"metadata": {"name": "e"}, "involvedObject": {}});
        normalize(builtin::schema("v1", "Event").unwrap(), &mut event);
        assert_eq!(
            event,
            json!({
                "metadata": {"name": "e"}, "involvedObject": {}, "source": {},
                "eventTime": null, "firstTimestamp": null, "lastTimestamp": null,
                "reportingComponent": "", "reportingInstance": "",
            })
        );
        let mut pod = json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": ""}}]}});
        normalize(builtin::schema("v1", "Pod").unwrap(), &mut pod);
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "v", "configMap": {}}]),
            "a required name may be empty"
        );
        let mut labels = json!({"metadata": {"name": "e", "labels": {"a": ""}}});
        normalize(builtin::schema("v1", "Pod").unwrap(), &mut labels);
        assert_eq!(labels["metadata"]["labels"], json!({"a": ""}));
    }
}
