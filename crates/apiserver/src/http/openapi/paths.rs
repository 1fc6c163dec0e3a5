//! The `paths` of an `OpenAPI` document.

use crate::registry::Resource;
use serde_json::{Map, Value, json};

const OPTIONS: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const LIST: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const DELETE: [&str; 4] = ["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
/// Supported patch types; custom resources support all but the last.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Adds the paths of a resource; `schema` is the definition of its kind.
pub(super) fn add(resource: &Resource, schema: &str, paths: &mut Map<String, Value>) {
    let root = format!("/{}", super::root_of(&resource.group, &resource.version));
    let plural = &resource.plural;
    let collection = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let writer = Writer { resource, schema };
    let allows = |verb: &str| resource.verbs.allow(verb);
    let mut operations = Map::new();
    if allows("list") {
        operations.insert("get".to_owned(), writer.operation("list", &LIST, None));
        if resource.namespaced {
            paths.insert(format!("{root}/{plural}"), json!({"get": writer.operation("list", &LIST, None)}));
        }
    }
    if allows("create") {
        operations.insert("post".to_owned(), writer.operation("post", &OPTIONS, Some(&["*/*"])));
    }
    if allows("deletecollection") {
        operations.insert("delete".to_owned(), writer.operation("deletecollection", &DELETE, None));
    }
    if resource.namespaced {
        operations.insert("parameters".to_owned(), json!([path_parameter("namespace")]));
    }
    paths.insert(collection.clone(), Value::Object(operations));
    if !allows("get") {
        return;
    }
    let item = format!("{collection}/{{name}}");
    paths.insert(item.clone(), writer.item(&["get", "put", "patch", "delete"]));
    for subresource in &resource.subresources {
        let methods: Vec<&str> = subresource
            .verbs()
            .iter()
            .map(|verb| match *verb {
                "create" => "post",
                "update" => "put",
                other => other,
            })
            .collect();
        paths.insert(format!("{item}/{}", subresource.name()), writer.item(&methods));
    }
}

fn path_parameter(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
}

struct Writer<'a> {
    resource: &'a Resource,
    schema: &'a str,
}

impl Writer<'_> {
    fn item(&self, methods: &[&str]) -> Value {
        let mut operations = Map::new();
        // `kubectl apply` reads the supported patch types here.
        let patches = if self.resource.custom().is_some() { &PATCHES[..3] } else { &PATCHES[..] };
        for method in methods {
            let operation = match *method {
                "get" => self.operation("get", &[], None),
                "patch" => self.operation(
                    "patch",
                    &["dryRun", "fieldManager", "fieldValidation", "force"],
                    Some(patches),
                ),
                "delete" => self.operation("delete", &DELETE, None),
                other => self.operation(other, &OPTIONS, Some(&["*/*"])),
            };
            operations.insert((*method).to_owned(), operation);
        }
        let mut parameters = vec![path_parameter("name")];
        if self.resource.namespaced {
            parameters.push(path_parameter("namespace"));
        }
        operations.insert("parameters".to_owned(), Value::from(parameters));
        Value::Object(operations)
    }

    fn operation(&self, action: &str, parameters: &[&str], body: Option<&[&str]>) -> Value {
        let resource = self.resource;
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| {
                let kind = match *name {
                    "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
                    "watch" | "allowWatchBookmarks" | "sendInitialEvents" | "force" | "orphanDependents" => {
                        "boolean"
                    }
                    _ => "string",
                };
                json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
            })
            .collect();
        let schema = json!({"$ref": format!("#/components/schemas/{}", self.schema)});
        let mut operation = json!({
            "operationId": format!("{action}{}{}", resource.version, resource.kind),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind,
            },
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        });
        if let Some(media_types) = body {
            let content: Map<String, Value> = media_types
                .iter()
                .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
                .collect();
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        operation
    }
}
