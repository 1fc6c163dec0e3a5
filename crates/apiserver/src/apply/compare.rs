//! Compares two objects at the granularity of field ownership.

use super::Scope;
use super::field_set::{self, FieldSet, PathElement};
use super::typed::{self, Shape};
use crate::schema::Schema;
use serde_json::Value;
use std::collections::BTreeMap;

/// Changed fields; the sets are disjoint.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Changes {
    /// The changes inside the scope of a write.
    pub(super) fn within(self, scope: Scope<'_>) -> Self {
        Self {
            added: field_set::within(self.added, scope),
            modified: field_set::within(self.modified, scope),
            removed: field_set::within(self.removed, scope),
        }
    }
}

/// The difference at one path and below it.
#[derive(Debug, Default)]
struct Difference {
    added: bool,
    modified: bool,
    removed: bool,
    below: Changes,
}

impl Difference {
    fn modified_unless_null(below: Changes, new: Option<&Value>) -> Self {
        Self { modified: !new.is_some_and(Value::is_null), below, ..Self::default() }
    }

    fn modified(below: Changes) -> Self {
        Self { modified: true, below, ..Self::default() }
    }
}

impl Changes {
    fn take(&mut self, element: impl Fn() -> PathElement, found: Difference) {
        let sets = [
            (&mut self.added, found.added, found.below.added),
            (&mut self.modified, found.modified, found.below.modified),
            (&mut self.removed, found.removed, found.below.removed),
        ];
        for (set, member, below) in sets {
            if member || !below.is_empty() {
                set.graft(element(), member, below);
            }
        }
    }
}

pub(super) fn compare(schema: &Schema, old: &Value, new: &Value) -> Changes {
    walk(schema, Some(old), Some(new)).below
}

fn walk(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Difference {
    if old == new {
        return Difference::default();
    }
    let shapes = (old.map(|old| typed::shape(schema, old)), new.map(|new| typed::shape(schema, new)));
    let below = match shapes {
        // `null` stands for an existing empty map or list.
        (Some(Shape::Leaf), Some(Shape::Map)) if old.is_some_and(Value::is_null) => {
            return Difference { below: maps(schema, None, new), ..Difference::default() };
        }
        (Some(Shape::Leaf), Some(Shape::List)) if old.is_some_and(Value::is_null) => {
            return Difference { below: lists(schema, None, new), ..Difference::default() };
        }
        (Some(Shape::Map) | None, Some(Shape::Map) | None) => maps(schema, old, new),
        (Some(Shape::List) | None, Some(Shape::List) | None) => lists(schema, old, new),
        (Some(Shape::Map), Some(Shape::List | Shape::Leaf)) => {
            return Difference::modified_unless_null(maps(schema, old, None), new);
        }
        (Some(Shape::List), Some(Shape::Map | Shape::Leaf)) => {
            return Difference::modified_unless_null(lists(schema, old, None), new);
        }
        (Some(Shape::Leaf), Some(Shape::Map)) => return Difference::modified(maps(schema, None, new)),
        (Some(Shape::Leaf), Some(Shape::List)) => return Difference::modified(lists(schema, None, new)),
        (Some(Shape::Leaf), Some(Shape::Leaf)) => return Difference::modified(Changes::default()),
        (Some(Shape::Leaf), None) | (None, Some(Shape::Leaf)) => Changes::default(),
    };
    Difference { added: old.is_none(), removed: old.is_some() && new.is_none(), modified: false, below }
}

fn maps(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let old = old.and_then(Value::as_object);
    let new = new.and_then(Value::as_object);
    let own = old.into_iter().flatten().map(|(name, _)| name);
    let added = new
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .filter(|name| !old.is_some_and(|old| old.contains_key(*name)));
    let mut changes = Changes::default();
    for name in own.chain(added) {
        let (field, _) = typed::field(schema, name);
        let (before, after) = (old.and_then(|old| old.get(name)), new.and_then(|new| new.get(name)));
        changes.take(|| PathElement::Field(name.clone()), walk(field, before, after));
    }
    changes
}

fn lists(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Changes {
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
    let mut changes = Changes::default();
    for (element, (old, new)) in elements {
        let found = match (&old[..], &new[..]) {
            ([] | [_], [] | [_]) => walk(schema.element(), old.first().copied(), new.first().copied()),
            // Duplicate elements are owned together.
            ([_, _, ..], [_, _, ..]) => Difference { modified: old != new, ..Difference::default() },
            ([_, _, ..], _) => {
                Difference { removed: true, ..walk(schema.element(), None, new.first().copied()) }
            }
            (_, [_, _, ..]) => {
                Difference { added: true, ..walk(schema.element(), old.first().copied(), None) }
            }
        };
        changes.take(|| element.clone(), found);
    }
    changes
}
