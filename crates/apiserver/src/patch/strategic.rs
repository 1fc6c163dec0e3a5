//! Strategic merge patch: merges lists by merge key and applies directives.
//!
//! `$patch` replaces or deletes, `$retainKeys` clears the other keys of a map, `$deleteFromPrimitiveList/x` removes
//! scalars from list `x`, and `$setElementOrder/x` orders it.

use super::Error;
use crate::field::{go_text, go_type, shown};
use crate::schema::{Schema, Strategy};
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_SCALARS: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;

pub(super) fn apply(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, Error> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(Error::Malformed("invalid JSON document".to_owned()));
    };
    merge_maps(object.clone(), patch.clone(), schema).map(Value::Object)
}

fn bad_order() -> Error {
    Error::Malformed("invalid patch format of setElementOrder list".to_owned())
}

fn no_merge_key(element: &Value, key: &str) -> Error {
    Error::Failed(format!("map: {} does not contain declared merge key: {key}", go_text(element)))
}

fn merge_maps(mut object: Fields, mut patch: Fields, schema: &Schema) -> Result<Fields, Error> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Fields::new()),
            _ => {
                patch.insert(PATCH.to_owned(), directive.clone());
                let directive = match &directive {
                    Value::String(text) => text.clone(),
                    Value::Null => "%!s(<nil>)".to_owned(),
                    Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        shown(&directive)
                    }
                };
                Err(Error::Failed(format!(
                    "unknown patch type: {directive} in map: {}",
                    go_text(&Value::Object(patch))
                )))
            }
        };
    }
    retain_keys(&mut object, &mut patch)?;
    merge_ordered_lists(&mut object, &mut patch, schema)?;
    for (name, change) in patch {
        if let Some(list) = name.strip_prefix(DELETE_SCALARS) {
            let list = list
                .strip_prefix('/')
                .ok_or_else(|| Error::Malformed("invalid patch format of primitive list".to_owned()))?;
            delete_scalars(&mut object, list, &change);
            continue;
        }
        if change.is_null() {
            object.remove(&name);
            continue;
        }
        let merged = match (object.remove(&name), change) {
            (Some(Value::Object(old)), Value::Object(change)) => {
                Some(merge_map_field(old, change, schema, &name)?)
            }
            (Some(Value::Array(old)), Value::Array(change)) => {
                Some(merge_list_field(old, change, schema, &name)?)
            }
            (Some(Value::Object(_) | Value::Array(_)) | None, mut change) => {
                drop_nulls(&mut change);
                without_directives(change)
            }
            (Some(_), change) => without_directives(change),
        };
        if let Some(merged) = merged {
            object.insert(name, merged);
        }
    }
    Ok(object)
}

fn merge_map_field(old: Fields, change: Fields, schema: &Schema, name: &str) -> Result<Value, Error> {
    let field = field_schema(schema, name)?;
    if field.merge.strategy == Strategy::Replace {
        return Ok(Value::Object(change));
    }
    merge_maps(old, change, field).map(Value::Object)
}

fn merge_list_field(
    old: Vec<Value>,
    change: Vec<Value>,
    schema: &Schema,
    name: &str,
) -> Result<Value, Error> {
    let field = field_schema(schema, name)?;
    match field.merge.strategy {
        Strategy::Merge => merge_lists(old, change, field).map(Value::Array),
        Strategy::Plain | Strategy::Replace => Ok(Value::Array(change)),
    }
}

fn field_schema<'a>(schema: &'a Schema, name: &str) -> Result<&'a Schema, Error> {
    schema.field(name).ok_or_else(|| {
        let owner = schema.definition.and_then(|name| name.rsplit('.').next()).unwrap_or_default();
        let name = crate::field::quote(name);
        Error::Failed(format!("unable to find api field in struct {owner} for the json field {name}"))
    })
}

/// Removes the keys of a map that `$retainKeys` does not list.
fn retain_keys(object: &mut Fields, patch: &mut Fields) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || Error::Malformed("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(bad)?;
    let listed = |name: &str| keys.iter().any(|key| key == name);
    for (name, change) in &*patch {
        let directive = name.starts_with(DELETE_SCALARS) || name.starts_with(ORDER);
        if !change.is_null() && !directive && !listed(name) {
            return Err(bad());
        }
    }
    object.retain(|name, _| listed(name));
    Ok(())
}

fn delete_scalars(object: &mut Fields, name: &str, scalars: &Value) {
    if scalars.is_null() {
        object.remove(name);
        return;
    }
    if let (Some(Value::Array(elements)), Value::Array(scalars)) = (object.get_mut(name), scalars) {
        elements.retain(|element| !scalars.contains(element));
    }
}

/// Merges the lists that have a `$setElementOrder`, and removes them from the patch.
fn merge_ordered_lists(object: &mut Fields, patch: &mut Fields, schema: &Schema) -> Result<(), Error> {
    let names: Vec<String> = patch.keys().filter(|name| name.starts_with(ORDER)).cloned().collect();
    for directive in names {
        let name =
            directive.strip_prefix(ORDER).and_then(|name| name.strip_prefix('/')).ok_or_else(bad_order)?;
        let order = patch.remove(&directive).unwrap_or_default();
        let Value::Array(order) = order else { return Err(wrong_kind("[]interface {}", &order)) };
        let old = take_list(object, name)?;
        let change = take_list(patch, name)?;
        let field = field_schema(schema, name)?;
        let key = field.merge.patch_key.as_deref();
        check_order(change.as_deref().unwrap_or_default(), &order, key)?;
        let merged = match (old.clone(), change) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(change)) if field.merge.strategy == Strategy::Merge => {
                merge_lists(old, change, field)?
            }
            (Some(_), Some(change)) => change,
        };
        let ordered = in_order(merged, &order, &old.unwrap_or_default(), key)?;
        object.insert(name.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

fn take_list(fields: &mut Fields, name: &str) -> Result<Option<Vec<Value>>, Error> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::Array(elements)) => Ok(Some(elements)),
        Some(other) => Err(wrong_kind("[]interface {}", &other)),
    }
}

fn wrong_kind(wanted: &str, found: &Value) -> Error {
    let found = if found.is_null() { "%!s(<nil>)" } else { go_type(found) };
    Error::Failed(format!("expected a {wanted}, but received a {found}"))
}

/// The value that identifies an element: its merge key, or the element itself.
fn identity<'a>(element: &'a Value, key: Option<&str>) -> Result<&'a Value, Error> {
    let Some(key) = key else { return Ok(element) };
    let Value::Object(fields) = element else { return Err(wrong_kind("map[string]interface {}", element)) };
    fields.get(key).ok_or_else(|| no_merge_key(element, key))
}

fn has_directive(element: &Value) -> bool {
    element.get(PATCH).is_some()
}

/// Elements of the patch must be listed in `$setElementOrder`, in the same order.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in change.iter().filter(|element| !has_directive(element)) {
        let wanted = identity(element, key)?;
        loop {
            let Some(next) = rest.next() else {
                let change = go_text(&Value::Array(change.to_vec()));
                let order = go_text(&Value::Array(order.to_vec()));
                return Err(Error::Failed(format!(
                    "The order in patch list:\n{change}\n doesn't match {ORDER} list:\n{order}\n"
                )));
            };
            if identity(next, key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

fn merge_lists(old: Vec<Value>, change: Vec<Value>, schema: &Schema) -> Result<Vec<Value>, Error> {
    if old.is_empty() && change.is_empty() {
        return Ok(old);
    }
    if old.iter().chain(&change).any(Value::is_array) {
        return Err(Error::Unprocessable("lists of lists are not supported".to_owned()));
    }
    let objects = old.iter().chain(&change).filter(|element| element.is_object()).count();
    if objects == 0 {
        let mut merged: Vec<Value> = Vec::with_capacity(old.len() + change.len());
        for element in old.iter().chain(&change) {
            if !merged.contains(element) {
                merged.push(element.clone());
            }
        }
        return in_order(merged, &change, &old, None);
    }
    if objects < old.len() + change.len() {
        let lists = Value::Array(vec![Value::Array(old), Value::Array(change)]);
        return Err(Error::Failed(format!("list element types are not identical: {}", go_text(&lists))));
    }
    let Some(key) = schema.merge.patch_key.as_deref() else {
        return Err(Error::Failed("cannot merge lists without merge key".to_owned()));
    };
    let (mut merged, change) = special_elements(old, change, key)?;
    let before = merged.clone();
    for element in &change {
        let wanted = identity(element, Some(key))?;
        let Value::Object(fields) = element else { continue };
        match merged.iter().position(|one| one.get(key) == Some(wanted)) {
            Some(index) => {
                let Value::Object(found) = std::mem::take(&mut merged[index]) else { continue };
                merged[index] = Value::Object(merge_maps(found, fields.clone(), schema.element())?);
            }
            None => merged.push(element.clone()),
        }
    }
    in_order(merged, &change, &before, Some(key))
}

/// Applies the directives in a patch list and returns the remaining elements.
fn special_elements(
    mut old: Vec<Value>,
    change: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::new();
    let mut replace = false;
    for element in change {
        match element.get(PATCH).map(|directive| directive.as_str().unwrap_or("%!s(<nil>)")) {
            None => plain.push(element),
            Some("delete") => {
                let gone = identity(&element, Some(key))?;
                old.retain(|one| one.get(key) != Some(gone));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Error::Failed("merging lists cannot yet be specified in the patch".to_owned()));
            }
            Some(other) => {
                return Err(Error::Failed(format!(
                    "unknown patch type: {other} in map: {}",
                    go_text(&element)
                )));
            }
        }
    }
    if replace { Ok((plain, Vec::new())) } else { Ok((old, plain)) }
}

/// Orders a merged list: patched elements in the order of the patch, the others relative to them.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    old: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, Error> {
    let keys = |list: &[Value]| -> Result<Vec<Value>, Error> {
        list.iter().map(|element| identity(element, key).cloned()).collect()
    };
    let (order, old) = (keys(order)?, keys(old)?);
    let place = |list: &[Value], id: &Value| list.iter().position(|one| one == id);
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    for element in merged {
        let id = identity(&element, key)?.clone();
        match place(&order, &id) {
            Some(index) => named.push((index, place(&old, &id), element)),
            None => rest.push((place(&old, &id), element)),
        }
    }
    named.sort_by_key(|(index, ..)| *index);
    rest.sort_by_key(|(index, _)| index.unwrap_or(usize::MAX));
    let mut named = named.into_iter().peekable();
    let mut result = Vec::with_capacity(named.len() + rest.len());
    for (index, element) in rest {
        // A patched element stays after a live element that preceded it.
        while let Some((_, other, _)) = named.peek() {
            if matches!((index, other), (Some(index), Some(other)) if index < *other) {
                break;
            }
            result.extend(named.next().map(|(.., element)| element));
        }
        result.push(element);
    }
    result.extend(named.map(|(.., element)| element));
    Ok(result)
}

/// Removes nulls from a new value recursively.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for value in fields.values_mut() {
                drop_nulls(value);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A new value without directives; `None` if it consists of one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let fields =
                fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Array(elements) => Some(elements.into_iter().filter_map(without_directives).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}
