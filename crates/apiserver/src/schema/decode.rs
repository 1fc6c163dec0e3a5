//! Checks that an object of a built-in kind can be decoded: every value must have the type of its field.
//!
//! kube-apiserver decodes into structs and stops at the first mismatch. Clients see its message, so it is reproduced
//! here.

use super::{Schema, Type};
use crate::field::quote;
use serde_json::Value;

/// The Go decoder, which determines the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `encoding/json`.
    Text,
    /// `runtime.DefaultUnstructuredConverter`, which strategic merge patch uses.
    Maps,
}

/// The message of the first mismatch, as decoding JSON reports it.
pub fn decode(schema: &Schema, object: &Value) -> Result<(), String> {
    decode_by(Reader::Text, schema, object)
}

/// The message of the first mismatch, as the given decoder reports it.
pub fn decode_by(reader: Reader, schema: &Schema, object: &Value) -> Result<(), String> {
    walk(schema, object, &mut Place { owner: "", path: Vec::new(), reader })
}

/// The position of the walk: the enclosing struct and the field names on the path, without list indices.
struct Place<'a> {
    owner: &'a str,
    path: Vec<&'a str>,
    reader: Reader,
}

fn walk<'a>(schema: &'a Schema, value: &'a Value, place: &mut Place<'a>) -> Result<(), String> {
    // A union type may hold a scalar instead of an object.
    let kind = if schema.either.is_some() && value.is_object() { Type::Object } else { schema.kind };
    match (kind, value) {
        (Type::IntOrString, Value::String(text)) if schema.is_quantity() => return check_quantity(text),
        (_, Value::Null)
        | (Type::Any, _)
        | (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number, Value::Number(_))
        | (Type::IntOrString, Value::String(_) | Value::Number(_)) => {}
        (Type::Integer, Value::Number(number)) if fits(schema, number) => {}
        (Type::Array, Value::Array(elements)) => {
            for element in elements {
                walk(schema.element(), element, place)?;
            }
        }
        (Type::Object, Value::Object(fields)) => {
            let outer = place.owner;
            place.owner = owner_name(schema).unwrap_or(outer);
            for (name, value) in fields {
                let Some(field) = schema.field(name) else { continue };
                // Map keys are not part of the path.
                if schema.is_map() {
                    walk(field, value, place)?;
                } else {
                    place.path.push(name);
                    walk(field, value, place)?;
                    place.path.pop();
                }
            }
            place.owner = outer;
        }
        (Type::IntOrString, _) if schema.is_quantity() => return check_quantity(&value.to_string()),
        (
            Type::Object
            | Type::Array
            | Type::String
            | Type::Integer
            | Type::Number
            | Type::Boolean
            | Type::IntOrString,
            _,
        ) => {
            return Err(match place.reader {
                Reader::Text => mismatch(schema, value, place),
                Reader::Maps => converter_error(schema, value),
            });
        }
    }
    check_bytes(schema, value)?;
    check_time(schema, value)
}

/// Whether a number is an integer of the field's width.
fn fits(schema: &Schema, number: &serde_json::Number) -> bool {
    match schema.format.as_deref() {
        Some("int32") => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Some(_) | None => number.is_i64(),
    }
}

fn check_bytes(schema: &Schema, value: &Value) -> Result<(), String> {
    let (Some("byte"), Value::String(text)) = (schema.format.as_deref(), value) else { return Ok(()) };
    match base64_fault(text) {
        Some(at) => Err(format!("illegal base64 data at input byte {at}")),
        None => Ok(()),
    }
}

/// The offset of the first invalid base64 byte, as Go counts it; line breaks are skipped.
fn base64_fault(text: &str) -> Option<usize> {
    let mut letters = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\n' | b'\r'));
    let mut count = 0;
    while let Some((at, byte)) = letters.next() {
        if byte == b'=' {
            match count % 4 {
                0 | 1 => return Some(at),
                2 => match letters.next() {
                    None => return Some(text.len()),
                    Some((_, b'=')) => {}
                    Some((at, _)) => return Some(at),
                },
                _ => {}
            }
            return letters.next().map(|(at, _)| at);
        }
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')) {
            return Some(at);
        }
        count += 1;
    }
    (count % 4 != 0).then(|| text.len() - count % 4)
}

fn mismatch(schema: &Schema, value: &Value, place: &Place<'_>) -> String {
    let given = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if schema.kind == Type::Integer => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    let wanted = go_type(schema);
    if place.path.is_empty() {
        return format!("json: cannot unmarshal {given} into Go value of type {wanted}");
    }
    let field = place.path.join(".");
    format!("json: cannot unmarshal {given} into Go struct field {}.{field} of type {wanted}", place.owner)
}

/// The message of the unstructured converter, which has no path.
fn converter_error(schema: &Schema, value: &Value) -> String {
    let given = match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => crate::field::go_type(value),
    };
    let wanted = match schema.kind {
        Type::Object if schema.is_map() => return format!("cannot restore map from {given}"),
        Type::Object => return format!("cannot restore struct from: {given}"),
        Type::Array => return format!("cannot restore slice from {given}"),
        Type::Any | Type::String | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => {
            go_type(schema)
        }
    };
    // Go could convert these types implicitly; the decoder rejects them.
    match (value, schema.kind) {
        (Value::Number(number), Type::String) if !number.is_f64() => {
            format!("cannot convert {given} to {wanted}")
        }
        (Value::Number(_), Type::Integer) => format!("cannot convert {given} to {wanted}"),
        _ => format!("unrecognized type: {wanted}"),
    }
}

/// The Go type of a schema.
fn go_type(schema: &Schema) -> String {
    if let Some(definition) = schema.definition {
        return go_name(definition);
    }
    match schema.kind {
        Type::Any => "interface {}".to_owned(),
        Type::Array => format!("[]{}", go_type(schema.element())),
        Type::Object => {
            let value = schema.additional.as_deref().map_or_else(|| "interface {}".to_owned(), go_type);
            format!("map[string]{value}")
        }
        Type::String => "string".to_owned(),
        Type::Integer => schema.format.clone().unwrap_or_else(|| "int64".to_owned()),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
    }
}

/// `io.k8s.api.core.v1.PodSpec` → `v1.PodSpec`.
fn go_name(definition: &str) -> String {
    let mut parts = definition.rsplit('.');
    let name = parts.next().unwrap_or_default();
    parts.next().map_or_else(|| name.to_owned(), |package| format!("{package}.{name}"))
}

fn owner_name(schema: &Schema) -> Option<&str> {
    schema.definition.or_else(|| schema.either.as_deref()?.definition)?.rsplit('.').next()
}

fn check_quantity(text: &str) -> Result<(), String> {
    let digits = text.trim_start_matches(['+', '-']);
    let number = digits.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, exponent) = match number.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (number, None),
    };
    let plain = !number.is_empty()
        && text.len() - digits.len() <= 1
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && number.bytes().filter(|byte| *byte == b'.').count() <= 1
        && number != ".";
    let suffix = &digits[number.len() + exponent.map_or(0, |exponent| exponent.len() + 1)..];
    let known = match exponent {
        Some(exponent) => suffix.is_empty() && exponent.parse::<i64>().is_ok(),
        None => ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
            .contains(&suffix),
    };
    if plain && known {
        return Ok(());
    }
    if plain {
        return Err("unable to parse quantity's suffix".to_owned());
    }
    Err("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        .to_owned())
}

fn check_time(schema: &Schema, value: &Value) -> Result<(), String> {
    let (Some("date-time"), Value::String(text)) = (schema.format.as_deref(), value) else { return Ok(()) };
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let layout = if schema.definition.is_some_and(|name| name.ends_with(".MicroTime")) {
        "2006-01-02T15:04:05.000000Z07:00"
    } else {
        "2006-01-02T15:04:05Z07:00"
    };
    let text = quote(text);
    Err(format!("parsing time {text} as \"{layout}\": cannot parse {text} as \"2006\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use serde_json::json;

    fn error(api_version: &str, kind: &str, object: &Value) -> String {
        decode(builtin::schema(api_version, kind).unwrap(), object).unwrap_err()
    }

    #[test]
    fn valid_objects_are_decoded() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "creationTimestamp": null},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
                "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}},
        });
        decode(builtin::schema("apps/v1", "Deployment").unwrap(), &deployment).unwrap();
        let crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {
            "additionalProperties": true, "properties": {"a": {"default": 1, "enum": ["a", 2], "items": {"type": "string"}}}}}}]}});
        decode(builtin::schema("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap(), &crd)
            .unwrap();
    }

    #[test]
    fn first_mismatch_is_reported() {
        assert_eq!(
            error("apps/v1", "Deployment", &json!({"spec": {"replicas": "two"}})),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        assert_eq!(
            error("v1", "Pod", &json!({"spec": {"containers": [{"image": 1}]}})),
            "json: cannot unmarshal number into Go struct field Container.spec.containers.image of type string"
        );
        assert_eq!(
            error("v1", "Pod", &json!({"spec": {"containers": {}}})),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
        );
        assert_eq!(
            error("v1", "ConfigMap", &json!({"data": {"a": 1}})),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        assert_eq!(
            error("apps/v1", "Deployment", &json!({"spec": {"replicas": 1.5}})),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        assert_eq!(
            error("v1", "Pod", &json!([])),
            "json: cannot unmarshal array into Go value of type v1.Pod"
        );
    }

    #[test]
    fn bytes_and_narrow_integers_are_checked() {
        for (text, fault) in [
            ("", None),
            ("aGk=", None),
            ("aGk", Some(0)),
            ("aa\nGk=\n", Some(5)),
            ("aGk=x", Some(4)),
            ("no!", Some(2)),
            ("=", Some(0)),
            ("aG=", Some(3)),
            ("aG==", None),
        ] {
            assert_eq!(base64_fault(text), fault, "{text}");
        }
        let secret = json!({"data": {"a": "???"}});
        assert_eq!(error("v1", "Secret", &secret), "illegal base64 data at input byte 0");
        assert!(
            error("apps/v1", "Deployment", &json!({"spec": {"replicas": 5_000_000_000_i64}}))
                .starts_with("json: cannot unmarshal number 5000000000 into")
        );
    }

    #[test]
    fn quantities_and_times_must_parse() {
        let pod = |cpu: Value| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": cpu}}}]}});
        for good in [json!("100m"), json!("1.5"), json!("1e3"), json!(2), json!("-1Ki"), json!(".5")] {
            decode(builtin::schema("v1", "Pod").unwrap(), &pod(good)).unwrap();
        }
        assert!(error("v1", "Pod", &pod(json!("lots"))).starts_with("quantities must match"));
        assert_eq!(error("v1", "Pod", &pod(json!("1x"))), "unable to parse quantity's suffix");
        assert!(
            error("v1", "Pod", &json!({"status": {"startTime": "now"}}))
                .starts_with("parsing time \"now\" as")
        );
    }
}
