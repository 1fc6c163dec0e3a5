//! Reads `Config` and `SchedulingShard` objects.
//!
//! The API server keeps a quantity as it was written, as text or as a number; the types want text.

use kai_api::{Config, SchedulingShard};
use serde_json::Value;

/// Fields whose values are quantities by resource name.
const AMOUNTS: [&str; 4] = ["requests", "limits", "minAllowed", "maxAllowed"];
/// Fields that are a quantity.
const AMOUNT: [&str; 1] = ["goMemLimit"];

/// Reads a `Config`; the error names the field.
pub fn config(object: &Value) -> Result<Config, String> {
    read(object)
}

/// Reads a `SchedulingShard`; the error names the field.
pub fn shard(object: &Value) -> Result<SchedulingShard, String> {
    read(object)
}

/// A notice for each field of the spec that this version does not know, as where the CRD is of a later one.
pub(crate) fn unknown_fields(object: &Value, known: &impl serde::Serialize) -> Option<String> {
    let known = serde_json::to_value(known).ok()?;
    let mut unknown = Vec::new();
    collect_unknown(object.get("spec")?, known.get("spec").unwrap_or(&Value::Null), "spec", &mut unknown);
    (!unknown.is_empty()).then(|| {
        format!(
            "this version does not know {}; hint: correct the name, or install the operator and the CRDs of one version",
            unknown.join(", ")
        )
    })
}

fn collect_unknown(given: &Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given.iter().filter(|(_, value)| !is_empty(value)) {
                let path = format!("{path}.{name}");
                match known.get(name) {
                    Some(known) => collect_unknown(value, known, &path, unknown),
                    None => unknown.push(format!("`{path}`")),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (number, (given, known)) in given.iter().zip(known).enumerate() {
                collect_unknown(given, known, &format!("{path}[{number}]"), unknown);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, String> {
    let mut object = object.clone();
    if let Some(spec) = object.get_mut("spec") {
        numbers_as_text(spec);
    }
    serde_json::from_value(object).map_err(|error| {
        format!("the object cannot be read: {error}\nhint: compare it with `kubectl explain`")
    })
}

fn numbers_as_text(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if AMOUNTS.contains(&name.as_str()) {
                    for amount in field.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
                        as_text(amount);
                    }
                } else if AMOUNT.contains(&name.as_str()) {
                    as_text(field);
                } else {
                    numbers_as_text(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(numbers_as_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn as_text(amount: &mut Value) {
    if let Value::Number(number) = amount {
        *amount = Value::from(number.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_may_be_written_as_numbers() {
        let object = json!({
            "metadata": {"name": "kai-config"},
            "spec": {"binder": {"service": {"resources": {"limits": {"cpu": 2}}}}},
        });
        let config = config(&object).unwrap();
        let limits = config.spec.binder.unwrap().service.unwrap().resources.unwrap().limits.unwrap();
        assert_eq!(limits["cpu"].0, "2");
    }

    #[test]
    fn fields_of_a_later_version_are_named() {
        let notice = |spec: Value| {
            let object = json!({"metadata": {"name": "kai-config"}, "spec": spec});
            unknown_fields(&object, &config(&object).unwrap())
        };
        let known = json!({
            "namespace": "kai", "global": {"tolerations": [{"key": "a", "operator": "Exists"}]}, "binder": {},
            "scheduler": {"service": {"resources": {"limits": {"cpu": 2}}}},
        });
        assert_eq!(notice(known), None);
        let later =
            notice(json!({"binder": {"service": {"colour": "red"}}, "painter": {"enabled": true}})).unwrap();
        assert!(later.contains("`spec.binder.service.colour`, `spec.painter`"), "{later}");
    }

    #[test]
    fn unreadable_object_is_an_error() {
        let error = shard(&json!({"metadata": {"name": "x"}, "spec": {"kValue": "much"}})).unwrap_err();
        assert!(error.contains("much") && error.contains("hint:"), "{error}");
    }
}
