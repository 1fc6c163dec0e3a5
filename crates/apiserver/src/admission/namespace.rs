//! `NamespaceLifecycle` admission: rejects creates in missing or terminating namespaces, and deletes of protected ones.

use super::{Attributes, Operation};
use crate::object;
use crate::server::Core;
use crate::status_error::StatusError;
use serde_json::Value;

/// Namespaces that `NamespaceLifecycle` protects from deletion.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn check(
    core: &Core,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<(), StatusError> {
    let call = attributes.call;
    let resource = &*call.resource;
    if attributes.operation == Operation::Delete
        && resource.is("", "namespaces")
        && PROTECTED.contains(&&*call.name)
    {
        return Err(StatusError::forbidden(
            resource.qualified_resource(),
            &call.name,
            "this namespace may not be deleted",
        ));
    }
    if attributes.operation != Operation::Create || !resource.namespaced {
        return Ok(());
    }
    let namespaces = core.builtin("", "namespaces");
    let Some(namespace) = core.store.get(namespaces.table, &call.namespace) else {
        return Err(StatusError::not_found(namespaces.qualified_resource(), &call.namespace));
    };
    if !namespace.is_terminating() {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        call.namespace
    );
    let cause = format!("namespace {} is being terminated", call.namespace);
    let name = object.map(object::name).unwrap_or_default();
    Err(StatusError::forbidden(resource.qualified_resource(), name, &why).cause(
        "NamespaceTerminating",
        &cause,
        "metadata.namespace",
    ))
}
