//! The `update` verb, with optimistic concurrency.

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

/// Number of attempts of a write without a `resourceVersion` precondition when other writers are faster.
pub(super) const ATTEMPTS: usize = 16;

/// Replaces the object of the call with the request body.
pub async fn update(core: &Core, call: &Call, body: Incoming) -> Result<Done, Failure> {
    let (mut object, warnings) = incoming::admit_object(core, call, &body)?;
    if object::name(&object).is_empty() {
        let name = &call.name;
        return Err(Failure::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    metadata::place(call, &mut object)?;
    Done::warned(update_object(core, call, object).await, warnings)
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

/// Checks `resourceVersion` and uid.
pub fn check_preconditions(
    resource: &Resource,
    live: &Record,
    version: &str,
    uid: &str,
) -> Result<(), Failure> {
    if !uid.is_empty() {
        let own = live.value();
        check_uid(resource, live, uid, object::uid(&own))?;
    }
    if version.is_empty() || version == "0" {
        return Ok(());
    }
    let Ok(number) = version.parse::<u64>() else {
        let message = format!("strconv.ParseUint: parsing {}: invalid syntax", crate::field::quote(version));
        return Err(Failure::new(500, "", message));
    };
    if number == live.revision { Ok(()) } else { Err(Failure::modified(resource.about(), live.name())) }
}

/// Checks the uid precondition.
pub fn check_uid(resource: &Resource, live: &Record, uid: &str, own: &str) -> Result<(), Failure> {
    if uid.is_empty() || uid == own {
        return Ok(());
    }
    let group = if resource.custom().is_some() { format!("{}/", resource.group) } else { String::new() };
    let key = format!("/registry/{group}{}/{}", resource.plural, live.key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {own}"
    );
    Err(Failure::conflict(resource.about(), live.name(), &why))
}

/// The outcome of an attempt to write.
#[derive(Debug)]
pub enum Replaced {
    /// Written, or nothing changed.
    Done(Box<Done>),
    /// Another writer was faster.
    Raced,
}

/// Writes a new version over the one read as `live` (`old` in the version of the call).
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
    fields::track_update(core, call, old, &mut new, writer);
    let mut warnings = Vec::new();
    let mut review = Review::new(call, Operation::Update, dry_run);
    admission::mutate(core, &mut review, Some(&mut new), Some(old), &mut warnings).await?;
    // Changes by the client and by admission are validated alike.
    strategy::prepare_update(core, resource, call.subresource, old, &mut new);
    if writer != Writer::Update {
        object::set_meta(&mut new, "resourceVersion", object::meta(old, "resourceVersion").cloned());
    }
    metadata::check_versioned(resource, &new)?;
    let mut errors = metadata::validate_change(old, &new);
    errors.extend(strategy::validate_update(core, resource, call.subresource, old, &new));
    if crd::is_definition(resource) {
        errors.extend(crd::fixed_fields(old, &new));
    }
    if !errors.is_empty() {
        return Err(Failure::invalid(resource.about_kind(), &call.name, &errors));
    }
    admission::validate(core, &mut review, Some(&new), Some(old), &mut warnings).await?;
    // kube-apiserver returns no warnings for pod updates.
    if call.subresource.is_none() && !resource.is("", "pods") && old.get("spec") != new.get("spec") {
        warnings.extend(strategy::warnings(resource, &new));
    }
    object::set_meta(&mut new, "resourceVersion", object::meta(old, "resourceVersion").cloned());
    fields::forget_new_times(old, &mut new);
    let reply = if new == *old {
        Reply::Record(Arc::clone(live))
    } else if dry_run {
        Reply::Object(new)
    } else {
        // An object that is removed by this write keeps its `resourceVersion` in the response.
        let last = may_go(resource, &new).then(|| new.clone());
        match (commit(core, resource, live, new), last) {
            (Ok(_), Some(last)) => Reply::Object(last),
            (Ok(record), None) => Reply::Record(record),
            (Err(Raced { .. }), _) => return Ok(Replaced::Raced),
        }
    };
    Ok(Replaced::Done(Box::new(Done::new(200, reply).warn(warnings))))
}

/// Stores a new version, or removes a terminating object without finalizers.
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

/// Whether a terminating object can be removed.
pub fn may_go(resource: &Resource, object: &Value) -> bool {
    let namespace_waits = resource.is("", "namespaces")
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    object::is_deleting(object)
        && object::finalizers(object).is_empty()
        && object::grace_period(object).unwrap_or(0) == 0
        && !namespace_waits
}
