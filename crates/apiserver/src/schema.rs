//! The structural schema of a kind, used by pruning, defaulting, validation, patches and apply.
//!
//! A schema comes from a `CustomResourceDefinition` ([`Schema::of_definition`]) or from the built-in types ([`builtin`]).
//! Definitions of built-in types refer to each other by name, some recursively, so references are resolved on first
//! use.

pub mod builtin;
pub mod merge_rules;
pub mod strict;

mod cel;
mod check;
mod decode;
mod default;
mod format;
mod omitempty;
mod parse;
mod pattern;
mod prune;
mod rules;
mod structural;
mod validate;

pub use decode::{Reader, decode, decode_by};
pub use default::default;
pub use prune::{normalize, prune};
pub use validate::{Old, validate};

use crate::field;
use builtin::Definition;
use check::Checks;
use omitempty::OmitEmpty;
use rules::Rule;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// Unspecified: any value.
    #[default]
    Any,
    /// A map or struct.
    Object,
    Array,
    /// A string.
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
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

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Merged as a whole.
    #[default]
    Atomic,
    /// Unique scalars, merged by element.
    Set,
    /// Merged by element, identified by these key fields.
    Map(Vec<String>),
}

/// How a field is merged by patches and by apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// For lists.
    pub list: ListType,
    /// Whether a map is merged as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic_map: bool,
    /// `x-kubernetes-patch-strategy`.
    pub strategy: Strategy,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_key: Option<String>,
}

/// The patch strategy of a strategic merge patch.
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

/// The schema of a value.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub kind: Type,
    /// Refines the type, such as `int32` or `date-time`.
    pub format: Option<String>,
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    pub properties: BTreeMap<String, SchemaRef>,
    /// `additionalProperties`.
    pub additional: Option<SchemaRef>,
    /// `items`.
    pub items: Option<SchemaRef>,
    /// The schema of an object where a union also allows other types.
    pub either: Option<SchemaRef>,
    pub default: Option<Value>,
    pub merge: Merge,
    /// The definition of a built-in type, such as `io.k8s.api.core.v1.PodSpec`.
    pub definition: Option<&'static str>,
    required: Vec<String>,
    checks: Option<Box<Checks>>,
    rules: Vec<Rule>,
    omitempty: OmitEmpty,
    /// Fields that are always written for built-in kinds, computed on first use.
    written: OnceLock<Vec<(String, Value)>>,
}

/// An inline schema, or the name of a definition that is resolved on first use.
#[derive(Clone, Debug)]
pub enum SchemaRef {
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
    /// Parses the `openAPIV3Schema` of a version of a `CustomResourceDefinition`.
    ///
    /// `path` is the path of the schema, such as `spec.versions[0].schema.openAPIV3Schema`. Returns all
    /// errors of a schema that is not structural or has rules that do not compile.
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

    /// The schema of kinds whose definition preserves unknown fields.
    pub fn untyped() -> &'static Self {
        &UNTYPED
    }

    /// The schema of a field; `None` if it is unknown.
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

    /// Whether the schema does not constrain the value.
    pub fn is_untyped(&self) -> bool {
        self.kind == Type::Any
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
    }

    /// Whether values are quantities such as `1Gi`.
    pub(crate) fn is_quantity(&self) -> bool {
        self.definition.is_some_and(|name| name.ends_with(".Quantity"))
    }

    pub fn required(&self) -> &[String] {
        &self.required
    }

    /// Whether the object is a map and not a struct.
    pub fn is_map(&self) -> bool {
        self.additional.is_some()
    }
}

#[cfg(test)]
mod tests;
