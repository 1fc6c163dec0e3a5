//! Converts objects between the storage version and the served version.
//!
//! Custom resources only change their `apiVersion` (conversion strategy `None`); events have different field names in
//! their two groups.

use super::{Origin, Resource};
use crate::schema;
use serde_json::{Map, Value};

/// Event fields: the name in `v1` and in `events.k8s.io/v1`.
const EVENT_FIELDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("lastObservedTime", "lastObservedTime"),
];

/// Converts from the storage version.
#[must_use]
pub fn to_served(resource: &Resource, mut object: Value) -> Value {
    if resource.is_storage_version() {
        return object;
    }
    if let Origin::Builtin(_) = resource.origin
        && let Some(fields) = object.as_object_mut()
    {
        rename(fields, |(from, to)| (from, to));
        schema::normalize(resource.schema(), &mut object);
    }
    object["apiVersion"] = Value::from(&*resource.api_version);
    object
}

/// Converts to the storage version.
#[must_use]
pub fn to_storage(resource: &Resource, mut object: Value) -> Value {
    if resource.is_storage_version() {
        return object;
    }
    if let Origin::Builtin(_) = resource.origin
        && let Some(fields) = object.as_object_mut()
    {
        rename(fields, |(to, from)| (from, to));
    }
    object["apiVersion"] = Value::from(&*resource.storage_api_version);
    object
}

fn rename(
    fields: &mut Map<String, Value>,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    for (from, to) in EVENT_FIELDS.map(direction) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
