//! The API verbs: from a decoded request to a stored result.
//!
//! This module does not depend on HTTP. A [`Call`] is a parsed request; the outcome is [`ReplyBody`] or a
//! [`StatusError`].

pub mod bind;
pub mod call;
pub mod create;
pub mod delete;
pub mod evict;
pub mod list;
pub mod logs;
pub mod metadata;
pub mod patch;
pub mod scale;
pub mod selection;
pub mod token;
pub mod update;
pub mod watch;

pub use call::{Call, Query, Reply, ReplyBody};

use crate::registry::{Resource, convert};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::Record;
use serde_json::Value;
use std::sync::Arc;

/// The object that a call names.
pub fn find(core: &Core, call: &Call) -> Result<Arc<Record>, StatusError> {
    find_named(core, &call.resource, &call.namespace, &call.name)
}

pub fn find_named(
    core: &Core,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Arc<Record>, StatusError> {
    let found = core.store.get(resource.table, &resource.key(namespace, name));
    found.ok_or_else(|| StatusError::not_found(resource.qualified_resource(), name))
}

pub fn get(core: &Core, call: &Call) -> Result<Reply, StatusError> {
    let version = list::parse_version(call.query.get("resourceVersion").unwrap_or_default())
        .map_err(|message| StatusError::new(500, "", message))?;
    list::check_not_future(core, version)?;
    Ok(Reply::found(find(core, call)?))
}

/// A stored object in the served version of the resource.
pub fn served(resource: &Resource, record: &Record) -> Value {
    convert::to_served(resource, record.value())
}
