//! Reviews that are created and not stored: SubjectAccessReview, TokenReview and the like.

use super::negotiate::Wish;
use super::respond;
use crate::failure::{About, Failure};
use crate::field::{Error, Path};
use crate::incoming::{self, Incoming};
use crate::kinds::{Resource, Verbs};
use crate::object;
use crate::server::Core;
use crate::verbs::{Call, Done, Reply};
use axum::body::Body;
use http::Response;
use serde_json::{Value, json};

/// `status.reason` of every access review.
const NOT_ENFORCED: &str = "RBAC objects are stored and served by this server, but not enforced";

pub(super) fn is_question(resource: &Resource) -> bool {
    resource.verbs == Verbs::CreateOnly && !resource.is("", "bindings")
}

pub(super) fn answer(
    core: &Core,
    call: &Call,
    body: &Incoming,
    wish: Wish,
) -> Result<Response<Body>, Failure> {
    let mut question = incoming::admit_kind(core, &call.resource, body)?;
    let mut warnings = Vec::new();
    check(call, &question)?;
    question["status"] = match &*call.resource.kind {
        "TokenReview" => token_status(core, &question),
        "SelfSubjectReview" => {
            object::set_meta(&mut question, "creationTimestamp", Some(Value::from(core.clock.time())));
            json!({"userInfo": call.user.to_value()})
        }
        "SelfSubjectRulesReview" => {
            warnings.push(NOT_ENFORCED.to_owned());
            question["spec"] = json!({});
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
    Ok(respond::done(core, call, Done::new(201, Reply::Object(question)).warn(warnings), wish))
}

/// Validates a review.
fn check(call: &Call, question: &Value) -> Result<(), Failure> {
    let spec = Path::of("spec");
    let set = |field: &str| question["spec"].get(field).filter(|value| !value.is_null());
    let mut errors = Vec::new();
    match &*call.resource.kind {
        "TokenReview" if object::str_at(question, "/spec/token").is_empty() => {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
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
            if about_others && object::str_at(question, "/spec/user").is_empty() && set("groups").is_none() {
                let detail = "at least one of user or group must be specified";
                errors.push(Error::invalid(&spec.field("user"), "", detail));
            }
        }
        _ => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(About { group: &call.resource.group, what: "" }, "", &errors))
}

fn token_status(core: &Core, question: &Value) -> Value {
    let token = object::str_at(question, "/spec/token");
    match core.tokens.user(token, &core.clock) {
        Some(user) => {
            let audiences = question.pointer("/spec/audiences").cloned();
            let mut status = json!({"authenticated": true, "user": user.to_value()});
            status["audiences"] = audiences.unwrap_or_else(|| json!(["https://kubernetes.default.svc"]));
            status
        }
        None => json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"}),
    }
}
