//! The `delete` and `deletecollection` verbs: immediate, graceful, and with finalizers.

use super::update::check_preconditions;
use super::{Call, Reply, ReplyBody, create, find, list, served};
use crate::admission::{self, Attributes, Operation};
use crate::field::{Error, Path};
use crate::registry::{Resource, convert};
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::store::{Record, WriteConflict};
use crate::verbs::call::check_dry_run;
use crate::{clock, crd, object, strategy};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;

const OPTIONS: QualifiedName<'static> = QualifiedName { group: "meta.k8s.io", name: "DeleteOptions" };
/// The finalizer of orphaning deletion.
const ORPHAN: &str = "orphan";
/// The finalizer of foreground deletion.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a `CustomResourceDefinition` that still has custom resources.
pub(crate) const CUSTOM_RESOURCE_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// `propagationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are kept.
    Orphan,
    /// Dependents are deleted afterwards.
    Background,
    /// Dependents are deleted first.
    Foreground,
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation: Option<Propagation>,
    orphan_dependents: Option<bool>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    /// Options from the body, or from the query parameters.
    pub fn read(call: &Call, body: Option<Value>) -> Result<Self, StatusError> {
        let dry_run_parameter = call.dry_run()?;
        let source = match body {
            Some(body) => body,
            None => from_query(call)?,
        };
        let text = |pointer: &str| source.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let dry_run =
            source.get("dryRun").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let orphan_dependents = source.get("orphanDependents").and_then(Value::as_bool);
        let policy = text("/propagationPolicy");
        let path = Path::of("propagationPolicy");
        let propagation = match policy.as_deref() {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let detail =
                    format!("supported values: {}", known.map(|name| format!("\"{name}\"")).join(", "));
                let mut error = Error::not_supported::<&str>(&path, other, &[]);
                error.detail = detail;
                return Err(StatusError::invalid(OPTIONS, "", &[error]));
            }
        };
        if let (Some(policy), Some(_)) = (&policy, orphan_dependents) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            return Err(StatusError::invalid(OPTIONS, "", &[Error::invalid(&path, policy.as_str(), detail)]));
        }
        Ok(Self {
            grace_period_seconds: source.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation: propagation.or(match orphan_dependents {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => Some(Propagation::Background),
                None => None,
            }),
            orphan_dependents,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            dry_run: check_dry_run(dry_run)? || dry_run_parameter,
        })
    }

    /// Adds a uid precondition.
    #[must_use]
    pub fn only(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

fn from_query(call: &Call) -> Result<Value, StatusError> {
    let mut options = json!({});
    if let Some(seconds) = call.query.number("gracePeriodSeconds")? {
        options["gracePeriodSeconds"] = Value::from(seconds);
    }
    if let Some(policy) = call.query.get("propagationPolicy") {
        options["propagationPolicy"] = Value::from(policy);
    }
    if call.query.get("orphanDependents").is_some() {
        options["orphanDependents"] = Value::from(call.query.is_set("orphanDependents"));
    }
    Ok(options)
}

pub async fn delete(core: &Core, call: &Call, options: &DeleteOptions) -> Result<Reply, StatusError> {
    let resource = &*call.resource;
    let mut warnings = Vec::new();
    for _ in 0..super::update::ATTEMPTS {
        let live = find(core, call)?;
        let old = served(resource, &live);
        check_delete_preconditions(resource, &live, &old, options)?;
        let mut attributes = Attributes::new(call, Operation::Delete, options.dry_run);
        warnings.clear();
        admission::mutate(core, &mut attributes, None, Some(&old), &mut warnings).await?;
        admission::validate(core, &mut attributes, None, Some(&old), &mut warnings).await?;
        match remove(core, resource, &live, &old, options) {
            Ok(outcome) => {
                let warning = default_policy_warning(resource, options).map(str::to_owned);
                return Ok(reply_for(resource, outcome, options)
                    .warn(warnings)
                    .warn(warning.into_iter().collect()));
            }
            Err(WriteConflict { .. }) if options.resource_version.is_some() => break,
            Err(WriteConflict { .. }) => {}
        }
    }
    Err(StatusError::modified(resource.qualified_resource(), &call.name))
}

/// Checks the `preconditions` of a delete.
pub fn check_delete_preconditions(
    resource: &Resource,
    live: &Record,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    if let Some(uid) = options.uid.as_deref()
        && uid != object::uid(old)
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            object::uid(old)
        );
        return Err(StatusError::conflict(resource.qualified_kind(), live.name(), &why));
    }
    if let Some(version) = options.resource_version.as_deref()
        && check_preconditions(resource, live, version, "").is_err()
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            live.revision
        );
        return Err(StatusError::conflict(resource.qualified_kind(), live.name(), &why));
    }
    Ok(())
}

/// The outcome of a delete.
#[derive(Debug)]
pub enum Outcome {
    /// The object is removed; this was its last state.
    Removed(ReplyBody, String),
    /// The object is terminating.
    Terminating(ReplyBody),
}

fn reply_for(resource: &Resource, outcome: Outcome, options: &DeleteOptions) -> Reply {
    match outcome {
        Outcome::Terminating(reply) if options.orphan_dependents == Some(false) => Reply::new(202, reply),
        Outcome::Terminating(reply) => Reply::new(200, reply),
        Outcome::Removed(reply, _) if resource.returns_deleted => Reply::new(200, reply),
        Outcome::Removed(reply, uid) => {
            let name = match &reply {
                ReplyBody::Record(record) => record.name().to_owned(),
                ReplyBody::Object(object) | ReplyBody::Other(object) => object::name(object).to_owned(),
            };
            let mut details = json!({"name": name, "kind": &*resource.plural, "uid": uid});
            if !resource.group.is_empty() {
                details["group"] = Value::from(&*resource.group);
            }
            Reply::success(200, Some(details))
        }
    }
}

/// Removes an object, or marks it as terminating.
pub fn remove(
    core: &Core,
    resource: &Resource,
    live: &Arc<Record>,
    old: &Value,
    options: &DeleteOptions,
) -> Result<Outcome, WriteConflict> {
    let mut new = old.clone();
    let finalizers = finalizers_for(resource, old, options.propagation);
    object::set_finalizers(&mut new, &finalizers);
    let graceful = resource.is("", "pods");
    let seconds = strategy::grace_seconds(resource, old, options.grace_period_seconds);
    let namespace_waits = resource.is("", "namespaces") && has_content_finalizer(old);
    let at_once = finalizers.is_empty() && seconds == 0 && !namespace_waits;
    if !at_once || graceful {
        mark(core, old, &mut new, seconds);
        if resource.is("", "namespaces") {
            object::set_meta(&mut new, "deletionGracePeriodSeconds", None);
            object::map_mut(&mut new, "status").insert("phase".to_owned(), Value::from("Terminating"));
        }
        if crd::is_definition(resource) {
            crd::set_terminating(core, &mut new);
        }
    }
    let uid = object::uid(old).to_owned();
    if options.dry_run {
        let reply = ReplyBody::Object(new);
        return Ok(if at_once { Outcome::Removed(reply, uid) } else { Outcome::Terminating(reply) });
    }
    let mut live = Arc::clone(live);
    if new != *old {
        // A gracefully deleted object is marked as terminating before it is removed.
        let mut kept = convert::to_storage(resource, new.clone());
        live = core.store.update(resource.table, &live, &mut kept)?;
        object::set_meta(&mut new, "resourceVersion", object::meta(&kept, "resourceVersion").cloned());
        create::on_stored(core, resource, &live);
    }
    if !at_once {
        return Ok(Outcome::Terminating(ReplyBody::Record(live)));
    }
    let mut last = convert::to_storage(resource, new.clone());
    let record = core.store.delete(resource.table, &live, &mut last)?;
    crd::on_removed(core, resource, &record);
    Ok(Outcome::Removed(ReplyBody::Object(new), uid))
}

fn has_content_finalizer(namespace: &Value) -> bool {
    namespace.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Whether dependents are orphaned by default.
fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("batch", "jobs")
}

/// The warning for a Job that is deleted without a propagation policy.
fn default_policy_warning(resource: &Resource, options: &DeleteOptions) -> Option<&'static str> {
    (resource.is("batch", "jobs") && options.propagation.is_none()).then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
    )
}

/// The finalizers that the propagation policy requires.
fn finalizers_for<'a>(resource: &Resource, old: &'a Value, propagation: Option<Propagation>) -> Vec<&'a str> {
    let mut finalizers = object::finalizers(old);
    let undecided = !finalizers.iter().any(|name| matches!(*name, ORPHAN | FOREGROUND));
    let default = (undecided && orphans_by_default(resource)).then_some(Propagation::Orphan);
    if let Some(propagation) = propagation.or(default) {
        finalizers.retain(|name| !matches!(*name, ORPHAN | FOREGROUND));
        match propagation {
            Propagation::Orphan => finalizers.push(ORPHAN),
            Propagation::Foreground => finalizers.push(FOREGROUND),
            Propagation::Background => {}
        }
    }
    if crd::is_definition(resource)
        && !object::is_deleting(old)
        && !finalizers.contains(&CUSTOM_RESOURCE_CLEANUP)
    {
        finalizers.push(CUSTOM_RESOURCE_CLEANUP);
    }
    finalizers
}

/// Sets `deletionTimestamp` and grace period; a second request may only shorten it.
fn mark(core: &Core, old: &Value, new: &mut Value, seconds: i64) {
    let now = core.clock.now();
    if !object::is_deleting(old) {
        let at = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        object::set_meta(new, "deletionTimestamp", Some(Value::from(clock::time(at))));
        object::set_meta(new, "deletionGracePeriodSeconds", Some(Value::from(seconds)));
        if object::generation(old) > 0 {
            object::set_meta(new, "generation", Some(Value::from(object::generation(old).saturating_add(1))));
        }
        return;
    }
    let Some(current) = object::grace_period(old).filter(|current| seconds < *current) else { return };
    // The grace period counts from the first request.
    let end = object::meta_str(old, "deletionTimestamp").parse().unwrap_or(now);
    let at = end.checked_sub(SignedDuration::from_secs(current - seconds)).unwrap_or(end);
    object::set_meta(new, "deletionTimestamp", Some(Value::from(clock::time(at))));
    object::set_meta(new, "deletionGracePeriodSeconds", Some(Value::from(seconds)));
}

/// Deletes every selected object and returns them.
pub async fn delete_collection(
    core: &Core,
    call: &Call,
    options: &DeleteOptions,
) -> Result<list::Listing, StatusError> {
    let mut listing = list::list(core, call)?;
    let mut gone = Vec::with_capacity(listing.records.len());
    for record in &listing.records {
        let mut one = call.clone();
        record.namespace().clone_into(&mut one.namespace);
        record.name().clone_into(&mut one.name);
        match delete(core, &one, options).await {
            Ok(_) => gone.push(Arc::clone(record)),
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    listing.records = gone;
    Ok(listing)
}
