//! Turns objects from the version in which they are kept into the one in which they are served, and back.
//!
//! Custom resources change nothing but their `apiVersion` (conversion strategy `None`); events have other field names
//! in each of their two groups.

use super::{Origin, Resource};
use crate::schema;
use serde_json::{Map, Value};

/// Fields of an event: the name in `v1`, and the one in `events.k8s.io/v1`.
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

/// The object as the resource's version shows it.
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

/// The object as it is kept.
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
