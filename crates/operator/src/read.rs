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
    fn unreadable_object_is_an_error() {
        let error = shard(&json!({"metadata": {"name": "x"}, "spec": {"kValue": "much"}})).unwrap_err();
        assert!(error.contains("much") && error.contains("hint:"), "{error}");
    }
}
