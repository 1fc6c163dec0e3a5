//! The rows of storage, dynamic resources, configuration and other small kinds.

use super::cells::Cells;
use serde_json::{Value, json};

pub(super) fn persistent_volume(object: &Cells<'_>) -> Vec<Value> {
    let claim = object.get("/spec/claimRef").map_or_else(String::new, |_| {
        format!("{}/{}", object.text("/spec/claimRef/namespace"), object.text("/spec/claimRef/name"))
    });
    let phase = if object.is_deleting() { "Terminating" } else { object.text("/status/phase") };
    vec![
        json!(object.name()),
        json!(object.printed("/spec/capacity/storage").unwrap_or_else(|| "0".to_owned())),
        json!(access_modes(object, "/spec/accessModes")),
        json!(object.text("/spec/persistentVolumeReclaimPolicy")),
        json!(phase),
        json!(claim),
        json!(class_of(object)),
        json!(unset_or(object, "/spec/volumeAttributesClassName")),
        json!(object.text("/status/reason")),
        json!(object.age()),
        json!(unset_or(object, "/spec/volumeMode")),
    ]
}

pub(super) fn persistent_volume_claim(object: &Cells<'_>) -> Vec<Value> {
    let phase = if object.is_deleting() { "Terminating" } else { object.text("/status/phase") };
    let bound = !object.text("/spec/volumeName").is_empty();
    let capacity = || object.printed("/status/capacity/storage").unwrap_or_else(|| "0".to_owned());
    vec![
        json!(object.name()),
        json!(phase),
        json!(object.text("/spec/volumeName")),
        json!(if bound { capacity() } else { String::new() }),
        json!(if bound { access_modes(object, "/status/accessModes") } else { String::new() }),
        json!(class_of(object)),
        json!(unset_or(object, "/spec/volumeAttributesClassName")),
        json!(object.age()),
        json!(unset_or(object, "/spec/volumeMode")),
    ]
}

fn unset_or<'a>(object: &Cells<'a>, pointer: &str) -> &'a str {
    object.get(pointer).and_then(Value::as_str).unwrap_or("<unset>")
}

/// The class of the beta annotation takes precedence over the field.
fn class_of<'a>(object: &Cells<'a>) -> &'a str {
    let annotation = object.object.pointer("/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    annotation.and_then(Value::as_str).unwrap_or(object.text("/spec/storageClassName"))
}

fn access_modes(object: &Cells<'_>, pointer: &str) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let listed = object.list(pointer);
    let modes: Vec<_> = known
        .iter()
        .filter(|(mode, _)| listed.iter().any(|one| one == mode))
        .map(|(_, short)| *short)
        .collect();
    modes.join(",")
}

pub(super) fn storage_class(object: &Cells<'_>) -> Vec<Value> {
    let is_default =
        ["storageclass.kubernetes.io~1is-default-class", "storageclass.beta.kubernetes.io~1is-default-class"]
            .iter()
            .any(|key| object.text(&format!("/metadata/annotations/{key}")) == "true");
    let name = if is_default { format!("{} (default)", object.name()) } else { object.name().to_owned() };
    vec![
        json!(name),
        json!(object.text("/provisioner")),
        json!(object.text_or("/reclaimPolicy", "Delete")),
        json!(object.text_or("/volumeBindingMode", "Immediate")),
        json!(object.flag("/allowVolumeExpansion")),
        json!(object.age()),
    ]
}

pub(super) fn volume_attributes_class(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.text("/driverName")), json!(object.age())]
}

pub(super) fn volume_attachment(object: &Cells<'_>) -> Vec<Value> {
    vec![
        json!(object.name()),
        json!(object.text("/spec/attacher")),
        json!(object.text("/spec/source/persistentVolumeName")),
        json!(object.text("/spec/nodeName")),
        json!(object.flag("/status/attached")),
        json!(object.age()),
    ]
}

pub(super) fn csi_node(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.count("/spec/drivers")), json!(object.age())]
}

pub(super) fn csi_driver(object: &Cells<'_>) -> Vec<Value> {
    let modes = object.joined("/spec/volumeLifecycleModes", ",");
    let audiences = object.get("/spec/tokenRequests").map_or_else(
        || "<unset>".to_owned(),
        |_| {
            let requests = object.list("/spec/tokenRequests").iter();
            requests.map(|one| one["audience"].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
        },
    );
    vec![
        json!(object.name()),
        json!(object.get("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true)),
        json!(object.flag("/spec/podInfoOnMount")),
        json!(object.flag("/spec/storageCapacity")),
        json!(audiences),
        json!(object.flag("/spec/requiresRepublish")),
        json!(if modes.is_empty() { "<none>".to_owned() } else { modes }),
        json!(object.age()),
    ]
}

pub(super) fn csi_storage_capacity(object: &Cells<'_>) -> Vec<Value> {
    let capacity = object.printed("/capacity").unwrap_or_else(|| "<unset>".to_owned());
    vec![json!(object.name()), json!(object.text("/storageClassName")), json!(capacity)]
}

pub(super) fn resource_claim(object: &Cells<'_>) -> Vec<Value> {
    let mut states = Vec::new();
    let allocated = object.get("/status/allocation").is_some();
    if object.is_deleting() {
        states.push("deleted");
    } else if !allocated {
        states.push("pending");
    }
    if allocated {
        states.push("allocated");
        if object.count("/status/reservedFor") > 0 {
            states.push("reserved");
        }
    }
    vec![json!(object.name()), json!(states.join(",")), json!(object.age())]
}

pub(super) fn resource_slice(object: &Cells<'_>) -> Vec<Value> {
    vec![
        json!(object.name()),
        json!(object.text("/spec/nodeName")),
        json!(object.text("/spec/driver")),
        json!(object.text("/spec/pool/name")),
        json!(object.age()),
    ]
}

pub(super) fn config_map(object: &Cells<'_>) -> Vec<Value> {
    vec![
        json!(object.name()),
        json!(object.count("/data") + object.count("/binaryData")),
        json!(object.age()),
    ]
}

pub(super) fn secret(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.text("/type")), json!(object.count("/data")), json!(object.age())]
}

pub(super) fn namespace(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.text("/status/phase")), json!(object.age())]
}

pub(super) fn lease(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.text("/spec/holderIdentity")), json!(object.age())]
}

pub(super) fn runtime_class(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.text("/handler")), json!(object.age())]
}

/// Kinds with only an age column.
pub(super) fn aged(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.age())]
}

/// Kinds without their own columns.
pub(super) fn plain(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.text("/metadata/creationTimestamp"))]
}
