//! The rules of each kind: what the server fills in, what each verb may change, and what is refused.

use crate::crd;
use crate::field;
use crate::kinds::{Resource, Subresource};
use crate::names;
use crate::object;
use crate::schema::{self, Old};
use crate::server::Core;
use serde_json::{Value, json};

/// Group and plural name of definitions of custom resources.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// Fills in what the client may leave out, on every write.
pub fn default(_core: &Core, resource: &Resource, object: &mut Value) {
    if resource.is(DEFINITIONS.0, DEFINITIONS.1) {
        crd::complete(object);
    }
}

/// Makes an object ready to come into being: the status is the server's, and the generation begins at 1.
pub fn prepare_create(_core: &Core, resource: &Resource, object: &mut Value) {
    if resource.has(Subresource::Status)
        && !resource.is("", "nodes")
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    if resource.is("", "namespaces") {
        prepare_namespace(object);
    }
    if resource.is("", "pods") {
        object["status"] = json!({"phase": "Pending"});
    }
    if resource.is("", "persistentvolumeclaims") || resource.is("", "persistentvolumes") {
        object["status"] = json!({"phase": "Pending"});
    }
    if resource.generation {
        object::set_meta(object, "generation", Some(Value::from(1)));
    }
}

fn prepare_namespace(object: &mut Value) {
    let name = Value::from(object::name(object));
    object::map_mut(object, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
    object["status"] = json!({"phase": "Active"});
    let labels = object::meta_mut(object).entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

/// Holds a new version to the part that the request may change, and counts the generation.
pub fn prepare_update(
    _core: &Core,
    resource: &Resource,
    subresource: Option<Subresource>,
    old: &Value,
    new: &mut Value,
) {
    match subresource {
        Some(Subresource::Status | Subresource::Approval) => keep_all_but(resource, old, new, &["status"]),
        Some(Subresource::Finalize) => {
            let finalizers = new.pointer("/spec/finalizers").cloned();
            keep_all_but(resource, old, new, &[]);
            set_or_remove(new, "spec", "finalizers", finalizers);
        }
        Some(Subresource::EphemeralContainers | Subresource::Resize) => keep(old, new, "status"),
        Some(
            Subresource::Binding
            | Subresource::Eviction
            | Subresource::Log
            | Subresource::Scale
            | Subresource::Token,
        )
        | None => {
            if resource.has(Subresource::Status) {
                keep(old, new, "status");
            }
            if resource.is("", "namespaces") {
                let finalizers = old.pointer("/spec/finalizers").cloned();
                set_or_remove(new, "spec", "finalizers", finalizers);
            }
        }
    }
    if resource.generation {
        let generation = object::generation(old);
        let next = if wants_other(resource, old, new) { generation + 1 } else { generation };
        object::set_meta(new, "generation", Some(Value::from(next)));
    }
}

fn set_or_remove(object: &mut Value, part: &str, field: &str, value: Option<Value>) {
    let part = object::map_mut(object, part);
    match value {
        Some(value) => part.insert(field.to_owned(), value),
        None => part.remove(field),
    };
}

/// Takes a field from the old version.
fn keep(old: &Value, new: &mut Value, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

/// Takes every field from the old version but those given. Of custom resources, metadata stays too, but for the
/// account of who manages what.
fn keep_all_but(resource: &Resource, old: &Value, new: &mut Value, changed: &[&str]) {
    let fields: Vec<String> = old
        .as_object()
        .into_iter()
        .chain(new.as_object())
        .flat_map(|fields| fields.keys())
        .filter(|field| *field != "metadata" && !changed.contains(&field.as_str()))
        .cloned()
        .collect();
    for field in &fields {
        keep(old, new, field);
    }
    if resource.custom().is_some() {
        let managed = object::meta(new, "managedFields").cloned();
        let version = object::meta(new, "resourceVersion").cloned();
        keep(old, new, "metadata");
        object::set_meta(new, "managedFields", managed);
        object::set_meta(new, "resourceVersion", version);
    }
}

/// Whether the client wants something else than before: anything but metadata and status differs.
fn wants_other<'a>(resource: &Resource, old: &'a Value, new: &'a Value) -> bool {
    let counts = |field: &str| {
        let observed =
            field == "status" && (resource.has(Subresource::Status) || resource.custom().is_none());
        !matches!(field, "kind" | "apiVersion" | "metadata") && !observed
    };
    let of = |object: &'a Value| object.as_object().into_iter().flatten().filter(|(field, _)| counts(field));
    !of(old).eq(of(new))
}

/// What is wrong with an object that is to come into being, beside its metadata.
pub fn validate_create(_core: &Core, resource: &Resource, object: &Value) -> Vec<field::Error> {
    if let Some(custom) = resource.custom() {
        return schema::validate(&custom.schema, object, Old::None);
    }
    if resource.is(DEFINITIONS.0, DEFINITIONS.1) { crd::validate(object) } else { Vec::new() }
}

/// What is wrong with a new version of an object, beside its metadata.
pub fn validate_update(
    _core: &Core,
    resource: &Resource,
    _subresource: Option<Subresource>,
    old: &Value,
    new: &Value,
) -> Vec<field::Error> {
    if let Some(custom) = resource.custom() {
        return schema::validate(&custom.schema, new, Old::Value(old));
    }
    if resource.is(DEFINITIONS.0, DEFINITIONS.1) { crd::validate(new) } else { Vec::new() }
}

/// What is wrong with a name, by the rules of the kind.
pub fn name_faults(resource: &Resource, name: &str) -> Vec<String> {
    if resource.is("", "namespaces") {
        return names::dns_label(name);
    }
    if resource.is("", "services") {
        return names::dns_1035_label(name);
    }
    if &*resource.group == "rbac.authorization.k8s.io" {
        return names::path_segment(name);
    }
    names::subdomain(name)
}

/// How many seconds an object has to go, once somebody asked for it.
pub fn grace_seconds(resource: &Resource, object: &Value, asked: Option<i64>) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    let over = matches!(object::str_at(object, "/status/phase"), "Succeeded" | "Failed");
    if over || object::str_at(object, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = asked.or(own).unwrap_or(30);
    // Kubernetes takes a negative period for the shortest one.
    if seconds < 0 { 1 } else { seconds }
}
