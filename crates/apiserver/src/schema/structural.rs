//! Validates that the schema of a definition is structural, as pruning, defaulting and merging require.
//!
//! Every field must be declared outside of `allOf`, `anyOf`, `oneOf` and `not`, and every declared value must have a
//! type. Other schemas that apiextensions-apiserver rejects are rejected too.

use super::parse::strings;
use super::pattern;
use crate::field::{Error, Path};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All errors of the schema, sorted by text.
pub(super) fn check(raw: &Value, path: &Path<'_>) -> Vec<Error> {
    let mut errors = Vec::new();
    if flag(raw, "nullable") {
        errors.push(Error::forbidden(&path.field("nullable"), "nullable cannot be true at the root"));
    }
    walk(raw, Level::Root, path, &mut errors);
    complete(raw, raw, path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn text<'a>(raw: &'a Value, name: &str) -> &'a str {
    raw.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(raw: &Value, name: &str) -> bool {
    raw.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn properties(raw: &Value) -> impl Iterator<Item = (&String, &Value)> {
    raw.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn walk(raw: &Value, level: Level, path: &Path<'_>, errors: &mut Vec<Error>) {
    unsupported(raw, path, errors);
    types(raw, level, path, errors);
    merge_hints(raw, path, errors);
    let items = raw.get("items").filter(|items| items.is_object());
    if let Some(items) = items {
        walk(items, Level::Item, &path.field("items"), errors);
    }
    let place = path.field("properties");
    for (name, property) in properties(raw) {
        walk(property, Level::Field, &place.key(name), errors);
    }
    if let Some(additional) = raw.get("additionalProperties").filter(|additional| !additional.is_null()) {
        let place = path.field("additionalProperties");
        if level == Level::Root {
            errors.push(Error::forbidden(&place, "must not be used at the root"));
        }
        if flag(raw, "x-kubernetes-embedded-resource") {
            errors
                .push(Error::forbidden(&place, "must not be used if x-kubernetes-embedded-resource is set"));
        }
        if additional.is_object() {
            walk(additional, Level::Field, &place, errors);
        }
    }
    values(raw, is_int_or_string(raw.get("anyOf")), path, errors);
    if let Some(metadata) = raw.pointer("/properties/metadata") {
        let embedded = flag(raw, "x-kubernetes-embedded-resource");
        check_metadata(metadata, level, embedded, &place.key("metadata"), errors);
    }
}

fn unsupported(raw: &Value, path: &Path<'_>, errors: &mut Vec<Error>) {
    let has = |name: &str| raw.get(name).is_some_and(|value| !value.is_null());
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if has(name) {
            errors.push(Error::forbidden(&path.field(name), format!("{name} is not supported")));
        }
    }
    if text(raw, "type") == "null" {
        let message = "type cannot be set to null, use nullable as an alternative";
        errors.push(Error::forbidden(&path.field("type"), message));
    }
    if raw.get("items").is_some_and(Value::is_array) {
        let message = "items must be a schema object and not an array";
        errors.push(Error::forbidden(&path.field("items"), message));
    }
    if flag(raw, "uniqueItems") {
        let message = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(Error::forbidden(&path.field("uniqueItems"), message));
    }
    if has("additionalProperties")
        && raw.get("properties").and_then(Value::as_object).is_some_and(|one| !one.is_empty())
    {
        let message = "additionalProperties and properties are mutual exclusive";
        errors.push(Error::forbidden(&path.field("additionalProperties"), message));
    }
    if raw.get("additionalProperties") == Some(&Value::Bool(false)) {
        let message = "additionalProperties cannot be set to false";
        errors.push(Error::forbidden(&path.field("additionalProperties"), message));
    }
    if raw.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let place = path.field("x-kubernetes-preserve-unknown-fields");
        errors.push(Error::invalid(&place, false, "must be true or undefined"));
    }
}

fn types(raw: &Value, level: Level, path: &Path<'_>, errors: &mut Vec<Error>) {
    let kind = text(raw, "type");
    let place = path.field("type");
    let known = ["array", "boolean", "integer", "number", "object", "string"];
    if !kind.is_empty() && kind != "null" && !known.contains(&kind) {
        errors.push(Error::not_supported(&place, kind, &known));
    }
    if kind == "array" && raw.get("items").is_none_or(Value::is_null) {
        errors.push(Error::required(&path.field("items"), "must be specified"));
    }
    let (mixed, preserve) =
        (flag(raw, "x-kubernetes-int-or-string"), flag(raw, "x-kubernetes-preserve-unknown-fields"));
    let embedded = flag(raw, "x-kubernetes-embedded-resource");
    if embedded && kind != "object" {
        let message = "must be object if x-kubernetes-embedded-resource is true";
        let error = if kind.is_empty() {
            Error::required(&place, message)
        } else {
            Error::invalid(&place, kind, message)
        };
        errors.push(error);
    } else if kind.is_empty() && !mixed && !preserve {
        errors.push(Error::required(
            &place,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(Error::invalid(&place, kind, "must be object at the root"));
    }
    for (name, set) in
        [("x-kubernetes-preserve-unknown-fields", preserve), ("x-kubernetes-embedded-resource", embedded)]
    {
        if mixed && set {
            let message = "must be false if x-kubernetes-int-or-string is true";
            errors.push(Error::invalid(&path.field(name), true, message));
        }
    }
    if embedded && !preserve && properties(raw).next().is_none() {
        let message = "must not be empty if x-kubernetes-embedded-resource is true without \
            x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&path.field("properties"), message));
    }
}

fn merge_hints(raw: &Value, path: &Path<'_>, errors: &mut Vec<Error>) {
    let kind = text(raw, "type");
    let wrong_type = |wanted: &str, hint: &str| {
        let message = format!("must be {wanted} if {hint} is specified");
        let place = path.field("type");
        if kind.is_empty() { Error::required(&place, message) } else { Error::invalid(&place, kind, message) }
    };
    let map_type = raw.get("x-kubernetes-map-type").and_then(Value::as_str);
    if let Some(map_type) = map_type {
        if kind != "object" {
            errors.push(wrong_type("object", "x-kubernetes-map-type"));
        }
        if !["atomic", "granular"].contains(&map_type) {
            let place = path.field("x-kubernetes-map-type");
            errors.push(Error::not_supported(&place, map_type, &["atomic", "granular"]));
        }
    }
    let list_type = raw.get("x-kubernetes-list-type").and_then(Value::as_str);
    let place = path.field("x-kubernetes-list-type");
    if let Some(list_type) = list_type {
        if kind != "array" {
            errors.push(wrong_type("array", "x-kubernetes-list-type"));
        }
        if !["atomic", "set", "map"].contains(&list_type) {
            errors.push(Error::not_supported(&place, list_type, &["atomic", "set", "map"]));
        }
    }
    let keys = strings(raw.get("x-kubernetes-list-map-keys"));
    if !keys.is_empty() && list_type != Some("map") {
        let message = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            Some(other) => Error::invalid(&place, other, message),
            None => Error::required(&place, message),
        });
    }
    if list_type == Some("map") {
        list_keys(raw, &keys, path, errors);
    }
}

fn list_keys(raw: &Value, keys: &[String], path: &Path<'_>, errors: &mut Vec<Error>) {
    let place = path.field("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(Error::required(&place, "must not be empty if x-kubernetes-list-type is map"));
    }
    let items_path = path.field("items");
    let Some(items) = raw.get("items").filter(|items| items.is_object()) else {
        errors.push(Error::required(&items_path, "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if text(items, "type") != "object" {
        let message = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(&items_path.field("type"), text(items, "type"), message));
    }
    let required = strings(items.get("required"));
    let items_properties = items_path.field("properties");
    for (index, key) in keys.iter().enumerate() {
        if keys[..index].contains(key) {
            errors.push(Error::invalid(&place, json!(keys), "must not contain duplicate entries"));
        }
        let Some(property) = items.get("properties").and_then(|properties| properties.get(key)) else {
            errors.push(Error::invalid(&place, json!(keys), "entries must all be names of item properties"));
            continue;
        };
        let at = items_properties.key(key);
        if matches!(text(property, "type"), "array" | "object") {
            let message = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(Error::invalid(&at.field("type"), text(items, "type"), message));
        }
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            let message = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(&at.field("default"), message));
        }
        if flag(property, "nullable") {
            let message = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(&at.field("nullable"), message));
        }
    }
}

fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

/// The value validations, where logical junctors are allowed.
fn values(raw: &Value, skip_any_of: bool, path: &Path<'_>, errors: &mut Vec<Error>) {
    for name in ["allOf", "anyOf", "oneOf"] {
        let place = path.field(name);
        for (index, inner) in raw.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            if name == "anyOf" && skip_any_of {
                continue;
            }
            let pattern = name == "allOf" && index == 0 && is_int_or_string(inner.get("anyOf"));
            nested(inner, pattern, &place.index(index), errors);
        }
    }
    if let Some(inner) = raw.get("not").filter(|not| not.is_object()) {
        nested(inner, false, &path.field("not"), errors);
    }
    let text = text(raw, "pattern");
    if let Err(error) = pattern::compiled(text) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(Error::invalid(&path.field("pattern"), text, detail));
    }
}

fn nested(raw: &Value, skip_any_of: bool, path: &Path<'_>, errors: &mut Vec<Error>) {
    values(raw, skip_any_of, path, errors);
    if let Some(items) = raw.get("items").filter(|items| items.is_object()) {
        nested(items, false, &path.field("items"), errors);
    }
    let place = path.field("properties");
    for (name, property) in properties(raw) {
        nested(property, false, &place.key(name), errors);
        if name == "metadata" {
            errors.push(Error::forbidden(&place.key(name), "must not be specified in a nested context"));
        }
    }
    for (name, message) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let set = raw
            .get(name)
            .is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)) && value != "");
        if set {
            errors.push(Error::forbidden(&path.field(name), message));
        }
    }
}

/// Fields in logical junctors must also be declared outside of them.
fn complete(described: &Value, raw: &Value, path: &Path<'_>, raw_path: &Path<'_>, errors: &mut Vec<Error>) {
    let alternatives = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| {
        let list = raw.get(name).and_then(Value::as_array).into_iter().flatten().enumerate();
        list.map(move |(index, inner)| (name, Some(index), inner))
    });
    let not = raw.get("not").filter(|not| not.is_object()).map(|inner| ("not", None, inner));
    for (name, index, inner) in alternatives.chain(not) {
        let list = raw_path.field(name);
        let place = index.map_or(list, |index| list.index(index));
        described_too(described, inner, path, &place, errors);
        complete(described, inner, path, &place, errors);
    }
    if std::ptr::eq(described, raw) {
        let place = path.field("properties");
        for (name, property) in properties(raw) {
            let at = place.key(name);
            complete(property, property, &at, &at, errors);
        }
        for name in ["items", "additionalProperties"] {
            if let Some(inner) = raw.get(name).filter(|inner| inner.is_object()) {
                let at = path.field(name);
                complete(inner, inner, &at, &at, errors);
            }
        }
    }
}

fn described_too(
    described: &Value,
    inner: &Value,
    path: &Path<'_>,
    inner_path: &Path<'_>,
    errors: &mut Vec<Error>,
) {
    let because = |place: &Path<'_>| format!("because it is defined in {place}");
    if let Some(items) = inner.get("items").filter(|items| items.is_object()) {
        let (at, inner_at) = (path.field("items"), inner_path.field("items"));
        match described.get("items").filter(|items| items.is_object()) {
            Some(own) => described_too(own, items, &at, &inner_at, errors),
            None => errors.push(Error::required(&at, because(&inner_at))),
        }
    }
    let (place, inner_place) = (path.field("properties"), inner_path.field("properties"));
    for (name, property) in properties(inner) {
        let (at, inner_at) = (place.key(name), inner_place.key(name));
        match described.get("properties").and_then(|properties| properties.get(name)) {
            Some(own) => {
                described_too(own, property, &at, &inner_at, errors);
                complete(own, property, &at, &inner_at, errors);
            }
            None => errors.push(Error::required(&at, because(&inner_at))),
        }
    }
}

fn check_metadata(metadata: &Value, level: Level, embedded: bool, path: &Path<'_>, errors: &mut Vec<Error>) {
    let kind = text(metadata, "type");
    if (level == Level::Root || embedded) && kind != "object" {
        errors.push(Error::invalid(&path.field("type"), kind, "must be object"));
    }
    let empty = Map::new();
    let fields = metadata.as_object().unwrap_or(&empty);
    let plain = fields.keys().all(|name| matches!(name.as_str(), "type" | "properties" | "default"));
    let named = properties(metadata).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    if level == Level::Root && !(plain && named) {
        let message = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(Error::forbidden(path, message));
    }
}
