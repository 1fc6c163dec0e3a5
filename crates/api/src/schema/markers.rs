//! Schema markers (defaults, list types, patterns) of embedded Kubernetes types.
//!
//! The API document that the Rust types are made from has no defaults, list kinds or patterns; Kubernetes keeps
//! those as comments in its sources. The tables below hold them for the types our resources embed.

#![expect(
    clippy::unreachable,
    reason = "schemas come from the types of this crate, and a test builds all of them"
)]

use super::QUALIFIED_NAME;
use serde_json::{Map, Value, json};

/// Objects that are replaced as a whole by a merge.
const ATOMIC_MAPS: [&str; 3] = [
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
];

/// Lists that are merged item by item: type, field, and the fields of an item that identify it.
/// Every other list of a Kubernetes type is replaced as a whole.
const KEYED_LISTS: [(&str, &str, &str); 1] = [("io.k8s.api.core.v1.ResourceRequirements", "claims", "name")];

/// Text forms a quantity may have.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Completes the schema of the Kubernetes type called `name`.
pub(super) fn apply(name: &str, schema: &mut Value) {
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            set(schema, json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY}));
        }
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => {
            set(schema, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        }
        "io.k8s.apimachinery.pkg.apis.meta.v1.Condition" => condition(&mut schema["properties"]),
        "io.k8s.api.resource.v1.DeviceToleration" => {
            set(&mut schema["properties"]["operator"], json!({"default": "Equal"}));
        }
        _ => {}
    }
    if ATOMIC_MAPS.contains(&name) {
        set(schema, json!({"x-kubernetes-map-type": "atomic"}));
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        mark_lists(name, properties);
    }
}

/// Sets the list type of every list.
fn mark_lists(name: &str, properties: &mut Map<String, Value>) {
    for (field, schema) in properties.iter_mut().filter(|(_, schema)| schema["type"] == "array") {
        let key = KEYED_LISTS.iter().find(|(type_, list, _)| *type_ == name && *list == field);
        let marker = match key {
            Some((_, _, key)) => {
                json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
            }
            None => json!({"x-kubernetes-list-type": "atomic"}),
        };
        set(schema, marker);
    }
}

/// The checks on a standard condition.
fn condition(properties: &mut Value) {
    set(&mut properties["type"], json!({"maxLength": 316, "pattern": QUALIFIED_NAME}));
    set(&mut properties["status"], json!({"enum": ["True", "False", "Unknown"]}));
    set(&mut properties["observedGeneration"], json!({"minimum": 0}));
    set(&mut properties["message"], json!({"maxLength": 32768}));
    set(
        &mut properties["reason"],
        json!({"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}),
    );
}

/// Puts the keywords of `with` over those of `schema`.
fn set(schema: &mut Value, with: Value) {
    let (Value::Object(schema), Value::Object(with)) = (schema, with) else {
        unreachable!("schemas are objects");
    };
    schema.extend(with);
}
