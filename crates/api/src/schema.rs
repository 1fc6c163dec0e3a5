//! Turns the schemas that `schemars` derives into the structural form that a CRD requires.
//!
//! Input: a derived schema with a definition for each type. Output: one tree without references, `null`s,
//! titles or defaults of our own, in which embedded Kubernetes types carry the markers (`markers`) that the
//! API machinery's own generator would give them.
//! Descriptions of embedded Kubernetes types are left out: they are documented elsewhere, and with them the
//! largest CRD would exceed what `kubectl apply` can store in an annotation.

#![expect(
    clippy::expect_used,
    clippy::unreachable,
    reason = "schemas come from the types of this crate, and a test builds all of them"
)]
#![expect(clippy::indexing_slicing, reason = "reads derived schemas, nothing from outside")]

mod markers;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Pattern of a label key: an optional DNS name and a slash, then a name.
pub(crate) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Pattern of one part of a DNS name.
pub(crate) const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Whether the schema demands a `spec`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// An object without it is refused.
    Required,
    /// An object without it is accepted.
    Optional,
}

/// Schema of a whole custom resource, from the schemas of its parts.
pub(crate) struct ResourceSchema {
    generator: SchemaGenerator,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl ResourceSchema {
    /// Starts with what every object has; the API server checks those fields itself.
    pub(crate) fn new() -> Self {
        let text = |about: &str| json!({"description": about, "type": "string"});
        let mut properties = Map::new();
        properties
            .insert("apiVersion".into(), text("Group and version of the API the object is written in."));
        properties.insert("kind".into(), text("What the object is."));
        properties.insert("metadata".into(), json!({"type": "object"}));
        let generator = SchemaSettings::draft2020_12().into_generator();
        Self { generator, properties, required: Vec::new() }
    }

    /// Adds the part named `name`.
    pub(crate) fn part<T: JsonSchema>(mut self, name: &str, presence: Presence) -> Self {
        let schema = self.generator.subschema_for::<T>();
        self.properties.insert(name.into(), schema.into());
        if presence == Presence::Required {
            self.required.push(name.into());
        }
        self
    }

    /// The finished schema.
    pub(crate) fn finish(mut self, description: &str) -> Schema {
        let definitions = self.generator.take_definitions(true);
        let mut root = json!({
            "description": description, "type": "object", "properties": self.properties,
        });
        if !self.required.is_empty() {
            root["required"] = self.required.into();
        }
        let tree = inline(root, &definitions, Origin::Ours);
        tree.try_into().expect("a JSON object is a schema")
    }
}

/// Implements `JsonSchema` for the root type of a custom resource.
macro_rules! custom_resource_schema {
    ($kind:ident, $about:literal, { spec: $presence:ident $spec:ty $(, status: $status:ty)? }) => {
        impl schemars::JsonSchema for $kind {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::schema::ResourceSchema::new()
                    .part::<$spec>("spec", $crate::schema::custom_resource_schema!(@presence $presence))
                    $(.part::<$status>("status", $crate::schema::Presence::Optional))?
                    .finish($about)
            }
        }
    };
    (@presence required) => { $crate::schema::Presence::Required };
    (@presence optional) => { $crate::schema::Presence::Optional };
}
pub(crate) use custom_resource_schema;

/// Where the type of a schema is defined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// This crate: descriptions are kept, number formats are dropped unless the API guarantees them.
    Ours,
    /// Kubernetes.
    Kubernetes,
}

/// Replaces references by what they refer to, all the way down, and normalises every node on the way.
fn inline(schema: Value, definitions: &Map<String, Value>, origin: Origin) -> Value {
    let Value::Object(mut node) = schema else {
        unreachable!("no custom resource has a field of any type");
    };
    drop_null(&mut node);
    collapse_words(&mut node);
    if let Some(reference) = node.remove("$ref") {
        return dereference(node, &reference, definitions, origin);
    }
    for key in ["$schema", "title", "default"] {
        node.remove(key);
    }
    match origin {
        Origin::Ours => drop_loose_format(&mut node),
        Origin::Kubernetes => drop(node.remove("description")),
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = node.remove(key) {
            node.insert(key.into(), inline(child, definitions, origin));
        }
    }
    if let Some(Value::Object(properties)) = node.remove("properties") {
        let properties =
            properties.into_iter().map(|(name, child)| (name, inline(child, definitions, origin)));
        node.insert("properties".into(), Value::Object(properties.collect()));
    }
    Value::Object(node)
}

/// The definition `reference` names, with the siblings of the reference put over it.
fn dereference(
    siblings: Map<String, Value>,
    reference: &Value,
    definitions: &Map<String, Value>,
    origin: Origin,
) -> Value {
    let name = reference
        .as_str()
        .and_then(|path| path.strip_prefix("#/$defs/"))
        .expect("references lead to a definition");
    let definition = definitions.get(name).expect("every referenced type is defined").clone();
    let inner = if name.starts_with("io.k8s.") { Origin::Kubernetes } else { Origin::Ours };
    let mut target = inline(definition, definitions, inner);
    if inner == Origin::Kubernetes {
        markers::apply(name, &mut target);
    }
    for (key, value) in siblings {
        let keep = match key.as_str() {
            "description" => origin == Origin::Ours,
            "default" => false,
            _ => true,
        };
        if keep {
            target[key] = value;
        }
    }
    target
}

/// Takes away that the value may be `null`, which is how `schemars` writes `Option`.
///
/// Kubernetes treats absent and `null` alike unless a schema has `nullable`, and none here has.
fn drop_null(node: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = node.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            node.insert("type".into(), only);
        }
    }
    let optional = match node.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([Value::Object(inner), null]) if null["type"] == "null" => inner.clone(),
        _ => return,
    };
    node.remove("anyOf");
    for (key, value) in optional {
        node.entry(key).or_insert(value);
    }
}

/// Rewrites a `oneOf` of documented constants as an `enum`.
fn collapse_words(node: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = node.remove("oneOf") else {
        return;
    };
    let values = choices.into_iter().map(|mut choice| choice["const"].take()).collect();
    node.insert("type".into(), "string".into());
    node.insert("enum".into(), Value::Array(values));
}

/// Drops formats that follow from the Rust type alone.
///
/// Fields of 64 bits hold what the API calls a plain integer or number; `int32` and `date-time` are promises.
fn drop_loose_format(node: &mut Map<String, Value>) {
    if node.get("format").is_some_and(|format| format == "int64" || format == "double") {
        node.remove("format");
    }
}
