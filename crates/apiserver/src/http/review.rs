//! Reviews that are created and not stored: `SubjectAccessReview`, `TokenReview` and the like.

use super::negotiate::Negotiated;
use super::respond;
use crate::field::{Error, Path};
use crate::object;
use crate::registry::{Resource, Verbs};
use crate::request_body::{self, RequestBody};
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::verbs::{Call, Reply, ReplyBody};
use axum::body::Body;
use http::Response;
use serde_json::{Value, json};

/// `status.reason` of every authentication review.
const NOT_ENFORCED: &str = "RBAC objects are stored and served by this server, but not enforced";

pub(super) fn is_review(resource: &Resource) -> bool {
    resource.verbs == Verbs::CreateOnly && !resource.is("", "bindings")
}

pub(super) fn create(
    core: &Core,
    call: &Call,
    body: &RequestBody,
    negotiated: Negotiated,
) -> Result<Response<Body>, StatusError> {
    let mut review = request_body::decode_kind(core, &call.resource, body)?;
    let mut warnings = Vec::new();
    check(call, &review)?;
    review["status"] = match &*call.resource.kind {
        "TokenReview" => token_status(core, &review),
        "SelfSubjectReview" => {
            object::set_meta(&mut review, "creationTimestamp", Some(Value::from(core.clock.time())));
            json!({"userInfo": call.user.to_value()})
        }
        "SelfSubjectRulesReview" => {
            warnings.push(NOT_ENFORCED.to_owned());
            review["spec"] = json!({});
            json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            })
        }
        _ => {
            warnings.push(NOT_ENFORCED.to_owned());
            json!({"allowed": true, "reason": NOT_ENFORCED})
        }
    };
    Ok(respond::reply(core, call, Reply::new(201, ReplyBody::Object(review)).warn(warnings), negotiated))
}

/// Validates a review.
fn check(call: &Call, review: &Value) -> Result<(), StatusError> {
    let spec = Path::of("spec");
    let set = |field: &str| review["spec"].get(field).filter(|value| !value.is_null());
    let mut errors = Vec::new();
    match &*call.resource.kind {
        "TokenReview" if object::str_at(review, "/spec/token").is_empty() => {
            return Err(StatusError::bad_request("token is required for TokenReview in authentication"));
        }
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            match (set("resourceAttributes"), set("nonResourceAttributes")) {
                (None, None) => {
                    let detail =
                        "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                    errors.push(Error::invalid(&spec.field("resourceAttributes"), Value::Null, detail));
                }
                (Some(_), Some(path)) => {
                    // kube-apiserver prints the Go field names here.
                    let shown = json!({"Path": path["path"], "Verb": path["verb"]});
                    let detail = "cannot be specified in combination with resourceAttributes";
                    errors.push(Error::invalid(&spec.field("nonResourceAttributes"), shown, detail));
                }
                (Some(_), None) | (None, Some(_)) => {}
            }
            let about_others = &*call.resource.kind != "SelfSubjectAccessReview";
            if about_others && object::str_at(review, "/spec/user").is_empty() && set("groups").is_none() {
                let detail = "at least one of user or group must be specified";
                errors.push(Error::invalid(&spec.field("user"), "", detail));
            }
        }
        _ => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(QualifiedName { group: &call.resource.group, name: "" }, "", &errors))
}

fn token_status(core: &Core, review: &Value) -> Value {
    let token = object::str_at(review, "/spec/token");
    match core.tokens.user(token, &core.clock) {
        Some(user) => {
            let audiences = review.pointer("/spec/audiences").cloned();
            let mut status = json!({"authenticated": true, "user": user.to_value()});
            status["audiences"] = audiences.unwrap_or_else(|| json!(["https://kubernetes.default.svc"]));
            status
        }
        None => json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"}),
    }
}
