//! The `create` verb.

use super::{Call, Reply, ReplyBody, metadata};
use crate::admission::{self, Attributes, Operation};
use crate::field_management::{self, Writer};
use crate::object;
use crate::registry::{Resource, convert};
use crate::request_body::{self, RequestBody};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::{Record, WriteConflict};
use crate::{crd, event_ttl, strategy};
use serde_json::Value;
use std::sync::Arc;

/// Number of attempts to generate an unused name.
const NAME_ATTEMPTS: usize = 8;

/// Creates the object of the request body.
pub async fn create(core: &Core, call: &Call, body: RequestBody) -> Result<Reply, StatusError> {
    let (object, warnings) = request_body::decode_object(core, call, &body)?;
    Reply::warned(create_object(core, call, object, Writer::Update).await, warnings)
}

/// Creates a decoded object; also used by updates and patches that may create.
pub async fn create_object(
    core: &Core,
    call: &Call,
    mut object: Value,
    writer: Writer,
) -> Result<Reply, StatusError> {
    let resource = &*call.resource;
    let dry_run = call.dry_run()?;
    metadata::set_path_fields(call, &mut object)?;
    strategy::default(core, resource, &mut object);
    let generated = metadata::needs_generated_name(&object);
    for attempt in 1.. {
        // Only a generated name can be generated again.
        let mut object = if generated { object.clone() } else { std::mem::take(&mut object) };
        metadata::prepare_create(core, &mut object)?;
        field_management::track_create(core, call, &mut object, writer);
        let mut warnings = Vec::new();
        let mut attributes = Attributes::new(call, Operation::Create, dry_run);
        admission::mutate(core, &mut attributes, Some(&mut object), None, &mut warnings).await?;
        strategy::prepare_create(core, resource, &mut object);
        if crd::is_definition(resource) {
            crd::init_status(&mut object);
        }
        let mut errors = metadata::validate_new(resource, &object);
        errors.extend(strategy::validate_create(core, resource, &object));
        if !errors.is_empty() {
            return Err(StatusError::invalid(resource.qualified_kind(), object::name(&object), &errors));
        }
        metadata::check_depth(&object)?;
        admission::validate(core, &mut attributes, Some(&object), None, &mut warnings).await?;
        warnings.extend(strategy::warnings(resource, &object));
        match insert(core, resource, object, dry_run) {
            Ok(reply) => return Ok(Reply::new(201, reply).warn(warnings)),
            Err(_) if generated && attempt < NAME_ATTEMPTS => {}
            Err(failure) => return Err(failure),
        }
    }
    unreachable!("the last attempt returns")
}

fn insert(core: &Core, resource: &Resource, object: Value, dry_run: bool) -> Result<ReplyBody, StatusError> {
    let name = object::name(&object).to_owned();
    let key = resource.key(object::namespace(&object), &name);
    if dry_run {
        if core.store.get(resource.table, &key).is_some() {
            return Err(StatusError::already_exists(resource.qualified_resource(), &name));
        }
        return Ok(ReplyBody::Object(object));
    }
    let mut kept = convert::to_storage(resource, object);
    let record = core
        .store
        .create(resource.table, &key, &mut kept)
        .map_err(|WriteConflict { .. }| StatusError::already_exists(resource.qualified_resource(), &name))?;
    on_stored(core, resource, &record);
    Ok(ReplyBody::Record(record))
}

/// Handles a stored object: `CustomResourceDefinition`s take effect before the response, and Events enter the TTL queue.
pub(super) fn on_stored(core: &Core, resource: &Resource, record: &Arc<Record>) {
    event_ttl::track(core, resource, record);
    if crd::is_definition(resource) {
        crd::on_stored(core, record);
    }
}
