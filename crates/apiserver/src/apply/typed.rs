//! Walks objects by their schema: the granularity of field ownership, and whether a patch matches the schema.

use super::field_set::{FieldSet, PathElement};
use crate::field::go_type;
use crate::schema::{ListType, Schema, Type};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The granularity at which a value is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Atomic.
    Leaf,
    /// Field by field.
    Map,
    /// Element by element.
    List,
}

pub(super) fn shape(schema: &Schema, value: &Value) -> Shape {
    match value {
        Value::Object(_) if !schema.merge.atomic_map => Shape::Map,
        Value::Array(_) if schema.kind == Type::Array && schema.merge.list != ListType::Atomic => Shape::List,
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_)
        | Value::Array(_) => Shape::Leaf,
    }
}

/// The schema of a field, and whether the schema declares it. Union types are not walked into.
pub(super) fn field<'a>(schema: &'a Schema, name: &str) -> (&'a Schema, bool) {
    if schema.either.is_some() {
        return (Schema::untyped(), false);
    }
    let field = schema.field(name).unwrap_or(Schema::untyped());
    (field, schema.properties.contains_key(name))
}

/// The path element that identifies a list element; an error if it has no key.
pub(super) fn element(schema: &Schema, value: &Value) -> Result<PathElement, String> {
    let ListType::Map(keys) = &schema.merge.list else {
        let fault = match value {
            Value::Object(_) => "associative list without keys has an element that's a map type",
            Value::Array(_) => "not supported: associative list with lists as elements",
            Value::Null => "associative list without keys has an element that's an explicit null",
            Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(PathElement::value(value)),
        };
        return Err(fault.to_owned());
    };
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
    };
    let mut key = Map::new();
    for name in keys {
        let field = schema.element().field(name);
        let default = field.and_then(|field| field.default.clone());
        let value = fields.get(name).cloned().or(default).or_else(|| zero(schema.element(), name));
        if let Some(value) = value {
            key.insert(name.clone(), value);
        }
    }
    if key.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| crate::field::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(PathElement::key(key))
}

/// The Go zero value of a missing key field of a built-in type.
fn zero(schema: &Schema, field: &str) -> Option<Value> {
    let required = schema.definition.is_some() && schema.required().iter().any(|name| name == field);
    match schema.field(field).filter(|_| required)?.kind {
        Type::String => Some(Value::from("")),
        Type::Integer => Some(Value::from(0)),
        Type::Any | Type::Object | Type::Array | Type::Number | Type::Boolean | Type::IntOrString => None,
    }
}

/// The fields that an apply configuration sets.
pub(super) fn field_set(schema: &Schema, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match value {
        Value::Object(fields) if shape(schema, value) == Shape::Map => {
            for (name, value) in fields {
                let (field, named) = field(schema, name);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                let leaf = shape(field, value) == Shape::Leaf;
                set.graft(PathElement::Field(name.clone()), leaf || empty || !named, field_set(field, value));
            }
        }
        Value::Array(elements) if shape(schema, value) == Shape::List => {
            for value in elements {
                // A duplicate element is owned as a whole.
                if let Ok(element) = element(schema, value) {
                    set.graft(element, true, field_set(schema.element(), value));
                }
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_)
        | Value::Array(_) => {}
    }
    set
}

/// The mismatches between a patch and the schema, as `path: message`.
pub(super) fn check(schema: &Schema, value: &Value) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    check_at(schema, value, &mut String::new(), &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn check_at(schema: &Schema, value: &Value, path: &mut String, faults: &mut Vec<String>) {
    let length = path.len();
    let wrong = match (schema.kind, value) {
        (_, Value::Null)
        | (Type::Any | Type::IntOrString, _)
        | (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::String, Value::String(_))
        | (Type::Integer | Type::Number, Value::Number(_)) => None,
        (Type::Object, other) => Some(format!("expected map, got &{{{}}}", plain(other))),
        (Type::Array, other) => Some(format!("expected list, got &{{{}}}", plain(other))),
        (Type::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", plain(other))),
        (Type::String, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{other}}}"))
        }
        (Type::Integer | Type::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", go_type(other)))
        }
    };
    if let Some(wrong) = wrong {
        faults.push(format!("{path}: {wrong}"));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push('.');
                path.push_str(name);
                if schema.field(name).is_none() && schema.either.is_none() {
                    faults.push(format!("{path}: field not declared in schema"));
                } else {
                    check_at(field(schema, name).0, value, path, faults);
                }
                path.truncate(length);
            }
        }
        Value::Array(elements) if shape(schema, value) == Shape::List => {
            check_list(schema, elements, path, faults);
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                check_at(schema.element(), value, path, faults);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_list(schema: &Schema, elements: &[Value], path: &mut String, faults: &mut Vec<String>) {
    let length = path.len();
    let mut seen = BTreeSet::new();
    for (index, value) in elements.iter().enumerate() {
        match element(schema, value) {
            Err(fault) => faults.push(format!("{path}: element {index}: {fault}")),
            Ok(element) => {
                let shown = super::field_set::shown(std::slice::from_ref(&element));
                if seen.contains(&element) {
                    faults.push(format!("{path}: duplicate entries for key {shown}"));
                }
                path.push_str(&shown);
                check_at(schema.element(), value, path, faults);
                path.truncate(length);
                seen.insert(element);
            }
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// All mismatches as one message that names the object.
pub(super) fn message(faults: &[String], wanted: &Value) -> String {
    let of = |pointer: &str| wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let faults = match faults {
        [one] => one.clone(),
        many => format!(
            "errors:\n{}",
            many.iter().map(|fault| format!("  {fault}")).collect::<Vec<_>>().join("\n")
        ),
    };
    let version = of("/apiVersion");
    let version = if version.contains('/') { version } else { format!("/{version}") };
    format!(
        "failed to create typed patch object ({}/{}; {version}, Kind={}): {faults}",
        of("/metadata/namespace"),
        of("/metadata/name"),
        of("/kind")
    )
}
