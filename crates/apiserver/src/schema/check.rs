//! The value validations of a schema: limits, patterns, enumerations and logical junctors.

use super::parse;
use super::pattern;
use super::{Schema, SchemaRef};
use regex::Regex;
use serde_json::Value;

/// Constraints beyond the type.
#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    pub(super) one_of_values: Option<Vec<Value>>,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) pattern: Option<Pattern>,
    pub(super) min_items: Option<usize>,
    pub(super) max_items: Option<usize>,
    pub(super) min_properties: Option<usize>,
    pub(super) max_properties: Option<usize>,
    pub(super) all_of: Vec<SchemaRef>,
    pub(super) any_of: Vec<SchemaRef>,
    pub(super) one_of: Vec<SchemaRef>,
    pub(super) not: Option<SchemaRef>,
}

/// A minimum or maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    /// `None` if it does not compile; definitions with such a pattern are rejected.
    pub(super) regex: Option<Regex>,
}

impl Checks {
    /// The validations of a JSON schema; `None` if there are none.
    pub(super) fn of(raw: &Value) -> Option<Box<Self>> {
        let names = [
            "enum",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !names.iter().any(|name| raw.get(name).is_some_and(|value| !value.is_null())) {
            return None;
        }
        let count = |name: &str| raw.get(name).and_then(Value::as_u64).map(|count| count as usize);
        let pattern = raw.get("pattern").and_then(Value::as_str).filter(|pattern| !pattern.is_empty());
        Some(Box::new(Self {
            one_of_values: raw.get("enum").and_then(Value::as_array).cloned(),
            minimum: bound(raw, "minimum", "exclusiveMinimum"),
            maximum: bound(raw, "maximum", "exclusiveMaximum"),
            multiple_of: raw.get("multipleOf").and_then(Value::as_f64),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: pattern
                .map(|text| Pattern { text: text.to_owned(), regex: pattern::compiled(text).ok() }),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: schemas(raw.get("allOf")),
            any_of: schemas(raw.get("anyOf")),
            one_of: schemas(raw.get("oneOf")),
            not: raw.get("not").filter(|not| not.is_object()).map(parse::reference),
        }))
    }
}

fn bound(raw: &Value, name: &str, exclusive: &str) -> Option<Bound> {
    let value = raw.get(name)?.as_f64()?;
    Some(Bound { value, exclusive: raw.get(exclusive).and_then(Value::as_bool).unwrap_or_default() })
}

fn schemas(raw: Option<&Value>) -> Vec<SchemaRef> {
    raw.and_then(Value::as_array).into_iter().flatten().map(parse::reference).collect()
}

/// The constraints of a schema.
pub(super) fn of(schema: &Schema) -> Option<&Checks> {
    schema.checks.as_deref()
}
