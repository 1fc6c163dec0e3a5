//! Takes out of watched objects what nobody reads, so that memory follows what is used.

use kai_object as object;
use serde_json::Value;

/// Leaves of the metadata what tells objects and their versions apart, and what is named.
pub(crate) fn metadata(object: &mut Value, more: &[&str]) {
    const ALWAYS: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "deletionTimestamp"];
    object::meta_mut(object).retain(|field, _| ALWAYS.contains(&&**field) || more.contains(&&**field));
}

/// Leaves only these fields of an object.
pub(crate) fn only(object: &mut Value, fields: &[&str]) {
    if let Some(all) = object.as_object_mut() {
        all.retain(|field, _| fields.contains(&&**field));
    }
}

/// Leaves only these fields of a part of an object, such as its status.
pub(crate) fn only_of(object: &mut Value, part: &str, fields: &[&str]) {
    if let Some(part) = object.get_mut(part) {
        only(part, fields);
    }
}
