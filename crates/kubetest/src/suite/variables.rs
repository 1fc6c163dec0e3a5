//! Variables in steps: `${name}` for a captured value, `${each}` for an element of `each`, `${fill:N}` for N letters.

use super::Step;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) type Values = BTreeMap<String, String>;

/// Replaces every variable in a text; fails for an unknown one.
pub(super) fn fill(text: &str, values: &Values) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let name = &rest[start + 2..start + length];
        filled.push_str(&rest[..start]);
        match (name.strip_prefix("fill:").map(str::parse::<usize>), values.get(name)) {
            (Some(Ok(count)), _) => filled.push_str(&"x".repeat(count)),
            (_, Some(value)) => filled.push_str(value),
            (_, None) => return Err(format!("unknown variable `{name}`")),
        }
        rest = &rest[start + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Replaces the variables of every string and key of a value.
pub(super) fn fill_value(value: &Value, values: &Values) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(fill(text, values)?),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill_value(item, values)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let mut filled = serde_json::Map::new();
            for (key, field) in fields {
                filled.insert(fill(key, values)?, fill_value(field, values)?);
            }
            Value::Object(filled)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// Expands each step with `each` into one step per value.
pub(super) fn expand(steps: Vec<Step>) -> Vec<Step> {
    let mut all = Vec::new();
    for mut step in steps {
        step.during = expand(step.during);
        if step.each.is_empty() {
            all.push(step);
            continue;
        }
        for value in std::mem::take(&mut step.each) {
            all.push(with_value(&step, &value));
        }
    }
    all
}

fn with_value(step: &Step, value: &str) -> Step {
    let replace = |text: &str| text.replace("${each}", value);
    let mut one = step.clone();
    one.step =
        if step.step.contains("${each}") { replace(&step.step) } else { format!("{}: {value}", step.step) };
    one.request = replace(&step.request);
    one.text = step.text.as_deref().map(replace);
    one.content_type = step.content_type.as_deref().map(replace);
    one.accept = step.accept.as_deref().map(replace);
    one.body = step.body.as_ref().map(|body| replace_in(body, value));
    one
}

fn replace_in(value: &Value, each: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("${each}", each)),
        Value::Array(items) => Value::Array(items.iter().map(|item| replace_in(item, each)).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, field)| (key.replace("${each}", each), replace_in(field, each)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_by_their_values() {
        let values = Values::from([("rv".to_owned(), "7".to_owned())]);
        assert_eq!(fill("a=${rv}&b=${fill:3}", &values).unwrap(), "a=7&b=xxx");
        assert_eq!(fill("no ${more", &values).unwrap(), "no ${more");
        assert_eq!(fill("${uid}", &values).unwrap_err(), "unknown variable `uid`");
    }
}
