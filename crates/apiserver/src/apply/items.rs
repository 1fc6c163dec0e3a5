//! Removes a field set from an object.

use super::field_set::{FieldSet, PathElement};
use super::typed::{self, Shape};
use crate::schema::Schema;
use serde_json::{Map, Value};

/// What replaces a map or list whose last item is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    /// `null`, so that its owner keeps it.
    Null,
    /// Nothing.
    Removed,
}

pub(super) fn remove(schema: &Schema, object: &Value, fields: &FieldSet, emptied: Emptied) -> Value {
    remove_at(schema, object, fields, emptied).unwrap_or_else(|| Value::Object(Map::new()))
}

/// The value without the fields of the set; `None` if nothing is left.
fn remove_at(schema: &Schema, value: &Value, fields: &FieldSet, emptied: Emptied) -> Option<Value> {
    match value {
        Value::Object(own) if typed::shape(schema, value) == Shape::Map => {
            let mut kept = Map::new();
            let mut all_removed = !own.is_empty();
            for (name, value) in own {
                let element = PathElement::Field(name.clone());
                if fields.has(&element) {
                    continue;
                }
                all_removed = false;
                match (remove_below(typed::field(schema, name).0, value, &element, fields, emptied), emptied)
                {
                    (Some(value), _) => kept.insert(name.clone(), value),
                    (None, Emptied::Null) => kept.insert(name.clone(), Value::Null),
                    (None, Emptied::Removed) => None,
                };
            }
            (!all_removed).then_some(Value::Object(kept))
        }
        Value::Array(own) if typed::shape(schema, value) == Shape::List => {
            let kept = own.iter().filter_map(|value| match typed::element(schema, value) {
                Ok(element) if fields.has(&element) => None,
                Ok(element) => remove_below(schema.element(), value, &element, fields, emptied),
                Err(_) => Some(value.clone()),
            });
            let kept: Vec<_> = kept.collect();
            (!kept.is_empty() || own.is_empty()).then_some(Value::Array(kept))
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_)
        | Value::Array(_) => Some(value.clone()),
    }
}

fn remove_below(
    schema: &Schema,
    value: &Value,
    element: &PathElement,
    fields: &FieldSet,
    emptied: Emptied,
) -> Option<Value> {
    match fields.below(element) {
        Some(below) => remove_at(schema, value, below, emptied),
        None => Some(value.clone()),
    }
}

/// The set with every declared field on the path to its members, since removing those removes the parents.
pub(super) fn with_named_fields(schema: &Schema, set: &FieldSet) -> FieldSet {
    let mut named = FieldSet::default();
    for (element, member, below) in set.entries() {
        let (schema, is_named) = match element {
            PathElement::Field(name) => typed::field(schema, name),
            PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => (schema.element(), false),
        };
        let member = member || (is_named && !below.is_empty());
        named.graft(element.clone(), member, with_named_fields(schema, below));
    }
    named
}
