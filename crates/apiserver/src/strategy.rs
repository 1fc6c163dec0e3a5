//! The create and update strategies of each kind: defaulting, preparation and validation.
//!
//! A strategy sees only one object and its previous version; checks against other objects are admission.

mod checks;
mod config;
mod cron;
mod custom;
mod defaults;
mod device;
mod event;
mod job;
mod lease;
mod node;
mod pod;
mod rbac;
pub(crate) mod scheduling;
mod service;
mod storage;
mod webhook;
mod workload;

pub(crate) use workload::TEMPLATE_GENERATION;

use crate::crd;
use crate::field::{self, Path};
use crate::names;
use crate::object;
use crate::registry::{Origin, Resource, Subresource};
use crate::schema;
use crate::server::Core;
use checks::{Errors, part};
use rbac::Scope;
use serde_json::{Value, json};

/// Group and plural name of `CustomResourceDefinition`s.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// Group and plural name of a built-in resource; empty for custom ones.
fn builtin(resource: &Resource) -> (&str, &str) {
    match resource.origin {
        Origin::Builtin(_) => (&resource.group, &resource.plural),
        Origin::Custom(_) => ("", ""),
    }
}

/// Applies defaults, on every write.
pub fn default(_core: &Core, resource: &Resource, object: &mut Value) {
    match resource.origin {
        Origin::Builtin(_) => {}
        Origin::Custom(_) => return,
    }
    match builtin(resource) {
        DEFINITIONS => return crd::default(object),
        ("apps", "statefulsets") => workload::default_stateful_set(object),
        ("", "secrets") => config::default_secret(object),
        _ => {}
    }
    defaults::fill(resource.schema(), object);
    match builtin(resource) {
        ("", "pods") => pod::default(object),
        ("", "nodes") => node::default(object),
        ("batch", "jobs") => job::default(object),
        _ => {}
    }
}

/// Prepares a create: resets the status and sets the generation to 1.
pub fn prepare_create(core: &Core, resource: &Resource, object: &mut Value) {
    let kind = builtin(resource);
    if resource.has(Subresource::Status) && kind != ("", "nodes") {
        reset_status(resource, object);
    }
    match kind {
        ("", "namespaces") => prepare_namespace(object),
        ("", "pods") => pod::prepare_create(core, object),
        ("", "persistentvolumeclaims") => object["status"] = json!({"phase": "Pending"}),
        ("", "persistentvolumes") => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": core.clock.time()});
        }
        ("", "services") => service::prepare_create(core, object),
        ("batch", "jobs") => job::prepare_create(object),
        ("apps", "daemonsets") => workload::count_templates(None, object),
        _ => {}
    }
    if resource.generation {
        object::set_meta(object, "generation", Some(Value::from(1)));
    }
}

/// Resets the status to its empty form.
fn reset_status(resource: &Resource, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove("status");
    if resource.custom().is_some() || builtin(resource) == DEFINITIONS {
        return;
    }
    if let Some(schema) = resource.schema().field("status") {
        let mut status = json!({});
        schema::normalize(schema, &mut status);
        fields.insert("status".to_owned(), status);
    }
}

fn prepare_namespace(object: &mut Value) {
    let finalizers = object::map_mut(object, "spec").entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.contains(&json!("kubernetes"))
    {
        finalizers.push(json!("kubernetes"));
    }
    object["status"] = json!({"phase": "Active"});
    label_namespace(object);
}

/// Sets the `kubernetes.io/metadata.name` label.
fn label_namespace(object: &mut Value) {
    let name = Value::from(object::name(object));
    let labels = object::meta_mut(object).entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

/// Reverts the parts of a new version that the endpoint may not change, and updates the generation.
pub fn prepare_update(
    core: &Core,
    resource: &Resource,
    subresource: Option<Subresource>,
    old: &Value,
    new: &mut Value,
) {
    let kind = builtin(resource);
    match subresource {
        Some(Subresource::Status) => {
            copy_all_except(resource, old, new, &["status"]);
            keep_metadata(kind, old, new);
        }
        Some(Subresource::Finalize) => {
            let finalizers = new.pointer("/spec/finalizers").cloned();
            copy_all_except(resource, old, new, &[]);
            set_or_remove(new, "spec", "finalizers", finalizers);
        }
        Some(Subresource::EphemeralContainers | Subresource::Resize) => copy_field(old, new, "status"),
        Some(
            Subresource::Binding
            | Subresource::Eviction
            | Subresource::Log
            | Subresource::Scale
            | Subresource::Token,
        )
        | None => {
            if resource.has(Subresource::Status) {
                copy_field(old, new, "status");
            }
            match kind {
                ("", "namespaces") => {
                    let finalizers = old.pointer("/spec/finalizers").cloned();
                    set_or_remove(new, "spec", "finalizers", finalizers);
                }
                ("", "services") => service::prepare_update(core, old, new),
                ("apps", "daemonsets") => workload::count_templates(Some(old), new),
                _ => {}
            }
        }
    }
    match kind {
        ("", "pods") => pod::prepare_update(subresource, old, new),
        ("", "namespaces") => label_namespace(new),
        _ => {}
    }
    if resource.generation {
        let generation = object::generation(old);
        let annotated = kind == ("apps", "deployments")
            && object::meta(old, "annotations") != object::meta(new, "annotations");
        let counts = kind != ("scheduling.k8s.io", "priorityclasses");
        let other = counts && (annotated || spec_changed(resource, old, new));
        let next = generation.saturating_add(i64::from(other));
        object::set_meta(new, "generation", Some(Value::from(next)));
    }
}

/// Some kinds also keep metadata when the status is written.
fn keep_metadata(kind: (&str, &str), old: &Value, new: &mut Value) {
    let kept: &[&str] = match kind {
        ("apps", "deployments") => &["labels"],
        ("", "pods") => &["ownerReferences"],
        DEFINITIONS | ("resource.k8s.io", "resourceclaims") | ("storage.k8s.io", "volumeattachments") => {
            &["labels", "annotations", "finalizers", "ownerReferences"]
        }
        _ => &[],
    };
    for field in kept {
        object::set_meta(new, field, object::meta(old, field).cloned());
    }
}

fn set_or_remove(object: &mut Value, part: &str, field: &str, value: Option<Value>) {
    let part = object::map_mut(object, part);
    match value {
        Some(value) => part.insert(field.to_owned(), value),
        None => part.remove(field),
    };
}

/// Copies a field from the old version.
fn copy_field(old: &Value, new: &mut Value, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

/// Copies every field from the old version but those given. Custom resources also keep their metadata, except for the
/// managed fields.
fn copy_all_except(resource: &Resource, old: &Value, new: &mut Value, changed: &[&str]) {
    let fields: Vec<String> = old
        .as_object()
        .into_iter()
        .chain(new.as_object())
        .flat_map(|fields| fields.keys())
        .filter(|field| *field != "metadata" && !changed.contains(&field.as_str()))
        .cloned()
        .collect();
    for field in &fields {
        copy_field(old, new, field);
    }
    if resource.custom().is_some() {
        let managed = object::meta(new, "managedFields").cloned();
        let version = object::meta(new, "resourceVersion").cloned();
        copy_field(old, new, "metadata");
        object::set_meta(new, "managedFields", managed);
        object::set_meta(new, "resourceVersion", version);
    }
}

/// Whether anything but metadata and status changed, which increments the generation.
fn spec_changed<'a>(resource: &Resource, old: &'a Value, new: &'a Value) -> bool {
    let counts = |field: &str| {
        let observed =
            field == "status" && (resource.has(Subresource::Status) || resource.custom().is_none());
        !matches!(field, "kind" | "apiVersion" | "metadata") && !observed
    };
    let of = |object: &'a Value| object.as_object().into_iter().flatten().filter(|(field, _)| counts(field));
    !of(old).eq(of(new))
}

/// Validates a created object except for its metadata.
pub fn validate_create(_core: &Core, resource: &Resource, object: &Value) -> Vec<field::Error> {
    match &resource.origin {
        Origin::Custom(custom) => custom::validate(custom, object),
        Origin::Builtin(_) => validate(resource, object),
    }
}

/// Validates an object of a built-in kind without its previous version.
fn validate(resource: &Resource, object: &Value) -> Errors {
    let spec = part(object, "spec");
    let at_spec = Path::of("spec");
    match builtin(resource) {
        DEFINITIONS => crd::validate(object),
        ("", "pods") => pod::validate(object),
        ("", "namespaces") => node::validate_namespace(object),
        ("", "configmaps") => config::validate_config_map(object),
        ("", "secrets") => config::validate_secret(object),
        ("", "services") => service::validate(object),
        ("", "nodes") => node::validate(object),
        ("", "events") | ("events.k8s.io", _) => event::validate(resource, object),
        ("", "persistentvolumeclaims") => storage::validate_claim(object),
        ("", "persistentvolumes") => storage::validate_volume(object),
        ("storage.k8s.io", "storageclasses") => storage::validate_class(object),
        ("coordination.k8s.io", "leases") => lease::validate(object),
        ("apps", "controllerrevisions") => workload::validate_revision(object),
        ("apps", "deployments") => workload::validate_deployment(object),
        ("apps", "replicasets") => workload::validate_replica_set(object),
        ("apps", "statefulsets") => workload::validate_stateful_set(object),
        ("apps", "daemonsets") => workload::validate_daemon_set(object),
        ("batch", "jobs") => job::validate(object),
        ("batch", "cronjobs") => job::validate_cron(object),
        ("scheduling.k8s.io", "priorityclasses") => scheduling::validate_class(object),
        ("policy", "poddisruptionbudgets") => scheduling::validate_budget(object),
        ("rbac.authorization.k8s.io", "roles") => rbac::validate_role(object, Scope::Namespace),
        ("rbac.authorization.k8s.io", "clusterroles") => rbac::validate_role(object, Scope::Cluster),
        ("rbac.authorization.k8s.io", "rolebindings") => rbac::validate_binding(object, Scope::Namespace),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => {
            rbac::validate_binding(object, Scope::Cluster)
        }
        ("resource.k8s.io", "deviceclasses") => device::validate_class(object),
        ("resource.k8s.io", "resourceslices") => device::validate_slice(object),
        ("resource.k8s.io", "resourceclaims") => device::validate_claim_spec(spec, &at_spec),
        ("resource.k8s.io", "resourceclaimtemplates") => {
            device::validate_claim_spec(part(spec, "spec"), &at_spec.field("spec"))
        }
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => webhook::validate(object),
        _ => Vec::new(),
    }
}

/// Validates an updated object except for its metadata.
pub fn validate_update(
    _core: &Core,
    resource: &Resource,
    subresource: Option<Subresource>,
    old: &Value,
    new: &Value,
) -> Vec<field::Error> {
    if let Some(custom) = resource.custom() {
        return custom::validate_update(custom, subresource, old, new);
    }
    if subresource == Some(Subresource::Status) {
        return validate_status(resource, old, new);
    }
    let change = match builtin(resource) {
        ("", "configmaps") => config::validate_change(old, new, &["data", "binaryData"]),
        ("", "secrets") => config::validate_change(old, new, &["data"]),
        ("", "services") => service::validate_change(old, new),
        ("", "nodes") => node::validate_change(old, new),
        ("", "events") | ("events.k8s.io", _) => event::validate_change(resource, old, new),
        ("", "persistentvolumeclaims") => storage::validate_claim_change(old, new),
        ("storage.k8s.io", "storageclasses") => storage::validate_class_change(old, new),
        ("apps", "deployments" | "replicasets" | "daemonsets") => {
            workload::validate_selector_change(old, new)
        }
        ("apps", "statefulsets") => workload::validate_stateful_set_change(old, new),
        ("batch", "jobs") => job::validate_change(old, new),
        ("scheduling.k8s.io", "priorityclasses") => scheduling::validate_class_change(old, new),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            rbac::validate_binding_change(old, new)
        }
        ("resource.k8s.io", "resourceslices") => device::validate_slice_change(old, new),
        // The spec is immutable and was valid before.
        ("resource.k8s.io", "resourceclaims" | "resourceclaimtemplates") => {
            return device::validate_spec_change(old, new);
        }
        ("", "pods") => pod::validate_update(subresource, old, new),
        _ => Vec::new(),
    };
    let mut errors = validate(resource, new);
    errors.extend(change);
    errors
}

fn validate_status(resource: &Resource, old: &Value, new: &Value) -> Errors {
    match builtin(resource) {
        ("", "pods") => pod::validate_status(old, new),
        ("", "namespaces") => node::validate_phase(new),
        ("apps", "deployments" | "replicasets" | "statefulsets") => workload::validate_status(new),
        ("batch", "jobs") => job::validate_status_change(old, new),
        ("resource.k8s.io", "resourceclaims") => device::validate_claim_status(old, new),
        _ => Vec::new(),
    }
}

/// Warnings for a valid object.
pub fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    let pods: &[&str] = match builtin(resource) {
        ("", "services") => return service::warnings(object),
        ("", "pods") => &["spec"],
        ("apps", _) | ("batch", "jobs") => &["spec", "template", "spec"],
        _ => return Vec::new(),
    };
    let mut spec = object;
    for field in pods {
        spec = part(spec, field);
    }
    let path = pods.join(".");
    pod::warnings(spec, &Path::of(&path))
}

/// Validates a name by the rules of the kind.
pub fn validate_name(resource: &Resource, name: &str) -> Vec<String> {
    if resource.is("", "namespaces") {
        return names::dns_label(name);
    }
    if resource.is("", "services") {
        return names::dns_label(name);
    }
    if &*resource.group == "rbac.authorization.k8s.io" {
        return names::path_segment(name);
    }
    names::subdomain(name)
}

/// The grace period of a delete in seconds.
pub fn grace_seconds(resource: &Resource, object: &Value, requested: Option<i64>) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    let over = object::is_terminal(object);
    if over || object::str_at(object, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = requested.or(own).unwrap_or(30);
    // Kubernetes treats a negative period as 1.
    if seconds < 0 { 1 } else { seconds }
}
