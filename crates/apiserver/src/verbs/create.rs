//! The `create` verb.

use super::{Call, Done, Reply, metadata};
use crate::admission::{self, Operation, Review};
use crate::failure::Failure;
use crate::fields::{self, Writer};
use crate::incoming::{self, Incoming};
use crate::kinds::{Resource, convert};
use crate::object;
use crate::server::Core;
use crate::store::{Raced, Record};
use crate::{crd, expiry, strategy};
use serde_json::Value;
use std::sync::Arc;

/// Number of attempts to generate an unused name.
const NAME_ATTEMPTS: usize = 8;

/// Creates the object of the request body.
pub async fn create(core: &Core, call: &Call, body: Incoming) -> Result<Done, Failure> {
    let (object, warnings) = incoming::admit_object(core, call, &body)?;
    Done::warned(create_object(core, call, object, Writer::Update).await, warnings)
}

/// Creates a decoded object; also used by updates and patches that may create.
pub async fn create_object(
    core: &Core,
    call: &Call,
    mut object: Value,
    writer: Writer,
) -> Result<Done, Failure> {
    let resource = &*call.resource;
    let dry_run = call.dry_run()?;
    metadata::place(call, &mut object)?;
    strategy::default(core, resource, &mut object);
    let generated = metadata::needs_generated_name(&object);
    for attempt in 1.. {
        // Only a generated name can be generated again.
        let mut object = if generated { object.clone() } else { std::mem::take(&mut object) };
        metadata::begin(core, &mut object)?;
        fields::track_create(core, call, &mut object, writer);
        let mut warnings = Vec::new();
        let mut review = Review::new(call, Operation::Create, dry_run);
        admission::mutate(core, &mut review, Some(&mut object), None, &mut warnings).await?;
        strategy::prepare_create(core, resource, &mut object);
        if crd::is_definition(resource) {
            crd::begin(&mut object);
        }
        let mut errors = metadata::validate_new(resource, &object);
        errors.extend(strategy::validate_create(core, resource, &object));
        if !errors.is_empty() {
            return Err(Failure::invalid(resource.about_kind(), object::name(&object), &errors));
        }
        admission::validate(core, &mut review, Some(&object), None, &mut warnings).await?;
        warnings.extend(strategy::warnings(resource, &object));
        match insert(core, resource, object, dry_run) {
            Ok(reply) => return Ok(Done::new(201, reply).warn(warnings)),
            Err(_) if generated && attempt < NAME_ATTEMPTS => {}
            Err(failure) => return Err(failure),
        }
    }
    unreachable!("the last attempt returns")
}

fn insert(core: &Core, resource: &Resource, object: Value, dry_run: bool) -> Result<Reply, Failure> {
    let name = object::name(&object).to_owned();
    let key = resource.key(object::namespace(&object), &name);
    if dry_run {
        if core.store.get(resource.table, &key).is_some() {
            return Err(Failure::already_exists(resource.about(), &name));
        }
        return Ok(Reply::Object(object));
    }
    let mut kept = convert::to_storage(resource, object);
    let record = core
        .store
        .create(resource.table, &key, &mut kept)
        .map_err(|Raced { .. }| Failure::already_exists(resource.about(), &name))?;
    after(core, resource, &record);
    Ok(Reply::Record(record))
}

/// Handles a stored object: CustomResourceDefinitions take effect before the response, and Events enter the TTL queue.
pub(super) fn after(core: &Core, resource: &Resource, record: &Arc<Record>) {
    expiry::note(core, resource, record);
    if crd::is_definition(resource) {
        crd::stored(core, record);
    }
}
