//! The strategies of `PersistentVolumeClaim`s, `PersistentVolume`s and `StorageClass`es.

use super::checks::{Errors, immutable, list, one_of, part, text};
use crate::field::{Error, Path};
use crate::object;
use crate::quantity::Quantity;
use serde_json::Value;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const CLAIM_FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";

/// Fields of a `PersistentVolume` spec that are not volume sources.
const NON_SOURCE_FIELDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn validate_modes(errors: &mut Errors, spec: &Value, path: &Path<'_>, missing: &str) {
    let path = path.field("accessModes");
    if list(spec, "accessModes").is_empty() {
        errors.push(Error::required(&path, missing));
    }
    for mode in list(spec, "accessModes") {
        let mode = mode.as_str().unwrap_or_default();
        if !ACCESS_MODES.contains(&mode) {
            errors.push(Error::not_supported(&path, mode, &ACCESS_MODES));
        }
    }
}

pub(super) fn validate_claim(claim: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(claim, "spec");
    validate_modes(&mut errors, spec, &path, "at least 1 access mode is required");
    let resources = path.field("resources");
    match spec.pointer("/resources/requests/storage") {
        None => errors.push(Error::required(&resources.key("storage"), "")),
        Some(amount) => {
            let amount = amount.as_str().and_then(Quantity::parse);
            if let Some(amount) = amount.filter(|amount| amount.is_negative() || amount.is_zero()) {
                let detail = "must be greater than zero";
                errors.push(Error::invalid(&resources.key("storage"), amount.to_string(), detail));
            }
        }
    }
    one_of(&mut errors, spec, &path, "volumeMode", &VOLUME_MODES);
    errors
}

pub(super) fn validate_claim_change(old: &Value, new: &Value) -> Errors {
    let (was, is) = (part(old, "spec"), part(new, "spec"));
    let bound = object::str_at(old, "/status/phase") == "Bound";
    let fixed = |spec: &Value| {
        let mut fields = spec.as_object().cloned().unwrap_or_default();
        if bound {
            fields.remove("volumeAttributesClassName");
            if let Some(resources) = fields.get_mut("resources") {
                object::map_mut(resources, "requests").clear();
            }
        }
        fields
    };
    let (mut before, after) = (fixed(was), fixed(is));
    // The volume binder sets the volume, and a default class where there was none.
    for field in ["volumeName", "storageClassName"] {
        if before.get(field).is_none_or(|value| value == "")
            && let Some(value) = after.get(field)
        {
            before.insert(field.to_owned(), value.clone());
        }
    }
    let mut errors = Vec::new();
    let path = Path::of("spec");
    if before != after {
        errors.push(Error::forbidden(&path, CLAIM_FIXED));
    }
    let amount = |object: &Value, pointer: &str| Quantity::parse(object::str_at(object, pointer));
    let wanted = amount(is, "/resources/requests/storage");
    let (earlier, has) =
        (amount(was, "/resources/requests/storage"), amount(old, "/status/capacity/storage"));
    if bound && wanted < earlier && wanted < has {
        let resources = path.field("resources");
        let requests = resources.field("requests");
        let detail = "field can not be less than status.capacity";
        errors.push(Error::forbidden(&requests.field("storage"), detail));
    }
    errors
}

pub(super) fn validate_volume(volume: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(volume, "spec");
    validate_modes(&mut errors, spec, &path, "");
    let capacity = spec.get("capacity").and_then(Value::as_object);
    if capacity.is_none_or(serde_json::Map::is_empty) {
        errors.push(Error::required(&path.field("capacity"), ""));
    }
    if capacity.is_none_or(|capacity| capacity.len() != 1 || !capacity.contains_key("storage")) {
        let value = spec.get("capacity").cloned().unwrap_or(Value::Null);
        errors.push(Error::not_supported(&path.field("capacity"), value, &["storage"]));
    }
    if !spec
        .as_object()
        .is_some_and(|fields| fields.keys().any(|field| !NON_SOURCE_FIELDS.contains(&field.as_str())))
    {
        errors.push(Error::required(&path, "must specify a volume type"));
    }
    one_of(&mut errors, spec, &path, "volumeMode", &VOLUME_MODES);
    let policies = ["Delete", "Recycle", "Retain"];
    one_of(&mut errors, spec, &path, "persistentVolumeReclaimPolicy", &policies);
    errors
}

pub(super) fn validate_class(class: &Value) -> Errors {
    let mut errors = Vec::new();
    if text(class, "provisioner").is_empty() {
        errors.push(Error::required(&Path::of("provisioner"), ""));
    }
    one_of(&mut errors, class, &Path::ROOT, "reclaimPolicy", &["Delete", "Retain"]);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    one_of(&mut errors, class, &Path::ROOT, "volumeBindingMode", &modes);
    errors
}

/// Only `allowVolumeExpansion` of a `StorageClass` may change.
pub(super) fn validate_class_change(old: &Value, new: &Value) -> Errors {
    let mut errors = Vec::new();
    if old.get("parameters") != new.get("parameters") {
        let detail = "updates to parameters are forbidden.";
        errors.push(Error::forbidden(&Path::of("parameters"), detail));
    }
    for field in ["provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(&mut errors, old, new, &Path::ROOT, field);
    }
    errors
}
