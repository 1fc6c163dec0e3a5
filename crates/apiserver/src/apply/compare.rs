//! What differs between two objects, field by field as they are owned.

use super::Scope;
use super::field_set::{self, FieldSet, PathElement};
use super::typed::{self, Shape};
use crate::schema::Schema;
use serde_json::Value;
use std::collections::BTreeMap;

/// Fields that differ; no field is in two of the sets.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Changes {
    /// The changes that a write can make at all.
    pub(super) fn within(self, scope: Scope<'_>) -> Self {
        Self {
            added: field_set::within(self.added, scope),
            modified: field_set::within(self.modified, scope),
            removed: field_set::within(self.removed, scope),
        }
    }
}

pub(super) fn compare(schema: &Schema, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::default();
    walk(schema, Some(old), Some(new), &mut Vec::new(), &mut changes);
    changes
}

fn walk(
    schema: &Schema,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<PathElement>,
    changes: &mut Changes,
) {
    if old == new {
        return;
    }
    let shapes = (old.map(|old| typed::shape(schema, old)), new.map(|new| typed::shape(schema, new)));
    match shapes {
        // Null is an empty map or list that is there.
        (Some(Shape::Leaf), Some(Shape::Map)) if old.is_some_and(Value::is_null) => {
            return maps(schema, None, new, path, changes);
        }
        (Some(Shape::Leaf), Some(Shape::List)) if old.is_some_and(Value::is_null) => {
            return lists(schema, None, new, path, changes);
        }
        (Some(Shape::Map) | None, Some(Shape::Map) | None) => maps(schema, old, new, path, changes),
        (Some(Shape::List) | None, Some(Shape::List) | None) => lists(schema, old, new, path, changes),
        (Some(Shape::Map), Some(Shape::List | Shape::Leaf)) => {
            maps(schema, old, None, path, changes);
            if !new.is_some_and(Value::is_null) {
                changes.modified.insert(path);
            }
            return;
        }
        (Some(Shape::List), Some(Shape::Map | Shape::Leaf)) => {
            lists(schema, old, None, path, changes);
            if !new.is_some_and(Value::is_null) {
                changes.modified.insert(path);
            }
            return;
        }
        (Some(Shape::Leaf), Some(Shape::Map)) => {
            maps(schema, None, new, path, changes);
            changes.modified.insert(path);
            return;
        }
        (Some(Shape::Leaf), Some(Shape::List)) => {
            lists(schema, None, new, path, changes);
            changes.modified.insert(path);
            return;
        }
        (Some(Shape::Leaf), Some(Shape::Leaf)) => {
            changes.modified.insert(path);
            return;
        }
        (Some(Shape::Leaf), None) | (None, Some(Shape::Leaf)) => {}
    }
    match (old, new) {
        (None, _) => changes.added.insert(path),
        (_, None) => changes.removed.insert(path),
        (Some(_), Some(_)) => {}
    }
}

fn maps(
    schema: &Schema,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<PathElement>,
    changes: &mut Changes,
) {
    let old = old.and_then(Value::as_object);
    let new = new.and_then(Value::as_object);
    let own = old.into_iter().flatten().map(|(name, _)| name);
    let added = new
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .filter(|name| !old.is_some_and(|old| old.contains_key(*name)));
    for name in own.chain(added) {
        let (field, _) = typed::field(schema, name);
        path.push(PathElement::Field(name.clone()));
        let (before, after) = (old.and_then(|old| old.get(name)), new.and_then(|new| new.get(name)));
        walk(field, before, after, path, changes);
        path.pop();
    }
}

fn lists(
    schema: &Schema,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<PathElement>,
    changes: &mut Changes,
) {
    let mut elements: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for value in old.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = typed::element(schema, value) {
            elements.entry(element).or_default().0.push(value);
        }
    }
    for value in new.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = typed::element(schema, value) {
            elements.entry(element).or_default().1.push(value);
        }
    }
    for (element, (old, new)) in elements {
        path.push(element);
        match (&old[..], &new[..]) {
            ([] | [_], [] | [_]) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                walk(schema.element(), old, new, path, changes);
            }
            // Elements that occur twice are owned together.
            ([_, _, ..], [_, _, ..]) => {
                if old != new {
                    changes.modified.insert(path);
                }
            }
            ([_, _, ..], _) => {
                walk(schema.element(), None, new.first().copied(), path, changes);
                changes.removed.insert(path);
            }
            (_, [_, _, ..]) => {
                walk(schema.element(), old.first().copied(), None, path, changes);
                changes.added.insert(path);
            }
        }
        path.pop();
    }
}
