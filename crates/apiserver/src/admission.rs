//! The admission chain: built-in plugins first, then webhooks.
//!
//! Mutating admission may change the object; validating admission sees it as it will be stored. Unlike
//! [`crate::strategy`], admission may read other objects.

mod namespace;
mod pod;
mod priority;
mod runtime;
mod storage;
pub mod webhook;

pub use webhook::Webhooks;

use crate::object;
use crate::registry::{self, Subresource};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::verbs::Call;
use serde_json::Value;

/// `AdmissionRequest.operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// The name in `AdmissionReview` and in webhook rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a request in the admission chain.
#[derive(Debug)]
pub struct Attributes<'a> {
    pub call: &'a Call,
    pub operation: Operation,
    pub dry_run: bool,
}

impl<'a> Attributes<'a> {
    pub fn new(call: &'a Call, operation: Operation, dry_run: bool) -> Self {
        Self { call, operation, dry_run }
    }
}

/// Admits a body that is not an object of the resource, such as a Binding; returns warnings.
pub async fn admit_request(
    core: &Core,
    call: &Call,
    mut request: Value,
) -> Result<(Value, Vec<String>), StatusError> {
    let mut warnings = Vec::new();
    if let Some((group, version, kind)) = call.subresource.and_then(Subresource::own_kind)
        && let Some(fields) = request.as_object_mut()
    {
        fields.entry("kind").or_insert_with(|| Value::from(kind));
        fields.entry("apiVersion").or_insert_with(|| Value::from(registry::api_version(group, version)));
    }
    let mut attributes = Attributes::new(call, Operation::Create, call.dry_run()?);
    mutate(core, &mut attributes, Some(&mut request), None, &mut warnings).await?;
    validate(core, &mut attributes, Some(&request), None, &mut warnings).await?;
    Ok((request, warnings))
}

/// Runs mutating admission. For a delete there is only the old object.
pub async fn mutate(
    core: &Core,
    attributes: &mut Attributes<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    namespace::check(core, attributes, object.as_deref())?;
    if let Some(object) = object.as_deref_mut() {
        complete(core, attributes, object, old)?;
    }
    if !webhook::any(core, webhook::Phase::Mutating) {
        return Ok(());
    }
    let changed = webhook::mutate(core, attributes, object.as_deref_mut(), old, warnings).await?;
    if changed && let Some(object) = object {
        complete(core, attributes, object, old)?;
    }
    Ok(())
}

/// Runs validating admission.
pub async fn validate(
    core: &Core,
    attributes: &mut Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    if let Some(object) = object {
        priority::check_default(core, attributes, object)?;
    }
    if webhook::any(core, webhook::Phase::Validating) {
        webhook::validate(core, attributes, object, old, warnings).await?;
    }
    Ok(())
}

/// Runs the built-in mutating plugins, after defaulting by the strategy.
fn complete(
    core: &Core,
    attributes: &Attributes<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let call = attributes.call;
    if call.subresource.is_some() {
        return Ok(());
    }
    let resource = &*call.resource;
    let creates = attributes.operation == Operation::Create;
    if resource.is("", "pods") {
        if creates {
            pod::set_account(core, call, object)?;
        }
        priority::resolve(core, call, object, old)?;
        pod::add_default_tolerations(object);
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

fn forbidden(call: &Call, object: &Value, why: &str) -> StatusError {
    StatusError::forbidden(call.resource.qualified_resource(), object::name(object), why)
}
