//! The `AdmissionReview` request that is sent to a webhook.

use crate::admission::{Attributes, Operation};
use crate::object;
use crate::registry::Subresource;
use serde_json::{Value, json};

/// An admission request with its objects.
#[derive(Debug)]
pub(super) struct AdmissionRequest<'a> {
    attributes: &'a Attributes<'a>,
    pub(super) object: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
    pub(super) uid: String,
}

impl<'a> AdmissionRequest<'a> {
    pub(super) fn new(
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
        uid: String,
    ) -> Self {
        Self { attributes, object, old, uid }
    }

    /// The request without its objects, as `matchConditions` see it.
    pub(super) fn request(&self) -> Value {
        let call = self.attributes.call;
        let resource = &*call.resource;
        let (group, version, kind) = call.subresource.and_then(Subresource::own_kind).unwrap_or((
            &resource.group,
            &resource.version,
            &resource.kind,
        ));
        let kind = json!({"group": group, "version": version, "kind": kind});
        let name =
            json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural});
        let mut request = json!({
            "uid": self.uid, "kind": kind, "requestKind": kind, "resource": name, "requestResource": name,
            "operation": self.attributes.operation.name(), "userInfo": call.user.to_value(),
            "dryRun": self.attributes.dry_run, "options": self.options(),
        });
        let own = self.object.or(self.old).map(object::name).unwrap_or_default();
        let own = if call.name.is_empty() { own } else { &call.name };
        for (field, value) in [
            ("name", own),
            ("namespace", call.namespace.as_str()),
            ("subResource", call.subresource_name()),
            ("requestSubResource", call.subresource_name()),
        ] {
            if !value.is_empty() {
                request[field] = Value::from(value);
            }
        }
        request
    }

    fn options(&self) -> Value {
        let kind = match self.attributes.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        let call = self.attributes.call;
        if self.attributes.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if self.attributes.operation != Operation::Delete {
            for field in ["fieldManager", "fieldValidation"] {
                if let Some(value) = call.query.get(field) {
                    options[field] = Value::from(value);
                }
            }
        }
        options
    }

    /// The request body.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let object = |object: Option<&Value>| object.map_or_else(|| "null".to_owned(), Value::to_string);
        let mut review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": self.request(),
        })
        .to_string();
        // The objects are already encoded; they are appended to `request`, which is the last field.
        review.truncate(review.len() - "}}".len());
        for (field, object) in [("object", object(self.object)), ("oldObject", object(self.old))] {
            review.push_str(",\"");
            review.push_str(field);
            review.push_str("\":");
            review.push_str(&object);
        }
        review.push_str("}}");
        review.into_bytes()
    }
}
