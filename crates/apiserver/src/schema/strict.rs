//! Strict decoding: finds unknown and duplicate fields for `fieldValidation`.

use super::Schema;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// Limit of reported errors.
const FINDINGS_MAX: usize = 100;

/// `unknown field "spec.foo"` for every undeclared field, sorted by name.
pub fn unknown_fields(schema: &Schema, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    unknown_at(schema, object, &mut String::new(), &mut found);
    found.truncate(FINDINGS_MAX);
    found
}

fn unknown_at(schema: &Schema, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                push_field(path, name);
                match schema.field(name) {
                    Some(field) => unknown_at(field, value, path, found),
                    None => found.push(format!("unknown field \"{path}\"")),
                }
                path.truncate(length);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                push_index(path, index);
                unknown_at(schema.element(), element, path, found);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `duplicate field "spec.x"` for every field that occurs more than once in a JSON text.
///
/// Text that is not JSON has none: decoding it fails elsewhere.
pub fn duplicate_fields(json: &[u8]) -> Vec<String> {
    let mut scan = Scan { path: String::new(), found: Vec::new() };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let _ = Walk(&mut scan).deserialize(&mut reader);
    scan.found.truncate(FINDINGS_MAX);
    scan.found
}

/// All findings as one message.
pub fn message(findings: &[String]) -> String {
    format!("strict decoding error: {}", findings.join(", "))
}

fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn push_index(path: &mut String, index: usize) {
    use fmt::Write as _;
    let _ = write!(path, "[{index}]");
}

struct Scan {
    path: String,
    found: Vec<String>,
}

/// Deserializes a field name without copying, unless it contains escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

struct Walk<'a>(&'a mut Scan);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        let length = self.0.path.len();
        while let Some(name) = map.next_key_seed(Name)? {
            push_field(&mut self.0.path, &name);
            if seen.contains(&name) {
                if twice.insert(name) && self.0.found.len() < FINDINGS_MAX {
                    self.0.found.push(format!("duplicate field \"{}\"", self.0.path));
                }
            } else {
                seen.insert(name);
            }
            map.next_value_seed(Walk(&mut *self.0))?;
            self.0.path.truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let length = self.0.path.len();
        for index in 0.. {
            push_index(&mut self.0.path, index);
            let more = elements.next_element_seed(Walk(&mut *self.0))?;
            self.0.path.truncate(length);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_reported_with_their_path() {
        let pod = json!({
            "metadata": {"name": "p", "labels": {"any": "thing"}, "naem": 1},
            "spec": {"containers": [{"name": "c"}, {"name": "d", "imgae": "x", "env": [{"nam": 1}]}]},
            "foo": 1,
        });
        assert_eq!(
            unknown_fields(builtin::schema("v1", "Pod").unwrap(), &pod),
            [
                r#"unknown field "foo""#,
                r#"unknown field "metadata.naem""#,
                r#"unknown field "spec.containers[1].env[0].nam""#,
                r#"unknown field "spec.containers[1].imgae""#,
            ]
        );
        assert!(unknown_fields(Schema::untyped(), &pod).is_empty());
    }

    #[test]
    fn duplicate_fields_are_reported_once() {
        let text = r#"{"a": 1, "b": {"c": 1, "c": 2, "c": 3}, "l": [{}, {"x": 1, "x": [{"y": 0, "y": 0}]}], "a": null}"#;
        assert_eq!(
            duplicate_fields(text.as_bytes()),
            [
                r#"duplicate field "b.c""#,
                r#"duplicate field "l[1].x""#,
                r#"duplicate field "l[1].x[0].y""#,
                r#"duplicate field "a""#,
            ]
        );
        assert!(duplicate_fields(b"{not json").is_empty());
        assert_eq!(message(&["a".to_owned(), "b".to_owned()]), "strict decoding error: a, b");
    }

    #[test]
    fn findings_are_limited() {
        let fields: Vec<_> = (0..500).map(|index| format!("\"f{index}\": 1, \"f{index}\": 1")).collect();
        let text = format!("{{{}}}", fields.join(", "));
        assert_eq!(duplicate_fields(text.as_bytes()).len(), FINDINGS_MAX);
        let object = serde_json::from_str(&text).unwrap();
        assert_eq!(unknown_fields(builtin::schema("v1", "Pod").unwrap(), &object).len(), FINDINGS_MAX);
    }
}
