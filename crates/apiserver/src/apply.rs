//! Field management and server-side apply (KEP-555).
//!
//! Every write is recorded in `metadata.managedFields`: a manager, an operation and the fields it set. Creates,
//! updates and patches take ownership of what they change ([`create`], [`update`]). An apply ([`apply`]) states all
//! fields that a manager owns: a field it no longer states is removed unless another manager owns it, and changing a
//! field of another manager is a conflict unless forced.

pub mod field_set;

mod compare;
mod items;
mod managers;
mod merge;
mod typed;

pub use field_set::FieldSet;

use crate::schema::{self, Schema, Type};
use field_set::PathElement;
use items::Emptied;
use managers::{Id, ManagedFields, Operation};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The manager of fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The annotation of client-side `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Limit of the total size of annotations (`TotalAnnotationSizeLimitB`).
const ANNOTATION_BYTES_MAX: usize = 262_144;

/// The field manager of a write and the fields that the endpoint may set.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The field manager; empty becomes `unknown`.
    pub manager: &'a str,
    /// The API version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// `metadata.managedFields[].time`, such as `2026-01-02T03:04:05Z`.
    pub now: &'a str,
    /// The schema of the kind.
    pub schema: &'a Schema,
    /// The fields that the endpoint stores; the server resets others, so they have no manager.
    pub scope: Scope<'a>,
}

/// The fields that a write can own.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    Whole,
    /// All but these; dotted paths such as `status`.
    Except(&'a [&'a str]),
    /// Only the fields below this one.
    Only(&'a str),
}

/// Why an apply is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Other managers own fields that the apply would change: status 409 with one cause for each field.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The patch cannot be applied: status 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not match the schema: status 500, as in kube-apiserver.
    #[error("{0}")]
    Mistyped(String),
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The owner as messages name it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// The message of the `StatusCause`; its reason is `FieldManagerConflict`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", one.message(), one.field);
    }
    let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(&conflict.field);
    }
    let mut lines = Vec::new();
    for (manager, fields) in by_manager {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(fields.iter().map(|field| format!("- {field}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Sets the managed fields of an object that is created by anything but an apply.
pub fn create(object: &mut Value, write: &Write<'_>) {
    let managers = ManagedFields::of(object).unwrap_or_default();
    let managers = take_ownership(&blank_object(write.schema), object, managers, write.manager, write);
    managers.write(object);
}

/// Sets the managed fields of an object that an update or patch derived from `live`.
///
/// An object without managed fields keeps none: it is tracked from its first apply on.
pub fn update(live: &Value, object: &mut Value, write: &Write<'_>) {
    let sent = object.pointer("/metadata/managedFields").cloned();
    let reset = matches!(&sent, Some(Value::Array(entries))
        if entries.is_empty() || (entries.len() == 1 && entries[0] == Value::Object(Map::new())));
    let managers = if reset {
        ManagedFields::default()
    } else if write.subresource.is_empty() {
        let own = ManagedFields::of(object).filter(|managers| !managers.is_empty());
        own.or_else(|| ManagedFields::of(live)).unwrap_or_default()
    } else {
        ManagedFields::of(live).unwrap_or_default()
    };
    if managers.is_empty() {
        managers.write(object);
        return;
    }
    take_ownership(live, object, managers, write.manager, write).write(object);
}

/// Reverts a change that consists only of new times in the managed fields.
pub fn ignore_new_times(live: &Value, object: &mut Value) {
    if differ_only_in_times(live, object)
        && let Some(fields) = live.pointer("/metadata/managedFields")
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields".to_owned(), fields.clone());
    }
}

fn differ_only_in_times(one: &Value, other: &Value) -> bool {
    let managers = |metadata: Option<&Value>, other: Option<&Value>| {
        let of =
            |metadata: Option<&Value>| metadata.and_then(|metadata| metadata.get("managedFields")).cloned();
        let without_times = |managers: Option<Value>| {
            let mut managers = managers.unwrap_or_default();
            for entry in managers.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
            managers
        };
        without_times(of(metadata)) == without_times(of(other))
    };
    let metadata = (one.get("metadata"), other.get("metadata"));
    same_but(Some(one), Some(other), &["metadata"])
        && same_but(metadata.0, metadata.1, &["resourceVersion", "managedFields"])
        && managers(metadata.0, metadata.1)
}

/// Whether two objects are equal except for some fields.
fn same_but(one: Option<&Value>, other: Option<&Value>, but: &[&str]) -> bool {
    let counted = |(name, _): &(&String, &Value)| !but.contains(&name.as_str());
    let one = one.and_then(Value::as_object).into_iter().flatten().filter(counted);
    one.eq(other.and_then(Value::as_object).into_iter().flatten().filter(counted))
}

/// The `force` parameter of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Changing a field of another manager is a conflict.
    No,
    /// Ownership is taken from other managers.
    Yes,
}

/// Merges an apply configuration into the object; without `live`, creates the object.
///
/// The result has its managed fields set. If nothing changes, times are kept.
pub fn apply(live: Option<&Value>, wanted: &Value, force: Force, write: &Write<'_>) -> Result<Value, Error> {
    check_patch(wanted, write)?;
    typed::check(write.schema, wanted).map_err(|faults| Error::Mistyped(typed::message(&faults, wanted)))?;
    let empty = empty_object(write.schema);
    let live_object = without_managed_fields(live.unwrap_or(&empty));
    let mut managers = live.and_then(ManagedFields::of).unwrap_or_default();
    if managers.is_empty() && live.is_some() {
        managers =
            take_ownership(&blank_object(write.schema), &live_object, managers, BEFORE_FIRST_APPLY, write);
    }
    let first = merge_into(&live_object, wanted, managers.clone(), force, write);
    let (mut object, managers) = match first {
        Err(Error::Conflicts(conflicts)) if write.manager == "kubectl" => {
            let rest = not_applied_before(conflicts, &live_object, write);
            if rest.is_empty() {
                merge_into(&live_object, wanted, managers, Force::Yes, write)?
            } else {
                return Err(Error::Conflicts(rest));
            }
        }
        other => other?,
    };
    if write.manager == "kubectl" {
        update_last_applied(&mut object, wanted);
    }
    managers.write(&mut object);
    Ok(object)
}

fn check_patch(wanted: &Value, write: &Write<'_>) -> Result<(), Error> {
    let version = wanted.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != write.api_version {
        let expected = write.api_version;
        return Err(Error::Malformed(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {expected}"
        )));
    }
    if wanted.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Error::Malformed("metadata.managedFields must be nil".to_owned()));
    }
    Ok(())
}

/// The object before its creation: declared structs exist and are empty.
fn empty_object(schema: &Schema) -> Value {
    let mut empty = Value::Object(Map::new());
    if schema.definition.is_some() {
        schema::normalize(schema, &mut empty);
    }
    empty
}

/// As [`empty_object`], for comparison: lists that every object has exist too, so they get no manager.
fn blank_object(schema: &Schema) -> Value {
    let mut blank = empty_object(schema);
    if schema.definition.is_some() {
        add_lists(schema, &mut blank);
    }
    blank
}

fn add_lists(schema: &Schema, value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (name, value) in fields.iter_mut() {
        if let Some(field) = schema.field(name) {
            add_lists(field, value);
        }
    }
    for name in schema.required() {
        if schema.field(name).is_some_and(|field| field.kind == Type::Array) {
            fields.entry(name.as_str()).or_insert(Value::Null);
        }
    }
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Gives a manager the fields that differ between two objects, and removes them from all other managers.
fn take_ownership(
    live: &Value,
    object: &Value,
    mut managers: ManagedFields,
    manager: &str,
    write: &Write<'_>,
) -> ManagedFields {
    let changes = compare::compare(write.schema, live, object).within(write.scope);
    let mut touched = changes.modified;
    touched.absorb(changes.added);
    managers.release(None, &touched, &changes.removed);
    let set = strip(touched);
    if !set.is_empty() {
        managers.extend(Id::new(manager, Operation::Update, write), set, write.api_version, write.now);
    }
    managers.merge_oldest();
    managers
}

fn merge_into(
    live: &Value,
    wanted: &Value,
    mut managers: ManagedFields,
    force: Force,
    write: &Write<'_>,
) -> Result<(Value, ManagedFields), Error> {
    let id = Id::new(write.manager, Operation::Apply, write);
    let merged = merge::merge(write.schema, live, wanted);
    let set = field_set::within(typed::field_set(write.schema, wanted), write.scope);
    let before = managers.set_applied(&id, set, write.api_version);
    let gone =
        before.map(|before| no_longer_applied(write.schema, &merged, &before, &managers)).unwrap_or_default();
    // An emptied parent is still owned, so it is compared as null and removed afterwards.
    let emptied = items::remove(write.schema, &merged, &gone, Emptied::Null);
    let object = items::remove(write.schema, &merged, &gone, Emptied::Removed);
    let changes = compare::compare(write.schema, live, &emptied).within(write.scope);
    let mut touched = changes.modified;
    touched.absorb(changes.added);
    let conflicts = managers.conflicts(&id, &touched);
    if force == Force::No && !conflicts.is_empty() {
        return Err(Error::Conflicts(conflicts));
    }
    managers.release(Some(&id), &touched, &changes.removed);
    managers.strip(&id, strip);
    if object != *live {
        managers.touch(&id, write.now);
    }
    Ok((object, managers))
}

/// The fields that the manager applied before, does not apply any more, and no other manager owns.
fn no_longer_applied(
    schema: &Schema,
    merged: &Value,
    before: &FieldSet,
    managers: &ManagedFields,
) -> FieldSet {
    let named = |set: &FieldSet| items::with_named_fields(schema, set);
    let set_of = |object: &Value| named(&typed::field_set(schema, object));
    let before = named(before);
    let everything = set_of(merged);
    let pruned = items::remove(schema, merged, &before, Emptied::Null);
    let kept = set_of(&pruned).union(&named(&managers.all_fields()));
    let pruned = items::remove(schema, merged, &everything.difference(&kept), Emptied::Null);
    everything.difference(&set_of(&pruned)).intersection(&before)
}

/// Fields that only the server sets.
static SERVER_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    let field = |name: &str| PathElement::Field(name.to_owned());
    let mut server = FieldSet::default();
    for name in ["apiVersion", "kind", "metadata"] {
        server.insert(&[field(name)]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        server.insert(&[field("metadata"), field(name)]);
    }
    server
});

/// Removes the server's fields from a set.
fn strip(mut set: FieldSet) -> FieldSet {
    set.remove(&SERVER_FIELDS);
    set
}

/// Drops conflicts with the client's own earlier client-side applies, which are recorded in the annotation.
fn not_applied_before(conflicts: Vec<Conflict>, live: &Value, write: &Write<'_>) -> Vec<Conflict> {
    let annotation =
        live.pointer("/metadata/annotations").and_then(|annotations| annotations.get(LAST_APPLIED));
    let last = annotation.and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(last) =
        last.filter(|last| last.get("apiVersion").and_then(Value::as_str) == Some(write.api_version))
    else {
        return conflicts;
    };
    let changes = compare::compare(write.schema, &last, live);
    let changed = changes.modified.union(&changes.added).union(&changes.removed);
    let mut own: Vec<String> = Vec::new();
    typed::field_set(write.schema, &last)
        .difference(&changed)
        .for_each(|path| own.push(field_set::shown(path)));
    conflicts.into_iter().filter(|conflict| !own.contains(&conflict.field)).collect()
}

/// Updates the annotation of client-side apply, so that a client can switch back to it.
fn update_last_applied(object: &mut Value, wanted: &Value) {
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    if !annotations.contains_key(LAST_APPLIED) {
        return;
    }
    let mut wanted = without_managed_fields(wanted);
    if let Some(Value::Object(annotations)) = wanted.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    let text = format!("{wanted}\n");
    if text.len() <= ANNOTATION_BYTES_MAX {
        annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
    } else {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests;
