//! `CustomResourceDefinition`s: serving their resources, and cleaning up after them.
//!
//! A definition takes effect in the write that stores it: its names are accepted and its versions served before the
//! client gets the response. Deleting it deletes its custom resources first; it is removed with the last of them.

mod status;
mod validate;

pub use validate::{default, validate, validate_update};

use crate::field::Path;
use crate::object;
use crate::registry::{Origin, Resource, Subresource, Verbs, api_version, version_rank};
use crate::schema::Schema;
use crate::server::Core;
use crate::store::{ListRange, Record};
use crate::verbs::delete::{self, CUSTOM_RESOURCE_CLEANUP, DeleteOptions};
use crate::verbs::scale::ScalePaths;
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub struct CustomVersion {
    pub definition: Box<str>,
    /// The structural schema.
    pub schema: Arc<Schema>,
    /// The `openAPIV3Schema` of the definition.
    pub open_api: Value,
    /// `selectableFields`, such as `.spec.color`.
    pub selectable_fields: Vec<String>,
    /// The paths of the `scale` subresource.
    pub scale: Option<ScalePaths>,
    /// `additionalPrinterColumns`.
    pub columns: Value,
    /// The deprecation warning of the version.
    pub deprecation: Option<String>,
}

pub fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Serves a definition after it was stored.
pub fn on_stored(core: &Core, record: &Arc<Record>) {
    let definition = record.value();
    if record.is_terminating() {
        if object::finalizers(&definition).contains(&CUSTOM_RESOURCE_CLEANUP) {
            clean_up(core, &definition);
        }
        return;
    }
    let mut updated = definition.clone();
    let accepted = status::establish(core, &mut updated);
    if updated != definition {
        let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
        // A concurrent writer serves the newer definition.
        let _ = core.store.update(definitions.table, record, &mut updated);
    }
    if accepted {
        core.registry.serve_custom(record.name(), resources_of(core, &updated));
    }
}

/// Handles a removed object: a removed definition is no longer served, and a terminating definition is removed with
/// its last custom resource.
pub fn on_removed(core: &Core, resource: &Resource, record: &Arc<Record>) {
    if is_definition(resource) {
        stop_serving(core, record.name());
    }
    if let Some(custom) = resource.custom() {
        let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
        let definition = core.store.get(definitions.table, &custom.definition);
        if let Some(definition) = definition.filter(|definition| definition.is_terminating()) {
            remove_if_empty(core, &definition.value());
        }
    }
}

/// Sets the initial status of a definition.
pub fn init_status(definition: &mut Value) {
    status::init(definition);
}

/// Sets the `Terminating` condition.
pub fn set_terminating(core: &Core, definition: &mut Value) {
    status::set_terminating(definition, &core.clock.time());
}

/// Whether the resource is custom and its definition is terminating.
pub fn is_terminating(core: &Core, resource: &Resource) -> bool {
    let Some(custom) = resource.custom() else { return false };
    let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    core.store
        .get(definitions.table, &custom.definition)
        .is_some_and(|definition| definition.is_terminating())
}

fn stop_serving(core: &Core, definition: &str) {
    let tables: Vec<_> = core
        .catalog()
        .all()
        .filter(|resource| resource.custom().is_some_and(|custom| *custom.definition == *definition))
        .map(|resource| resource.table)
        .collect();
    core.registry.serve_custom(definition, Vec::new());
    for table in tables {
        core.store.wake(table);
    }
}

/// Deletes the custom resources of a terminating definition.
fn clean_up(core: &Core, definition: &Value) {
    let name = object::name(definition);
    let catalog = core.catalog();
    let own = |resource: &&Arc<Resource>| resource.custom().is_some_and(|custom| *custom.definition == *name);
    if let Some(resource) = catalog.all().find(own) {
        let page = core.store.list(resource.table, &ListRange::default(), |_| true);
        for record in page.into_iter().flat_map(|page| page.records) {
            let object = crate::verbs::served(resource, &record);
            // A conflict means that another client deletes the object at the same time.
            let _ = delete::remove(core, resource, &record, &object, &DeleteOptions::default());
        }
    }
    remove_if_empty(core, definition);
}

/// Removes a terminating definition that has no custom resources left.
fn remove_if_empty(core: &Core, definition: &Value) {
    let (group, plural) =
        (object::str_at(definition, "/spec/group"), object::str_at(definition, "/spec/names/plural"));
    let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let table = core.store.table(&format!("{group}/{plural}"));
    if core.store.len(table) > 0 {
        return;
    }
    let Some(live) = core.store.get(definitions.table, object::name(definition)) else { return };
    let mut last = live.value();
    let finalizers: Vec<String> = object::finalizers(&last)
        .into_iter()
        .filter(|name| *name != CUSTOM_RESOURCE_CLEANUP)
        .map(str::to_owned)
        .collect();
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    object::set_finalizers(&mut last, &finalizers);
    let written = if finalizers.is_empty() {
        core.store.delete(definitions.table, &live, &mut last)
    } else {
        core.store.update(definitions.table, &live, &mut last)
    };
    if finalizers.is_empty() && written.is_ok() {
        stop_serving(core, object::name(definition));
    }
}

fn resources_of(core: &Core, definition: &Value) -> Vec<Arc<Resource>> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
    served.filter_map(|version| resource_of(core, definition, version)).map(Arc::new).collect()
}

fn texts(value: Option<&Value>) -> Vec<Box<str>> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

fn resource_of(core: &Core, definition: &Value, version: &Value) -> Option<Resource> {
    let text = |pointer: &str| object::str_at(definition, pointer);
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let name = version["name"].as_str()?;
    let open_api = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
    let schema = Schema::of_definition(&open_api, &Path::of("openAPIV3Schema")).ok()?;
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array)?;
    let storage = versions.iter().find(|version| version["storage"] == true)?["name"].as_str()?;
    // If several versions were stored, each object records its own version.
    let mixed = definition
        .pointer("/status/storedVersions")
        .and_then(Value::as_array)
        .is_some_and(|list| list.len() > 1);
    let mut subresources = Vec::new();
    let scale = version.pointer("/subresources/scale").map(scale_paths);
    if version.pointer("/subresources/status").is_some() {
        subresources.push(Subresource::Status);
    }
    if scale.is_some() {
        subresources.push(Subresource::Scale);
    }
    let custom = CustomVersion {
        definition: object::name(definition).into(),
        schema: Arc::new(schema),
        open_api,
        selectable_fields: selectable(version),
        scale,
        columns: version.get("additionalPrinterColumns").cloned().unwrap_or(Value::Null),
        deprecation: deprecation(definition, version),
    };
    Some(Resource {
        group: group.into(),
        version: name.into(),
        api_version: api_version(group, name).into(),
        kind: text("/spec/names/kind").into(),
        list_kind: text("/spec/names/listKind").into(),
        plural: plural.into(),
        singular: text("/spec/names/singular").into(),
        short_names: texts(definition.pointer("/spec/names/shortNames")),
        categories: texts(definition.pointer("/spec/names/categories")),
        namespaced: text("/spec/scope") == "Namespaced",
        verbs: Verbs::All,
        subresources,
        table: core.store.table(&format!("{group}/{plural}")),
        storage_api_version: if mixed { "".into() } else { api_version(group, storage).into() },
        generation: true,
        unconditional_update: false,
        create_on_update: false,
        returns_deleted: false,
        origin: Origin::Custom(Arc::new(custom)),
    })
}

fn selectable(version: &Value) -> Vec<String> {
    let fields = version.get("selectableFields").and_then(Value::as_array);
    fields.into_iter().flatten().map(|field| object::str_at(field, "/jsonPath").to_owned()).collect()
}

fn scale_paths(scale: &Value) -> ScalePaths {
    let pointer = |field: &str| scale[field].as_str().unwrap_or_default().replace('.', "/");
    ScalePaths {
        spec_replicas: pointer("specReplicasPath"),
        status_replicas: pointer("statusReplicasPath"),
        selector: pointer("labelSelectorPath"),
    }
}

fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    let own = version["deprecationWarning"].as_str().map(str::to_owned);
    Some(own.unwrap_or_else(|| {
        let group = object::str_at(definition, "/spec/group");
        let kind = object::str_at(definition, "/spec/names/kind");
        let name = version["name"].as_str().unwrap_or_default();
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        let others = versions
            .into_iter()
            .flatten()
            .filter(|other| other["served"] == true && other["deprecated"] != true);
        let names = others.filter_map(|other| other["name"].as_str());
        let better = names
            .filter(|other| version_rank(other) > version_rank(name))
            .max_by_key(|other| version_rank(other));
        let instead = better.map(|other| format!("; use {group}/{other} {kind}")).unwrap_or_default();
        format!("{group}/{name} {kind} is deprecated{instead}")
    }))
}
