//! Replaces an object, or one of its parts, with optimistic concurrency.

use super::{Call, Done, Reply, create, find_named, metadata, served};
use crate::admission::{self, Operation, Review};
use crate::failure::Failure;
use crate::fields::{self, Writer};
use crate::incoming::{self, Incoming};
use crate::kinds::{Resource, convert};
use crate::server::Core;
use crate::store::{Raced, Record};
use crate::{crd, object, strategy};
use serde_json::Value;
use std::sync::Arc;

/// How often a write that nobody's `resourceVersion` guards is tried again when somebody else was first.
pub(super) const ATTEMPTS: usize = 16;

/// Replaces the object of the call with the one in the body.
pub async fn update(core: &Core, call: &Call, body: Incoming) -> Result<Done, Failure> {
    let (mut object, warnings) = incoming::admit_object(call, &body)?;
    metadata::place(call, &mut object)?;
    let mut done = update_object(core, call, object).await?;
    done.warnings.splice(0..0, warnings);
    Ok(done)
}

async fn update_object(core: &Core, call: &Call, object: Value) -> Result<Done, Failure> {
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
        if let Replaced::Done(done) = replace(core, call, &live, &old, object.clone(), Writer::Update).await?
        {
            return Ok(*done);
        }
        if !version.is_empty() {
            return Err(Failure::modified(resource.about(), &call.name));
        }
    }
    Err(Failure::modified(resource.about(), &call.name))
}

/// Refuses a write that was meant for another version of the object, or for another object of the same name.
pub fn check_preconditions(
    resource: &Resource,
    live: &Record,
    version: &str,
    uid: &str,
) -> Result<(), Failure> {
    if !uid.is_empty() {
        let own = live.value();
        let own = object::uid(&own);
        if own != uid {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
            return Err(Failure::conflict(resource.about(), live.name(), &why));
        }
    }
    if version.is_empty() || version == "0" {
        return Ok(());
    }
    let Ok(number) = version.parse::<u64>() else {
        let error = crate::field::Error::invalid(
            &crate::field::Path::of("metadata").field("resourceVersion"),
            version,
            format!("strconv.ParseUint: parsing {}: invalid syntax", crate::field::quote(version)),
        );
        return Err(Failure::invalid(resource.about_kind(), live.name(), &[error]));
    };
    if number == live.revision { Ok(()) } else { Err(Failure::modified(resource.about(), live.name())) }
}

/// The outcome of one attempt to write.
#[derive(Debug)]
pub enum Replaced {
    /// It is written, or there was nothing to write.
    Done(Box<Done>),
    /// Somebody else was first.
    Raced,
}

/// Writes a new version of an object over the one that was read as `live` (`old` in the version of the call).
pub async fn replace(
    core: &Core,
    call: &Call,
    live: &Arc<Record>,
    old: &Value,
    mut new: Value,
    writer: Writer,
) -> Result<Replaced, Failure> {
    let resource = &*call.resource;
    let dry_run = call.dry_run()?;
    metadata::carry_over(old, &mut new);
    strategy::default(core, resource, &mut new);
    strategy::prepare_update(core, resource, call.subresource, old, &mut new);
    fields::track_update(core, call, old, &mut new, writer);
    let mut warnings = Vec::new();
    let mut review = Review::new(call, Operation::Update, dry_run);
    admission::mutate(core, &mut review, Some(&mut new), Some(old), &mut warnings).await?;
    // Once more: what admission changed is bound by the same rules.
    strategy::prepare_update(core, resource, call.subresource, old, &mut new);
    if writer != Writer::Update {
        object::set_meta(&mut new, "resourceVersion", object::meta(old, "resourceVersion").cloned());
    }
    let mut errors = metadata::validate_change(resource, old, &new);
    errors.extend(strategy::validate_update(core, resource, call.subresource, old, &new));
    if !errors.is_empty() {
        return Err(Failure::invalid(resource.about_kind(), &call.name, &errors));
    }
    admission::validate(core, &mut review, Some(&new), Some(old), &mut warnings).await?;
    object::set_meta(&mut new, "resourceVersion", object::meta(old, "resourceVersion").cloned());
    fields::forget_new_times(old, &mut new);
    let reply = if new == *old {
        Reply::Record(Arc::clone(live))
    } else if dry_run {
        Reply::Object(new)
    } else {
        match commit(core, resource, live, new) {
            Ok(record) => Reply::Record(record),
            Err(Raced { .. }) => return Ok(Replaced::Raced),
        }
    };
    Ok(Replaced::Done(Box::new(Done::new(200, reply).warn(warnings))))
}

/// Stores a new version; an object whose last finalizer went is gone with it.
pub fn commit(
    core: &Core,
    resource: &Resource,
    live: &Arc<Record>,
    new: Value,
) -> Result<Arc<Record>, Raced> {
    let mut kept = convert::to_storage(resource, new);
    if may_go(resource, &kept) {
        let record = core.store.delete(resource.table, live, &mut kept)?;
        crd::gone(core, resource, &record);
        return Ok(record);
    }
    let record = core.store.update(resource.table, live, &mut kept)?;
    create::after(core, resource, &record);
    Ok(record)
}

/// Whether an object that is being deleted has nothing left to wait for.
pub fn may_go(resource: &Resource, object: &Value) -> bool {
    let namespace_waits = resource.is("", "namespaces")
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    object::is_deleting(object)
        && object::finalizers(object).is_empty()
        && object::grace_period(object).unwrap_or(0) == 0
        && !namespace_waits
}
