//! The `update` verb, with optimistic concurrency.

use super::{Call, Reply, ReplyBody, create, find_named, metadata, served};
use crate::admission::{self, Attributes, Operation};
use crate::field_management::{self, Writer};
use crate::registry::{Resource, convert};
use crate::request_body::{self, RequestBody};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::{Record, WriteConflict};
use crate::{crd, object, strategy};
use serde_json::Value;
use std::sync::Arc;

/// Number of attempts of a write without a `resourceVersion` precondition when other writers are faster.
pub(super) const ATTEMPTS: usize = 16;

/// Replaces the object of the call with the request body.
pub async fn update(core: &Core, call: &Call, body: RequestBody) -> Result<Reply, StatusError> {
    let (mut object, warnings) = request_body::decode_object(core, call, &body)?;
    if object::name(&object).is_empty() {
        let name = &call.name;
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    metadata::set_path_fields(call, &mut object)?;
    Reply::warned(update_object(core, call, object).await, warnings)
}

async fn update_object(core: &Core, call: &Call, object: Value) -> Result<Reply, StatusError> {
    let resource = &*call.resource;
    let version = object::meta_str(&object, "resourceVersion").to_owned();
    for _ in 0..ATTEMPTS {
        let live = match find_named(core, resource, &call.namespace, &call.name) {
            Ok(live) => live,
            Err(_) if resource.create_on_update && call.subresource.is_none() && version.is_empty() => {
                return create::create_object(core, call, object, Writer::Update).await;
            }
            Err(failure) => return Err(failure),
        };
        check_preconditions(resource, &live, &version, object::uid(&object))?;
        let old = served(resource, &live);
        if let Replaced::Written(reply) =
            replace(core, call, &live, &old, object.clone(), Writer::Update).await?
        {
            return Ok(*reply);
        }
        if !version.is_empty() {
            return Err(StatusError::modified(resource.qualified_resource(), &call.name));
        }
    }
    Err(StatusError::modified(resource.qualified_resource(), &call.name))
}

/// Checks `resourceVersion` and uid.
pub fn check_preconditions(
    resource: &Resource,
    live: &Record,
    version: &str,
    uid: &str,
) -> Result<(), StatusError> {
    if !uid.is_empty() {
        let own = live.value();
        check_uid(resource, live, uid, object::uid(&own))?;
    }
    if version.is_empty() || version == "0" {
        return Ok(());
    }
    let Ok(number) = version.parse::<u64>() else {
        let message = format!("strconv.ParseUint: parsing {}: invalid syntax", crate::field::quote(version));
        return Err(StatusError::new(500, "", message));
    };
    if number == live.revision {
        Ok(())
    } else {
        Err(StatusError::modified(resource.qualified_resource(), live.name()))
    }
}

/// Checks the uid precondition.
pub fn check_uid(resource: &Resource, live: &Record, uid: &str, own: &str) -> Result<(), StatusError> {
    if uid.is_empty() || uid == own {
        return Ok(());
    }
    let group = if resource.custom().is_some() { format!("{}/", resource.group) } else { String::new() };
    let key = format!("/registry/{group}{}/{}", resource.plural, live.key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {own}"
    );
    Err(StatusError::conflict(resource.qualified_resource(), live.name(), &why))
}

/// The outcome of an attempt to write.
#[derive(Debug)]
pub enum Replaced {
    /// Written, or nothing changed.
    Written(Box<Reply>),
    /// Another writer was faster.
    Conflict,
}

/// Writes a new version over the one read as `live` (`old` in the version of the call).
pub async fn replace(
    core: &Core,
    call: &Call,
    live: &Arc<Record>,
    old: &Value,
    mut new: Value,
    writer: Writer,
) -> Result<Replaced, StatusError> {
    let resource = &*call.resource;
    let dry_run = call.dry_run()?;
    metadata::carry_over(old, &mut new);
    strategy::default(core, resource, &mut new);
    field_management::track_update(core, call, old, &mut new, writer);
    let mut warnings = Vec::new();
    let mut attributes = Attributes::new(call, Operation::Update, dry_run);
    admission::mutate(core, &mut attributes, Some(&mut new), Some(old), &mut warnings).await?;
    // Changes by the client and by admission are validated alike.
    strategy::prepare_update(core, resource, call.subresource, old, &mut new);
    if writer != Writer::Update {
        object::set_meta(&mut new, "resourceVersion", object::meta(old, "resourceVersion").cloned());
    }
    metadata::check_versioned(resource, &new)?;
    let mut errors = metadata::validate_change(old, &new);
    errors.extend(strategy::validate_update(core, resource, call.subresource, old, &new));
    if crd::is_definition(resource) {
        errors.extend(crd::validate_update(old, &new));
    }
    if !errors.is_empty() {
        return Err(StatusError::invalid(resource.qualified_kind(), &call.name, &errors));
    }
    metadata::check_depth(&new)?;
    admission::validate(core, &mut attributes, Some(&new), Some(old), &mut warnings).await?;
    // kube-apiserver returns no warnings for pod updates.
    if call.subresource.is_none() && !resource.is("", "pods") && old.get("spec") != new.get("spec") {
        warnings.extend(strategy::warnings(resource, &new));
    }
    object::set_meta(&mut new, "resourceVersion", object::meta(old, "resourceVersion").cloned());
    field_management::ignore_new_times(old, &mut new);
    let reply = if new == *old {
        ReplyBody::Record(Arc::clone(live))
    } else if dry_run {
        ReplyBody::Object(new)
    } else {
        // An object that is removed by this write keeps its `resourceVersion` in the response.
        let last = can_be_removed(resource, &new).then(|| new.clone());
        match (commit(core, resource, live, new), last) {
            (Ok(_), Some(last)) => ReplyBody::Object(last),
            (Ok(record), None) => ReplyBody::Record(record),
            (Err(WriteConflict { .. }), _) => return Ok(Replaced::Conflict),
        }
    };
    Ok(Replaced::Written(Box::new(Reply::new(200, reply).warn(warnings))))
}

/// Stores a new version, or removes a terminating object without finalizers.
pub fn commit(
    core: &Core,
    resource: &Resource,
    live: &Arc<Record>,
    new: Value,
) -> Result<Arc<Record>, WriteConflict> {
    let mut kept = convert::to_storage(resource, new);
    if can_be_removed(resource, &kept) {
        let record = core.store.delete(resource.table, live, &mut kept)?;
        crd::on_removed(core, resource, &record);
        return Ok(record);
    }
    let record = core.store.update(resource.table, live, &mut kept)?;
    create::on_stored(core, resource, &record);
    Ok(record)
}

/// Whether a terminating object can be removed.
pub fn can_be_removed(resource: &Resource, object: &Value) -> bool {
    let namespace_waits = resource.is("", "namespaces")
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    object::is_deleting(object)
        && object::finalizers(object).is_empty()
        && object::grace_period(object).unwrap_or(0) == 0
        && !namespace_waits
}
