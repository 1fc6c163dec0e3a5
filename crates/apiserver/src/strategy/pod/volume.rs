//! Validation of volumes.

use crate::field::{Error, Path};
use crate::names;
use crate::quantity::Quantity;
use crate::strategy::checks::{Errors, list, required_name, text};
use serde_json::Value;

/// Volume sources in validation order, each with its required fields.
const SOURCES: [(&str, &[&str]); 22] = [
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["image"]),
    ("cephfs", &[]),
    ("quobyte", &["registry", "volume"]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("projected", &[]),
    ("scaleIO", &[]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("image", &[]),
];

/// The names of the valid volumes, and the errors of the others.
pub(super) fn validate<'a>(volumes: &'a [Value], path: &Path<'_>) -> (Vec<&'a str>, Errors) {
    let mut known = Vec::new();
    let mut errors = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let mut own = validate_source(volume, &path);
        required_name(&mut own, volume, &path, "name", names::dns_label);
        let name = text(volume, "name");
        if known.contains(&name) {
            own.push(Error::duplicate(&path.field("name"), name));
        }
        if own.is_empty() {
            known.push(name);
        }
        errors.extend(own);
    }
    (known, errors)
}

fn validate_source(volume: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let mut given = 0;
    for (kind, required) in SOURCES {
        let Some(source) = volume.get(kind) else { continue };
        let path = path.field(kind);
        given += 1;
        if given > 1 {
            errors.push(Error::forbidden(&path, "may not specify more than 1 volume type"));
            continue;
        }
        for field in required.iter().filter(|field| source.get(**field).is_none_or(|value| value == "")) {
            errors.push(Error::required(&path.field(field), ""));
        }
        let limit = source.get("sizeLimit").and_then(Value::as_str).and_then(Quantity::parse);
        if kind == "emptyDir" && limit.is_some_and(Quantity::is_negative) {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.push(Error::forbidden(&path.field("sizeLimit"), detail));
        }
        if kind == "projected" && list(source, "sources").iter().any(|source| !source.is_object()) {
            errors.push(Error::required(&path.field("sources"), ""));
        }
    }
    // Sources that are not validated still count as sources.
    let other = volume.as_object().is_some_and(|fields| fields.len() > 1);
    if given == 0 && !other {
        errors.push(Error::required(path, "must specify a volume type"));
    }
    errors
}
