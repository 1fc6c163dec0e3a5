//! Parses JSON schemas of custom resources and of built-in types into [`Schema`]s.

use super::builtin::{self, REFERENCE};
use super::check::Checks;
use super::omitempty::OmitEmpty;
use super::rules::Rule;
use super::{ListType, Merge, Schema, SchemaRef, Type, merge_rules};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;

/// Built-in types that hold arbitrary JSON although their schema says `object`.
const ANYTHING: [&str; 3] = [
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

/// The generator settings for schemas of built-in types.
pub(super) fn settings() -> SchemaSettings {
    SchemaSettings::openapi3()
}

/// The schema of a custom resource; `apiVersion`, `kind` and `metadata` are always declared.
pub(super) fn custom(raw: &Value) -> Schema {
    let mut schema = any(raw);
    describe_object(&mut schema, raw);
    schema
}

pub(super) fn definition(raw: &'static Value, name: &'static str) -> Schema {
    if ANYTHING.contains(&name) {
        return Schema { definition: Some(name), ..Schema::untyped().clone() };
    }
    let mut schema = any(raw);
    schema.definition = Some(name);
    schema.omitempty = OmitEmpty::of(name);
    schema.merge.atomic_map = merge_rules::is_atomic_type(name);
    for (field, property) in &mut schema.properties {
        let rule = merge_rules::of_field(name, field);
        let granular = merge_rules::is_granular(name, field);
        let default = merge_rules::key_default(name, field);
        if rule.is_none() && !granular && default.is_none() {
            continue;
        }
        let mut own = Schema::clone(property);
        if let Some(rule) = rule {
            own.merge = Merge { atomic_map: rule.atomic_map || own.merge.atomic_map, ..rule.clone() };
        }
        own.merge.atomic_map &= !granular;
        own.default = default.map(Value::from);
        *property = own.into();
    }
    schema
}

fn any(raw: &Value) -> Schema {
    let text = |name: &str| raw.get(name).and_then(Value::as_str);
    let flag = |name: &str| raw.get(name).and_then(Value::as_bool).unwrap_or_default();
    let int_or_string = flag("x-kubernetes-int-or-string");
    let kind = match text("type") {
        _ if int_or_string => Type::IntOrString,
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    };
    let mut schema = Schema {
        kind,
        format: text("format").map(str::to_owned),
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        properties: properties(raw),
        additional: additional(raw.get("additionalProperties")),
        items: raw.get("items").filter(|items| items.is_object()).map(reference),
        either: raw.get("oneOf").and_then(named_alternative),
        default: raw.get("default").filter(|value| !value.is_null()).cloned(),
        merge: merge(raw),
        definition: None,
        required: strings(raw.get("required")),
        checks: Checks::of(raw),
        rules: Rule::all_of(raw),
        omitempty: OmitEmpty::default(),
        written: OnceLock::new(),
    };
    if schema.embedded {
        describe_object(&mut schema, raw);
    }
    schema
}

/// Declares the fields of every object. A schema may restrict only the name in `metadata`.
fn describe_object(schema: &mut Schema, raw: &Value) {
    let mut metadata = Schema { written: OnceLock::new(), ..builtin::object_meta().clone() };
    metadata.rules = schema.properties.get("metadata").map(|own| own.rules.clone()).unwrap_or_default();
    for name in ["name", "generateName"] {
        if let Some(own) = raw.pointer(&format!("/properties/metadata/properties/{name}")) {
            metadata.properties.insert(name.to_owned(), reference(own));
        }
    }
    let text = || SchemaRef::from(Schema { kind: Type::String, ..Schema::default() });
    schema.properties.entry("apiVersion".to_owned()).or_insert_with(text);
    schema.properties.entry("kind".to_owned()).or_insert_with(text);
    schema.properties.insert("metadata".to_owned(), metadata.into());
}

pub(super) fn reference(raw: &Value) -> SchemaRef {
    let name =
        raw.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix(REFERENCE));
    match name.and_then(builtin::definition) {
        Some(definition) => SchemaRef::Named(definition),
        None => SchemaRef::Here(Arc::new(any(raw))),
    }
}

fn properties(raw: &Value) -> BTreeMap<String, SchemaRef> {
    let empty = Map::new();
    let properties = raw.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    properties.iter().map(|(name, property)| (name.clone(), reference(property))).collect()
}

fn additional(raw: Option<&Value>) -> Option<SchemaRef> {
    match raw? {
        Value::Bool(true) => Some(SchemaRef::from(Schema::untyped().clone())),
        schema @ Value::Object(_) => Some(reference(schema)),
        Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// Built-in types use `oneOf` only for "this type, or a scalar".
fn named_alternative(alternatives: &Value) -> Option<SchemaRef> {
    alternatives.as_array()?.iter().find(|alternative| alternative.get("$ref").is_some()).map(reference)
}

fn merge(raw: &Value) -> Merge {
    let text = |name: &str| raw.get(name).and_then(Value::as_str);
    let list = match text("x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(raw.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    };
    Merge { list, atomic_map: text("x-kubernetes-map-type") == Some("atomic"), ..Merge::default() }
}

pub(super) fn strings(raw: Option<&Value>) -> Vec<String> {
    let values = raw.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
