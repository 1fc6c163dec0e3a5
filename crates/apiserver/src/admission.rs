//! Decides whether a write may happen, and completes it: built-in rules first, then webhooks.
//!
//! Mutating admission may change the object; validating admission sees it as it will be stored.

use crate::failure::Failure;
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

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Completes the object, or refuses it. Of a deletion there is only the old object.
#[expect(clippy::unused_async, reason = "webhooks are called here")]
pub async fn mutate(
    core: &Core,
    review: &mut Review<'_>,
    object: Option<&mut Value>,
    _old: Option<&Value>,
    _warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    check_namespace(core, review, object.as_deref())
}

/// Refuses what must not be stored.
#[expect(clippy::unused_async, reason = "webhooks are called here")]
pub async fn validate(
    _core: &Core,
    _review: &mut Review<'_>,
    _object: Option<&Value>,
    _old: Option<&Value>,
    _warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    Ok(())
}

/// Nothing is made in a namespace that is not there or on its way out, and some namespaces stay.
fn check_namespace(core: &Core, review: &Review<'_>, object: Option<&Value>) -> Result<(), Failure> {
    let call = review.call;
    let resource = &*call.resource;
    if review.operation == Operation::Delete
        && resource.is("", "namespaces")
        && IMMORTAL.contains(&&*call.name)
    {
        return Err(Failure::forbidden(resource.about(), &call.name, "this namespace may not be deleted"));
    }
    if review.operation != Operation::Create || !resource.namespaced {
        return Ok(());
    }
    let namespaces = core.builtin("", "namespaces");
    let Some(namespace) = core.store.get(namespaces.table, &call.namespace) else {
        return Err(Failure::not_found(namespaces.about(), &call.namespace));
    };
    if !namespace.is_going() {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        call.namespace
    );
    let cause = format!("namespace {} is being terminated", call.namespace);
    let name = object.map(object::name).unwrap_or_default();
    Err(Failure::forbidden(resource.about(), name, &why).cause(
        "NamespaceTerminating",
        &cause,
        "metadata.namespace",
    ))
}
