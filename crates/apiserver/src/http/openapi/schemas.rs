//! The `components.schemas` of an `OpenAPI` document: the kinds of the group version and everything they refer to.

use crate::object;
use crate::registry::{Origin, Resource};
use crate::schema::builtin::{self, OBJECT_META, REFERENCE};
use crate::schema::{ListType, Strategy, merge_rules};
use serde_json::{Map, Value, json};

/// The name of the definition of a resource's kind.
pub(super) fn name_of(resource: &Resource) -> String {
    let known = match resource.origin {
        Origin::Builtin(_) => builtin::definition_of_kind(&resource.api_version, &resource.kind),
        Origin::Custom(_) => None,
    };
    known.map_or_else(
        || {
            let mut group: Vec<&str> = resource.group.split('.').collect();
            group.reverse();
            format!("{}.{}.{}", group.join("."), resource.version, resource.kind)
        },
        str::to_owned,
    )
}

/// Adds the definitions of a kind and its list.
pub(super) fn add_own(resource: &Resource, name: &str, schemas: &mut Map<String, Value>) {
    let gvk = |kind: &str| json!([{"group": &*resource.group, "version": &*resource.version, "kind": kind}]);
    let mut schema = match &resource.origin {
        Origin::Builtin(_) => builtin_schema(name),
        Origin::Custom(custom) => custom_schema(&custom.open_api),
    };
    schema["x-kubernetes-group-version-kind"] = gvk(&resource.kind);
    schemas.insert(name.to_owned(), schema);
    if !resource.verbs.allow("list") {
        return;
    }
    let list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {
                "continue": {"type": "string"},
                "remainingItemCount": {"type": "integer", "format": "int64"},
                "resourceVersion": {"type": "string"},
            }},
            "items": {"type": "array", "items": {"allOf": [{"$ref": format!("{REFERENCE}{name}")}], "default": {}}},
        },
        "x-kubernetes-group-version-kind": gvk(&resource.list_kind),
    });
    schemas.insert(format!("{name}List"), list);
}

fn builtin_schema(name: &str) -> Value {
    let mut schema = builtin::definition(name).map(|definition| definition.raw().clone()).unwrap_or_default();
    if merge_rules::is_atomic_type(name) {
        schema["x-kubernetes-map-type"] = Value::from("atomic");
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (field, property) in properties {
            wrap_references(property);
            annotate(name, field, property);
        }
    }
    schema
}

/// `OpenAPI` 3.0 requires `allOf` around a reference that has siblings.
fn wrap_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(wrap_references);
            if fields.len() > 1
                && let Some(reference) = fields.remove("$ref")
            {
                fields.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Adds the merge extensions (`x-kubernetes-list-type` and the like) of a field.
fn annotate(definition: &str, field: &str, property: &mut Value) {
    let Some(merge) = merge_rules::of_field(definition, field) else { return };
    match &merge.list {
        ListType::Atomic if property["type"] == "array" => {
            property["x-kubernetes-list-type"] = Value::from("atomic");
        }
        ListType::Atomic => {}
        ListType::Set => property["x-kubernetes-list-type"] = Value::from("set"),
        ListType::Map(keys) => {
            property["x-kubernetes-list-type"] = Value::from("map");
            property["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    if merge.atomic_map {
        property["x-kubernetes-map-type"] = Value::from("atomic");
    }
    match merge.strategy {
        Strategy::Plain => {}
        Strategy::Merge => property["x-kubernetes-patch-strategy"] = Value::from("merge"),
        Strategy::Replace => property["x-kubernetes-patch-strategy"] = Value::from("retainKeys"),
    }
    if let Some(key) = &merge.patch_key {
        property["x-kubernetes-patch-merge-key"] = Value::from(key.as_str());
    }
}

fn custom_schema(open_api: &Value) -> Value {
    let mut schema = open_api.clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let properties = object::map_mut(&mut schema, "properties");
    properties.insert(
        "apiVersion".to_owned(),
        json!({"type": "string", "description": "The group and version of the object."}),
    );
    properties.insert("kind".to_owned(), json!({"type": "string", "description": "The kind of the object."}));
    let metadata = json!({
        "description": "Standard object's metadata.", "allOf": [{"$ref": format!("{REFERENCE}{OBJECT_META}")}],
    });
    properties.insert("metadata".to_owned(), metadata);
    schema
}

/// Adds referenced definitions transitively.
pub(super) fn add_referenced(schemas: &mut Map<String, Value>) {
    let mut wanted = Vec::new();
    schemas.values().for_each(|schema| references(schema, &mut wanted));
    while let Some(name) = wanted.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let schema = builtin_schema(&name);
        references(&schema, &mut wanted);
        schemas.insert(name, schema);
    }
}

fn references(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) =
                fields.get("$ref").and_then(Value::as_str).and_then(|at| at.strip_prefix(REFERENCE))
            {
                names.push(name.to_owned());
            }
            fields.values().for_each(|value| references(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
