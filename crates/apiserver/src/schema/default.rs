//! Defaulting of custom resources.

use super::{Old, Schema, validate};
use crate::field::{Error, Path};
use serde_json::Value;

/// Sets every missing field that has a default, recursively; nulls of non-nullable fields count as missing.
pub fn default(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let missing = fields.get(name).is_none_or(|value| value.is_null() && !property.nullable);
                if missing {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(field) = schema.properties.get(name).or(schema.additional.as_ref()) {
                    replace_null(field, value);
                    default(field, value);
                }
            }
            // A null that is neither nullable nor defaulted is removed.
            let nullable = |name: &str| schema.properties.get(name).is_none_or(|property| property.nullable);
            fields.retain(|name, value| !value.is_null() || nullable(name));
        }
        Value::Array(elements) => {
            for element in elements {
                replace_null(schema.element(), element);
                default(schema.element(), element);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Validates the defaults of a schema at `path`.
pub(super) fn check(schema: &Schema, path: &Path<'_>) -> Vec<Error> {
    let mut errors = Vec::new();
    check_at(schema, path, &mut errors);
    errors
}

fn check_at(schema: &Schema, path: &Path<'_>, errors: &mut Vec<Error>) {
    if let Some(default) = &schema.default {
        let place = path.field("default");
        for mut error in validate(schema, default, Old::None) {
            error.field = match error.field.as_str() {
                "<nil>" => place.to_string(),
                below => format!("{place}.{below}"),
            };
            errors.push(error);
        }
    }
    if let Some(items) = &schema.items {
        check_at(items, &path.field("items"), errors);
    }
    let properties = path.field("properties");
    // `metadata` is described by the server and not by the definition.
    for (name, property) in schema.properties.iter().filter(|(_, property)| property.definition.is_none()) {
        check_at(property, &properties.key(name), errors);
    }
    if let Some(additional) = &schema.additional {
        check_at(additional, &path.field("additionalProperties"), errors);
    }
}

fn replace_null(schema: &Schema, value: &mut Value) {
    if let Some(default) = schema.default.as_ref().filter(|_| value.is_null() && !schema.nullable) {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;
    use serde_json::json;

    #[test]
    fn defaults_are_applied_recursively() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 3},
            "mode": {"type": "string", "default": "a"},
            "maybe": {"type": "string", "nullable": true, "default": "b"},
            "map": {"type": "object", "additionalProperties":
                {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}},
            "list": {"type": "array", "items":
                {"type": "object", "properties": {"y": {"type": "boolean", "default": true}}}},
        }}}});
        let schema = Schema::of_definition(&schema, &Path::of("schema")).unwrap();
        let mut empty = json!({});
        default(&schema, &mut empty);
        assert_eq!(empty, json!({"spec": {"size": 3, "mode": "a", "maybe": "b"}}));
        let mut given = json!({"spec": {"size": 0, "mode": null, "maybe": null, "map": {"k": {}}, "list": [{}, {"y": false}]}});
        default(&schema, &mut given);
        assert_eq!(
            given,
            json!({"spec": {"size": 0, "mode": "a", "maybe": null, "map": {"k": {"x": 1}}, "list": [{"y": true}, {"y": false}]}})
        );
    }
}
