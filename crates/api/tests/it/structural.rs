//! Admits an object by a structural schema as an API server does, as far as the schemas here need it.
//!
//! Input: a schema and an object to create or update. Output: the stored object, or the validation errors.
//! The order is the server's: drop `null`s, fill in defaults, prune unknown fields, then validate.

use regex::Regex;
use serde_json::{Map, Value, json};

/// The object as stored, or the validation errors as `path: error`.
pub(crate) fn admit(schema: &Value, object: &Value, old: Option<&Value>) -> Result<Value, Vec<String>> {
    let mut stored = object.clone();
    complete(schema, &mut stored, Level::Root);
    let mut faults = Vec::new();
    validate("", schema, &stored, &mut faults);
    // The server runs rules only on objects that are otherwise valid.
    if faults.is_empty()
        && let Err(errors) = kube_cel::validate(schema, &stored, old)
    {
        faults.extend(errors.iter().map(|error| format!("{}: {}", error.field_path, error.message)));
    }
    if faults.is_empty() { Ok(stored) } else { Err(faults) }
}

/// An object with every field that the schema knows.
pub(crate) fn full_example(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return "1500m".into();
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return json!({"any": {"thing": [1, "two"]}});
    }
    match schema["type"].as_str().expect("every node has a type") {
        "object" => match (&schema["properties"], &schema["additionalProperties"]) {
            (Value::Object(fields), _) => Value::Object(
                fields.iter().map(|(name, field)| (name.clone(), full_example(field))).collect(),
            ),
            (_, Value::Object(_)) => json!({"key": full_example(&schema["additionalProperties"])}),
            _ => json!({"name": "example"}),
        },
        "array" => json!([full_example(&schema["items"])]),
        "string" if schema["format"] == "date-time" => "2025-03-01T10:00:00Z".into(),
        "string" => match schema["pattern"].as_str() {
            Some(pattern) => ["a", "1w"].into_iter().find(|text| matches(pattern, text)).into(),
            None => "text".into(),
        },
        "integer" => json!(7),
        "number" => json!(0.5),
        "boolean" => json!(true),
        other => panic!("no example of a {other}"),
    }
}

/// Whether the API server keeps the standard fields of an object here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Inner,
}

/// Drops `null`s, fills in defaults and drops unknown fields.
fn complete(schema: &Value, value: &mut Value, level: Level) {
    match value {
        Value::Array(items) => {
            for item in items {
                complete(&schema["items"], item, Level::Inner);
            }
        }
        Value::Object(entries) => complete_object(schema, entries, level),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn complete_object(schema: &Value, entries: &mut Map<String, Value>, level: Level) {
    let empty = Map::new();
    let fields = schema["properties"].as_object().unwrap_or(&empty);
    entries.retain(|name, value| {
        let nullable = field(schema, name).is_some_and(|field| field["nullable"] == true);
        nullable || !value.is_null()
    });
    for (name, field) in fields {
        if let Some(default) = field.get("default")
            && !entries.contains_key(name)
        {
            entries.insert(name.clone(), default.clone());
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] != true {
        entries.retain(|name, _| field(schema, name).is_some());
    }
    for (name, value) in entries.iter_mut() {
        // The server validates metadata by its own rules, regardless of the schema.
        if level == Level::Root && name == "metadata" {
            continue;
        }
        if let Some(field) = field(schema, name) {
            complete(field, value, Level::Inner);
        }
    }
}

/// The schema of one field or entry of an object.
fn field<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))
}

/// Collects the validation errors of `value`.
fn validate(path: &str, schema: &Value, value: &Value, faults: &mut Vec<String>) {
    if !has_type(schema, value) {
        faults.push(format!("{path}: wrong type"));
        return;
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        faults.push(format!("{path}: not one of {words:?}"));
    }
    match value {
        Value::String(text) => validate_text(path, schema, text, faults),
        Value::Number(number) => {
            validate_number(path, schema, number.as_f64().expect("JSON numbers are finite"), faults);
        }
        Value::Array(items) => validate_list(path, schema, items, faults),
        Value::Object(entries) => {
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !entries.contains_key(name) {
                    faults.push(format!("{path}.{name}: required"));
                }
            }
            for (name, value) in entries {
                if let Some(field) = field(schema, name) {
                    validate(&format!("{path}.{name}"), field, value, faults);
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn has_type(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_i64();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("unknown type {other}"),
        None => true,
    }
}

fn validate_text(path: &str, schema: &Value, text: &str, faults: &mut Vec<String>) {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        faults.push(format!("{path}: too short"));
    }
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        faults.push(format!("{path}: too long"));
    }
    if schema["pattern"].as_str().is_some_and(|pattern| !matches(pattern, text)) {
        faults.push(format!("{path}: does not match"));
    }
    if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
        faults.push(format!("{path}: no time"));
    }
}

fn validate_number(path: &str, schema: &Value, number: f64, faults: &mut Vec<String>) {
    let beyond =
        |bound: f64, excluded: &Value| if *excluded == true { number <= bound } else { number < bound };
    if schema["minimum"].as_f64().is_some_and(|least| beyond(least, &schema["exclusiveMinimum"])) {
        faults.push(format!("{path}: too small"));
    }
    if schema["maximum"].as_f64().is_some_and(|most| number > most) {
        faults.push(format!("{path}: too large"));
    }
    if schema["format"] == "int32" && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        faults.push(format!("{path}: not 32 bits"));
    }
}

fn validate_list(path: &str, schema: &Value, items: &[Value], faults: &mut Vec<String>) {
    if schema["minItems"].as_u64().is_some_and(|least| (items.len() as u64) < least) {
        faults.push(format!("{path}: too few items"));
    }
    if schema["maxItems"].as_u64().is_some_and(|most| items.len() as u64 > most) {
        faults.push(format!("{path}: too many items"));
    }
    if let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() {
        let identity = |item: &Value| -> Vec<Value> {
            keys.iter().filter_map(Value::as_str).map(|key| item[key].clone()).collect()
        };
        let twice = |at: usize| items[..at].iter().any(|other| identity(other) == identity(&items[at]));
        if (0..items.len()).any(twice) {
            faults.push(format!("{path}: duplicate item"));
        }
    }
    for (index, item) in items.iter().enumerate() {
        validate(&format!("{path}[{index}]"), &schema["items"], item, faults);
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).expect("patterns are valid").is_match(text)
}
