//! The writes that bring the cluster to the desired state.

use crate::facts::Facts;
use crate::inherit::inherit;
use crate::merge::{is_merged, merged};
use crate::{Desired, Object, ObjectKey, Operand};
use serde_json::Value;
use std::collections::BTreeSet;

/// A write to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object does not exist.
    Create(Object),
    /// The object exists and lacks or contradicts desired fields.
    Apply {
        /// The desired fields.
        desired: Object,
        /// The whole object after the change.
        merged: Object,
    },
    /// A field that cannot be changed differs: the object is deleted, and created by the next reconcile.
    Replace(ObjectKey),
    /// The object is owned by the installation and no longer desired.
    Delete(ObjectKey),
}

impl Change {
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Create(object) | Self::Apply { desired: object, .. } => ObjectKey::of(object),
            Self::Replace(key) | Self::Delete(key) => key.clone(),
        }
    }
}

/// The changes, first what pods need: service accounts, then configuration; deletions last.
///
/// Nothing is deleted for an owner whose objects could not all be determined.
pub fn plan(desired: &Desired, config_name: &str, facts: &Facts) -> Vec<Change> {
    let mut changes: Vec<Change> = desired.objects().filter_map(|object| change(object, facts)).collect();
    changes.sort_by_key(|change| match change.key().kind.as_str() {
        "ServiceAccount" => 0,
        "ConfigMap" | "Secret" => 1,
        _ => 2,
    });
    let config: Vec<&Operand> = desired.config.iter().collect();
    changes.extend(superfluous(&config, "Config", config_name, facts));
    for (name, operand) in &desired.shards {
        changes.extend(superfluous(&[operand], "SchedulingShard", name, facts));
    }
    changes
}

fn change(desired: &Object, facts: &Facts) -> Option<Change> {
    let key = ObjectKey::of(desired);
    let Some(current) = facts.objects.get(&key) else { return Some(Change::Create(desired.clone())) };
    Some(match difference(desired, current)? {
        Difference::Immutable => Change::Replace(key),
        Difference::Merged { desired, merged } => Change::Apply { desired, merged },
    })
}

/// How an object differs from what is desired.
pub(crate) enum Difference {
    /// In a field that cannot be changed.
    Immutable,
    /// In other fields.
    Merged {
        /// The desired fields, with what is taken over from the cluster.
        desired: Object,
        /// The whole object after the change.
        merged: Object,
    },
}

pub(crate) fn difference(desired: &Object, current: &Value) -> Option<Difference> {
    if is_immutable_change(current, desired) {
        return Some(Difference::Immutable);
    }
    let desired = inherit(desired, current);
    if is_merged(current, &desired) {
        return None;
    }
    let merged = merged(current, &desired);
    Some(Difference::Merged { desired: desired.into_owned(), merged })
}

/// Fields that the API server refuses to change.
fn is_immutable_change(current: &Value, desired: &Value) -> bool {
    let pointers: &[&str] = match kai_object::kind(desired) {
        "Deployment" | "DaemonSet" => &["/spec/selector"],
        "EndpointSlice" => &["/addressType"],
        _ => &[],
    };
    let is_headless = |object: &Value| kai_object::str_at(object, "/spec/clusterIP") == "None";
    pointers.iter().any(|pointer| current.pointer(pointer) != desired.pointer(pointer))
        || kai_object::kind(desired) == "Service" && is_headless(current) != is_headless(desired)
}

fn superfluous(operands: &[&Operand], kind: &str, owner: &str, facts: &Facts) -> Vec<Change> {
    if operands.is_empty() || operands.iter().any(|operand| operand.error.is_some()) {
        return Vec::new();
    }
    let objects = operands.iter().flat_map(|operand| &operand.objects);
    let wanted: BTreeSet<ObjectKey> = objects.map(ObjectKey::of).collect();
    let owned = facts.objects.iter().filter(|(_, object)| is_owned_by(object, kind, owner));
    // What moves to another namespace stays until it is there.
    let is_moving = |key: &ObjectKey| {
        !key.namespace.is_empty()
            && wanted.iter().any(|other| {
                (&other.kind, &other.name) == (&key.kind, &key.name) && !facts.objects.contains_key(other)
            })
    };
    owned
        .filter(|(key, _)| !wanted.contains(key) && !is_moving(key))
        .map(|(key, _)| Change::Delete(key.clone()))
        .collect()
}

/// Whether the controller of an object is the `Config` or shard of this name.
pub fn is_owned_by(object: &Value, kind: &str, name: &str) -> bool {
    controllers(object).any(|owner| {
        kai_object::kind(owner) == kind && owner.get("name").and_then(Value::as_str) == Some(name)
    })
}

/// Whether the controller of an object is a `Config` or a shard.
pub(crate) fn is_owned(object: &Value) -> bool {
    controllers(object).next().is_some()
}

fn controllers(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = kai_object::meta(object, "ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().filter(|owner| {
        owner.get("controller").and_then(Value::as_bool) == Some(true)
            && kai_object::api_version(owner) == "kai.scheduler/v1"
    })
}
