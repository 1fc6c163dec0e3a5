//! Object metadata: what the server sets, keeps and validates.

use super::Call;
use crate::field::{Error, Path};
use crate::registry::Resource;
use crate::server::Core;
use crate::status_error::StatusError;
use crate::{names, object, strategy};
use serde_json::Value;

/// `TotalAnnotationSizeLimitB`.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Levels of lists and objects in an object, its managed fields included. Responses add a few, and JSON decoders, those of
/// clients too, accept 128.
const DEPTH_MAX: usize = 100;

/// Sets the namespace and name of the path, and rejects an object with others.
pub fn set_path_fields(call: &Call, object: &mut Value) -> Result<(), StatusError> {
    let resource = &*call.resource;
    if resource.namespaced {
        let own = object::namespace(object);
        if own.is_empty() {
            object::set_meta(object, "namespace", Some(Value::from(call.namespace.as_str())));
        } else if own != call.namespace {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else if !object::namespace(object).is_empty() {
        object::set_meta(object, "namespace", None);
    }
    if !call.name.is_empty() {
        let own = object::name(object);
        if own.is_empty() {
            object::set_meta(object, "name", Some(Value::from(call.name.as_str())));
        } else if own != call.name {
            let message =
                format!("the name of the object ({own}) does not match the name on the URL ({})", call.name);
            return Err(StatusError::bad_request(message));
        }
    }
    Ok(())
}

/// Whether the name must be generated.
pub fn needs_generated_name(object: &Value) -> bool {
    object::name(object).is_empty() && !object::meta_str(object, "generateName").is_empty()
}

/// Sets name, uid and creation time, and clears fields that only the server sets.
pub fn prepare_create(core: &Core, object: &mut Value) -> Result<(), StatusError> {
    if !object::meta_str(object, "resourceVersion").is_empty() {
        return Err(StatusError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    if needs_generated_name(object) {
        const BASE_MAX: usize = 58;
        let base = object::meta_str(object, "generateName");
        let base = base.get(..BASE_MAX).unwrap_or(base);
        let name = format!("{base}{}", core.ids.suffix());
        object::set_meta(object, "name", Some(Value::from(name)));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        object::set_meta(object, field, None);
    }
    object::set_meta(object, "uid", Some(Value::from(core.ids.uid())));
    object::set_meta(object, "creationTimestamp", Some(Value::from(core.clock.time())));
    Ok(())
}

/// Rejects an object that could be stored, but not read again.
pub fn check_depth(object: &Value) -> Result<(), StatusError> {
    fn fits(value: &Value, levels: usize) -> bool {
        match value {
            Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
            Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    if fits(object, DEPTH_MAX) {
        return Ok(());
    }
    Err(StatusError::bad_request(format!("the object is nested more than {DEPTH_MAX} levels deep")))
}

/// Keeps immutable metadata that the new version omits.
pub fn carry_over(old: &Value, new: &mut Value) {
    for field in
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace", "name"]
    {
        let missing = object::meta(new, field).is_none_or(|value| value == "");
        if missing && let Some(value) = object::meta(old, field) {
            object::set_meta(new, field, Some(value.clone()));
        }
    }
    object::set_meta(new, "selfLink", None);
    object::set_meta(new, "generation", object::meta(old, "generation").cloned());
    if object::meta(new, "managedFields").is_none() {
        object::set_meta(new, "managedFields", object::meta(old, "managedFields").cloned());
    }
}

/// Validates the metadata of a created object.
pub fn validate_new(resource: &Resource, object: &Value) -> Vec<Error> {
    let metadata = Path::of("metadata");
    let mut errors = Vec::new();
    let name = object::name(object);
    let generate_name = object::meta_str(object, "generateName");
    if !generate_name.is_empty() {
        let path = metadata.field("generateName");
        let faults = strategy::validate_name(resource, generate_name.trim_end_matches(['-', '.']));
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, generate_name, fault)));
    }
    if name.is_empty() {
        errors.push(Error::required(&metadata.field("name"), "name or generateName is required"));
    } else {
        let faults = strategy::validate_name(resource, name);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&metadata.field("name"), name, fault)));
    }
    errors.extend(validate(object));
    errors
}

/// Rejects an update without `resourceVersion` for kinds that require it.
pub fn check_versioned(resource: &Resource, new: &Value) -> Result<(), StatusError> {
    if resource.unconditional_update || !object::meta_str(new, "resourceVersion").is_empty() {
        return Ok(());
    }
    let metadata = Path::of("metadata");
    let error = Error::invalid(&metadata.field("resourceVersion"), 0, "must be specified for an update");
    Err(StatusError::invalid(resource.qualified_resource(), object::name(new), &[error]))
}

/// Validates the metadata of an update. Duplicate errors are kept, as kube-apiserver reports them.
pub fn validate_change(old: &Value, new: &Value) -> Vec<Error> {
    let metadata = Path::of("metadata");
    let faults = validate(new);
    let mut errors = Vec::new();
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if object::meta(old, field) != object::meta(new, field) {
            let value = object::meta(new, field).cloned().unwrap_or(Value::Null);
            errors.push(Error::invalid(&metadata.field(field), value, "field is immutable"));
        }
    }
    if object::is_deleting(old) {
        let known = object::finalizers(old);
        let added: Vec<_> =
            object::finalizers(new).into_iter().filter(|name| !known.contains(name)).collect();
        if !added.is_empty() {
            let listed = added.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
            );
            errors.push(Error::forbidden(&metadata.field("finalizers"), detail));
        }
    }
    let again = errors.clone();
    errors.extend(again);
    // kube-apiserver validates the metadata twice on update.
    faults.into_iter().flat_map(|fault| std::iter::repeat_n(fault, 4)).chain(errors).collect()
}

fn validate(object: &Value) -> Vec<Error> {
    let metadata = Path::of("metadata");
    let mut errors = Vec::new();
    let labels = object::meta(object, "labels").and_then(Value::as_object);
    let path = metadata.field("labels");
    for (key, value) in labels.into_iter().flatten() {
        errors.extend(
            names::label_key(key).into_iter().map(|fault| Error::invalid(&path, key.as_str(), fault)),
        );
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).into_iter().map(|fault| Error::invalid(&path, value, fault)));
    }
    let annotations = object::meta(object, "annotations").and_then(Value::as_object);
    let path = metadata.field("annotations");
    let mut bytes = 0;
    for (key, value) in annotations.into_iter().flatten() {
        let faults = names::label_key(&key.to_lowercase());
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, key.as_str(), fault)));
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(Error::too_long(&path, ANNOTATIONS_BYTES_MAX));
    }
    errors.extend(validate_owners(object));
    errors.extend(validate_finalizers(object));
    errors
}

fn validate_finalizers(object: &Value) -> Vec<Error> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let metadata = Path::of("metadata");
    let path = metadata.field("finalizers");
    let finalizers = object::finalizers(object);
    let mut errors = Vec::new();
    for (index, name) in finalizers.iter().enumerate() {
        errors.extend(names::label_key(name).into_iter().map(|fault| Error::invalid(&path, *name, fault)));
        if !name.contains('/') && !STANDARD.contains(name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(index), *name, detail));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(Error::invalid(&path, finalizers, detail));
    }
    errors
}

fn validate_owners(object: &Value) -> Vec<Error> {
    let metadata = Path::of("metadata");
    let list = metadata.field("ownerReferences");
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let owners = object::meta(object, "ownerReferences").and_then(Value::as_array);
    for owner in owners.into_iter().flatten() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for (field, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(field).is_empty() {
                errors.push(Error::invalid(&list.field(field), "", detail));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let shown = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {shown}"
                    );
                    let all: Vec<_> = owners.into_iter().flatten().map(show_owner).collect();
                    errors.push(Error::invalid_unshown(&list, format!("[{}]: {detail}", all.join(","))));
                }
                None => controller = Some(shown),
            }
        }
    }
    errors
}

/// An owner reference as messages print it, with the field order of the Go type.
fn show_owner(owner: &Value) -> String {
    const ORDER: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields = ORDER.iter().filter_map(|field| Some(format!("\"{field}\":{}", owner.get(*field)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
