//! What objects of a kind look like: the structural schema behind pruning, defaults, validation, patches and apply.
//!
//! A schema comes from a `CustomResourceDefinition` ([`Schema::of_definition`]) or from the built-in types ([`builtin`]).
//! It is parsed once and then walked beside an object. Definitions of built-in types refer to each other by name,
//! some to themselves, so those are resolved when a walk first meets them.

pub mod builtin;
pub mod merge_rules;
pub mod strict;

mod cel;
mod check;
mod decode;
mod default;
mod format;
mod parse;
mod prune;
mod rules;
mod structural;
mod validate;
mod zeros;

pub use decode::{Reader, decode, decode_by};
pub use default::default;
pub use prune::{normalize, prune};
pub use validate::{Old, validate};

use crate::field;
use builtin::Definition;
use check::Checks;
use rules::Rule;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};
use zeros::Zeros;

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// Not said: any value.
    #[default]
    Any,
    /// A map of named values.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or text, such as a port or a quantity.
    IntOrString,
}

impl Type {
    /// The name in schemas and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

/// How a list is merged by server-side apply, and so who owns what of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// As a whole.
    #[default]
    Atomic,
    /// Element by element; elements are scalars and differ.
    Set,
    /// Element by element, by the values of these fields.
    Map(Vec<String>),
}

/// How a field is merged by patches and by apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// For lists.
    pub list: ListType,
    /// Whether a map is merged as a whole.
    pub atomic_map: bool,
    /// How a strategic merge patch treats the field.
    pub strategy: Strategy,
    /// The field that identifies elements in a strategic merge patch.
    pub patch_key: Option<String>,
}

/// What a strategic merge patch does with a field it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Lists are replaced, maps merged.
    #[default]
    Plain,
    /// Lists are merged too.
    Merge,
    /// The whole value is replaced.
    Replace,
}

/// Which values a place of an object may have.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The type of the value.
    pub kind: Type,
    /// The format that refines the type, such as `int32` or `date-time`.
    pub format: Option<String>,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// Whether fields that are not described stay.
    pub preserve_unknown: bool,
    /// Whether the value is an object with `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    /// The described fields.
    pub properties: BTreeMap<String, SchemaRef>,
    /// The schema of fields that are not described by name.
    pub additional: Option<SchemaRef>,
    /// The schema of list elements.
    pub items: Option<SchemaRef>,
    /// What an object value looks like where other types are allowed too.
    pub either: Option<SchemaRef>,
    /// The value of a missing field.
    pub default: Option<Value>,
    /// How the field is merged.
    pub merge: Merge,
    /// The definition this is, for built-in types: `io.k8s.api.core.v1.PodSpec`.
    pub definition: Option<&'static str>,
    required: Vec<String>,
    checks: Option<Box<Checks>>,
    rules: Vec<Rule>,
    zeros: Zeros,
    /// Fields that objects of built-in kinds are never without, found when they are first needed.
    written: OnceLock<Vec<(String, Value)>>,
}

/// A schema, or the name of a definition that is parsed when it is first used.
#[derive(Clone, Debug)]
pub enum SchemaRef {
    /// Written at this place.
    Here(Arc<Schema>),
    /// A definition of a built-in type.
    Named(&'static Definition),
}

impl Deref for SchemaRef {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::Here(schema) => schema,
            Self::Named(definition) => definition.schema(),
        }
    }
}

impl From<Schema> for SchemaRef {
    fn from(schema: Schema) -> Self {
        Self::Here(Arc::new(schema))
    }
}

static UNTYPED: LazyLock<Schema> = LazyLock::new(|| Schema { preserve_unknown: true, ..Schema::default() });

impl Schema {
    /// Reads the `openAPIV3Schema` of a version of a `CustomResourceDefinition`.
    ///
    /// `path` is where the schema stands, such as `spec.versions[0].schema.openAPIV3Schema`. A schema that is not
    /// structural, or that has rules which do not compile, is refused with everything that is wrong.
    pub fn of_definition(schema: &Value, path: &field::Path<'_>) -> Result<Self, Vec<field::Error>> {
        let errors = structural::check(schema, path);
        if !errors.is_empty() {
            return Err(errors);
        }
        let parsed = parse::custom(schema);
        let mut errors = default::check(&parsed, path);
        errors.extend(rules::check(schema, path));
        if errors.is_empty() { Ok(parsed) } else { Err(errors) }
    }

    /// The schema of anything, for kinds whose definition preserves unknown fields.
    pub fn untyped() -> &'static Self {
        &UNTYPED
    }

    /// The schema of a field, or nothing where such a field is unknown.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        if let Some(property) = self.properties.get(name) {
            return Some(property);
        }
        if let Some(additional) = &self.additional {
            return Some(additional);
        }
        if let Some(either) = &self.either {
            return either.field(name);
        }
        (self.preserve_unknown || self.kind == Type::Any).then(Self::untyped)
    }

    /// The schema of list elements.
    pub fn element(&self) -> &Schema {
        self.items.as_deref().unwrap_or(Self::untyped())
    }

    /// Whether the schema says nothing about the value.
    pub fn is_untyped(&self) -> bool {
        self.kind == Type::Any
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
    }

    /// Whether values are amounts such as `1Gi`.
    pub(crate) fn is_quantity(&self) -> bool {
        self.definition.is_some_and(|name| name.ends_with(".Quantity"))
    }

    /// The fields that must be there.
    pub fn required(&self) -> &[String] {
        &self.required
    }

    /// Whether an object of string keys is a map rather than a struct.
    pub fn is_map(&self) -> bool {
        self.additional.is_some()
    }
}

#[cfg(test)]
mod tests;
