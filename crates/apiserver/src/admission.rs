//! Decides whether a write may happen, and completes it: built-in rules first, then webhooks.
//!
//! Mutating admission may change the object; validating admission sees it as it will be stored. Unlike the rules of a
//! kind ([`crate::strategy`]), admission may look at other objects.

mod namespace;
mod pod;
mod priority;
mod runtime;
mod storage;
pub mod webhook;

pub use webhook::Hooks;

use crate::failure::Failure;
use crate::kinds::{self, Subresource};
use crate::object;
use crate::server::Core;
use crate::verbs::Call;
use serde_json::Value;

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It makes an object.
    Create,
    /// It changes one.
    Update,
    /// It deletes one.
    Delete,
    /// It connects to one.
    Connect,
}

impl Operation {
    /// As reviews and rules name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A write that is being decided on.
#[derive(Debug)]
pub struct Review<'a> {
    /// The request.
    pub call: &'a Call,
    /// What it does.
    pub operation: Operation,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

impl<'a> Review<'a> {
    /// A review of a call.
    pub fn new(call: &'a Call, operation: Operation, dry_run: bool) -> Self {
        Self { call, operation, dry_run }
    }
}

/// Admits a request that is no object of the resource, such as a binding; with what to warn about.
pub async fn admit_request(
    core: &Core,
    call: &Call,
    mut request: Value,
) -> Result<(Value, Vec<String>), Failure> {
    let mut warnings = Vec::new();
    if let Some((group, version, kind)) = call.subresource.and_then(Subresource::own_kind)
        && let Some(fields) = request.as_object_mut()
    {
        fields.entry("kind").or_insert_with(|| Value::from(kind));
        fields.entry("apiVersion").or_insert_with(|| Value::from(kinds::api_version(group, version)));
    }
    let mut review = Review::new(call, Operation::Create, call.dry_run()?);
    mutate(core, &mut review, Some(&mut request), None, &mut warnings).await?;
    validate(core, &mut review, Some(&request), None, &mut warnings).await?;
    Ok((request, warnings))
}

/// Completes the object, or refuses it. Of a deletion there is only the old object.
pub async fn mutate(
    core: &Core,
    review: &mut Review<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    namespace::check(core, review, object.as_deref())?;
    if let Some(object) = object.as_deref_mut() {
        complete(core, review, object, old)?;
    }
    if !webhook::any(core, webhook::Phase::Mutating) {
        return Ok(());
    }
    let changed = webhook::mutate(core, review, object.as_deref_mut(), old, warnings).await?;
    if changed && let Some(object) = object {
        complete(core, review, object, old)?;
    }
    Ok(())
}

/// Refuses what must not be stored.
pub async fn validate(
    core: &Core,
    review: &mut Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    if let Some(object) = object {
        priority::check_default(core, review, object)?;
    }
    if webhook::any(core, webhook::Phase::Validating) {
        webhook::validate(core, review, object, old, warnings).await?;
    }
    Ok(())
}

/// What the server itself adds to objects, after it was filled in by the rules of the kind.
fn complete(
    core: &Core,
    review: &Review<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let call = review.call;
    if call.subresource.is_some() {
        return Ok(());
    }
    let resource = &*call.resource;
    let creates = review.operation == Operation::Create;
    if resource.is("", "pods") {
        if creates {
            pod::set_account(core, call, object)?;
        }
        priority::resolve(core, call, object, old)?;
        pod::tolerate_outages(object);
        if creates {
            runtime::resolve(core, call, object)?;
        }
    }
    if !creates {
        return Ok(());
    }
    if resource.is("", "nodes") {
        pod::taint_new_node(object);
    } else if resource.is("", "persistentvolumeclaims") {
        storage::protect(object, "kubernetes.io/pvc-protection");
        storage::default_class(core, object);
    } else if resource.is("", "persistentvolumes") {
        storage::protect(object, "kubernetes.io/pv-protection");
    }
    Ok(())
}

/// A refusal of an object of the call.
fn forbidden(call: &Call, object: &Value, why: &str) -> Failure {
    Failure::forbidden(call.resource.about(), object::name(object), why)
}
