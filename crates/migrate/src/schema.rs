//! Checks values against the chart's schema, with the keywords that the schema uses.
//!
//! Helm checks them too, at installation; here every problem has the key and a hint, and none hides the others.

use serde_json::Value;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../../charts/kai-scheduler/values.schema.json");
static SCHEMA: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_default());

/// A value that the schema does not allow.
pub(crate) struct Violation {
    pub(crate) key: String,
    pub(crate) problem: String,
    pub(crate) hint: String,
}

/// All violations, in the order of the keys.
pub(crate) fn violations(values: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    check("", values, &SCHEMA, &mut found);
    found
}

fn check(key: &str, value: &Value, schema: &Value, found: &mut Vec<Violation>) {
    let description = schema.get("description").and_then(Value::as_str);
    let mut add = |problem: String, hint: &str| {
        let hint = description.unwrap_or(hint).to_owned();
        found.push(Violation { key: key.to_owned(), problem, hint });
    };
    // Helm removes keys that are null.
    if value.is_null() && !key.is_empty() {
        return;
    }
    if let Some(types) = schema.get("type").filter(|types| !has_type(value, types)) {
        add(format!("it is {}, not {}", type_of(value), written(types)), "see values.yaml of the chart");
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        add(format!("{value} is not one of {}", list(allowed)), "use one of them");
    }
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    if let Some(number) = value.as_f64() {
        let low = bound("minimum").is_some_and(|least| number < least)
            || bound("exclusiveMinimum").is_some_and(|least| number <= least);
        if low || bound("maximum").is_some_and(|most| number > most) {
            add(format!("{number} is out of range"), "see values.yaml of the chart");
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(schema) = schema.get("items") {
            check(&format!("{key}.{index}"), item, schema, found);
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, value) in value.as_object().into_iter().flatten() {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        let further = schema.get("additionalProperties");
        if let Some(schema) =
            properties.and_then(|all| all.get(name)).or(further.filter(|one| one.is_object()))
        {
            check(&key, value, schema, found);
        } else if further == Some(&Value::Bool(false)) && !value.is_null() {
            found.push(Violation {
                problem: "the chart does not know it, nothing would read it".to_owned(),
                hint: "remove it; keys are listed in values.yaml of the chart".to_owned(),
                key,
            });
        }
    }
}

fn has_type(value: &Value, types: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => true,
    };
    match types.as_array() {
        Some(types) => types.iter().filter_map(Value::as_str).any(is),
        None => types.as_str().is_none_or(is),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn written(types: &Value) -> String {
    types.as_array().map_or_else(|| types.as_str().unwrap_or_default().to_owned(), |types| list(types))
}

fn list(values: &[Value]) -> String {
    let texts: Vec<String> =
        values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
    texts.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keywords<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            found.insert(keyword);
            match keyword.as_str() {
                "properties" => {
                    value.as_object().into_iter().flatten().for_each(|(_, one)| keywords(one, found));
                }
                "items" | "additionalProperties" => keywords(value, found),
                _ => {}
            }
        }
    }

    #[test]
    fn every_keyword_of_the_schema_is_checked() {
        let mut found = BTreeSet::new();
        keywords(&SCHEMA, &mut found);
        // `required` and `pattern` are left to helm: they concern single texts, and its message names them.
        let known = [
            "$schema",
            "additionalProperties",
            "description",
            "enum",
            "exclusiveMinimum",
            "items",
            "maximum",
            "minimum",
            "pattern",
            "properties",
            "required",
            "title",
            "type",
        ];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), known);
    }

    #[test]
    fn values_of_the_chart_itself_are_allowed() {
        let values =
            serde_json::json!({"global": {"gpuSharing": true, "tag": "v1"}, "operator": {"replicaCount": 2}});
        assert_eq!(violations(&values).len(), 0);
    }
}
