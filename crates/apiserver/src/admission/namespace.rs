//! `NamespaceLifecycle` admission: rejects creates in missing or terminating namespaces, and deletes of protected ones.

use super::{Operation, Review};
use crate::failure::Failure;
use crate::object;
use crate::server::Core;
use serde_json::Value;

/// Namespaces that `NamespaceLifecycle` protects from deletion.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn check(core: &Core, review: &Review<'_>, object: Option<&Value>) -> Result<(), Failure> {
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
