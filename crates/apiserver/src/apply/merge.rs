//! Merges an apply configuration into an object.

use super::field_set::PathElement;
use super::typed::{self, Shape};
use crate::schema::Schema;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
    match (live, applied) {
        (Value::Object(own), Value::Object(new)) if typed::shape(schema, applied) == Shape::Map => {
            let mut merged = own.clone();
            for (name, value) in new {
                let field = typed::field(schema, name).0;
                let value = match own.get(name) {
                    Some(own) => merge(field, own, value),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(own), Value::Array(new)) if typed::shape(schema, applied) == Shape::List => {
            Value::Array(merge_lists(schema, own, new))
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)
            | Value::Array(_),
            _,
        ) => applied.clone(),
    }
}

/// Applied elements keep their order; other elements keep their position relative to their neighbours.
fn merge_lists(schema: &Schema, own: &[Value], new: &[Value]) -> Vec<Value> {
    let keyed = |list: &[Value]| -> Vec<(PathElement, Value)> {
        list.iter().filter_map(|value| Some((typed::element(schema, value).ok()?, value.clone()))).collect()
    };
    let (own, new) = (keyed(own), keyed(new));
    let index =
        |list: &[(PathElement, Value)]| -> BTreeMap<PathElement, Value> { list.iter().cloned().collect() };
    let (in_own, in_new) = (index(&own), index(&new));
    let mut shared: Vec<&PathElement> =
        new.iter().map(|(key, _)| key).filter(|key| in_own.contains_key(key)).collect();
    shared.reverse();
    let take = |key: &PathElement, value: &Value| match in_own.get(key) {
        Some(own) => merge(schema.element(), own, value),
        None => value.clone(),
    };
    let mut merged = Vec::with_capacity(own.len() + new.len());
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut left, mut right) = (own.iter().peekable(), new.iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return merged,
            (Some((key, value)), _) if !in_new.contains_key(key) => {
                merged.push(value.clone());
                left.next();
            }
            (Some((key, _)), next) => {
                let turn = shared.last() == Some(&key);
                let same = next.is_some_and(|(next, _)| next == key);
                if done.contains(&key) || (next.is_some() && !same && !turn) {
                    left.next();
                    continue;
                }
                let Some((key, value)) = right.next() else {
                    left.next();
                    continue;
                };
                if same {
                    left.next();
                }
                finish(key, &mut shared, &mut done);
                merged.push(take(key, value));
            }
            (None, Some((key, value))) => {
                merged.push(take(key, value));
                finish(key, &mut shared, &mut done);
                right.next();
            }
        }
    }
}

fn finish<'a>(key: &'a PathElement, shared: &mut Vec<&'a PathElement>, done: &mut BTreeSet<&'a PathElement>) {
    done.insert(key);
    if shared.last() == Some(&key) {
        shared.pop();
    }
}
