//! The selectors of a list, watch or `deletecollection`.

use super::Call;
use crate::registry::{Origin, Resource};
use crate::selector::{FieldSelector, FieldTarget, LabelSelector};
use crate::status_error::StatusError;
use crate::store::Record;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Selection {
    resource: Arc<Resource>,
    /// The key prefix of selected objects.
    pub prefix: String,
    name: Option<String>,
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    fields_in_metadata: bool,
}

impl Selection {
    /// Parses the selectors of a call; one that names an object selects only that.
    pub fn read(call: &Call) -> Result<Self, StatusError> {
        let resource = &*call.resource;
        let unable = |error: crate::selector::Error| StatusError::bad_request(error.to_string());
        let labels =
            LabelSelector::parse(call.query.get("labelSelector").unwrap_or_default()).map_err(unable)?;
        let text = call.query.get("fieldSelector").unwrap_or_default();
        let custom_fields =
            resource.custom().map(|custom| custom.selectable_fields.as_slice()).unwrap_or_default();
        let target = match resource.origin {
            Origin::Builtin(_) => {
                FieldTarget::BuiltIn { api_version: &resource.api_version, kind: &resource.kind }
            }
            Origin::Custom(_) => {
                FieldTarget::Custom { namespaced: resource.namespaced, selectable: custom_fields }
            }
        };
        let fields = FieldSelector::parse(text, target)
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let mut selection = Self {
            resource: Arc::clone(&call.resource),
            prefix: resource.prefix(&call.namespace),
            name: fields.exact("metadata.name").map(str::to_owned),
            namespace: fields.exact("metadata.namespace").map(str::to_owned),
            labels,
            fields_in_metadata: only_metadata(text),
            fields,
        };
        if !call.name.is_empty() {
            if selection.name.as_deref().is_some_and(|name| name != call.name) {
                let name = selection.name.as_deref().unwrap_or_default();
                let message =
                    format!("fieldSelector metadata.name={name} conflicts with the name in the path");
                return Err(StatusError::bad_request(message));
            }
            selection.name = Some(call.name.clone());
        }
        selection.narrow(resource);
        Ok(selection)
    }

    /// Whether only the namespace restricts the selection.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.name.is_none()
    }

    /// Whether the selectors match an object whose key has the prefix.
    pub fn matches_selectors(&self, record: &Record) -> bool {
        self.name.as_deref().is_none_or(|name| name == record.name())
            && self.namespace.as_deref().is_none_or(|namespace| namespace == record.namespace())
            && self.labels.matches_with(|key| record.label(key))
            && (self.fields_in_metadata
                || self.fields.matches_with(|field, value| {
                    record.has_field(field, value, || super::served(&self.resource, record))
                }))
    }

    /// Whether the key prefix and the selectors match.
    pub fn matches(&self, record: &Record) -> bool {
        record.key.starts_with(&self.prefix) && self.matches_selectors(record)
    }

    /// Extends the key prefix as far as the selectors allow, to reduce the scan.
    fn narrow(&mut self, resource: &Resource) {
        if resource.namespaced && self.prefix.is_empty() {
            let wanted = self.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            self.prefix = wanted.map_or_else(String::new, |namespace| format!("{namespace}/"));
        }
        let in_one_place = !resource.namespaced || !self.prefix.is_empty();
        if let Some(name) = self.name.as_deref().filter(|_| in_one_place) {
            self.prefix.push_str(name);
        }
    }
}

/// Whether a field selector consists only of equality on name and namespace.
fn only_metadata(text: &str) -> bool {
    text.split(',').filter(|term| !term.is_empty()).all(|term| {
        let field = term.split('=').next().unwrap_or_default();
        matches!(field, "metadata.name" | "metadata.namespace")
    })
}
