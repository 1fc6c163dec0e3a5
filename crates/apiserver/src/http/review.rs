//! Answers questions that are asked by creating an object: who am I, may I.

use super::negotiate::Wish;
use super::respond;
use crate::failure::Failure;
use crate::incoming::{self, Incoming};
use crate::kinds::{Resource, Verbs};
use crate::server::Core;
use crate::verbs::{Call, Done, Reply};
use axum::body::Body;
use http::Response;
use serde_json::{Value, json};

/// Why everything is allowed.
const NOT_ENFORCED: &str = "RBAC objects are stored and served by this server, but not enforced";

/// Whether objects of the resource are questions.
pub(super) fn is_question(resource: &Resource) -> bool {
    resource.verbs == Verbs::CreateOnly && !resource.is("", "bindings")
}

/// Answers a question.
pub(super) fn answer(
    core: &Core,
    call: &Call,
    body: &Incoming,
    wish: Wish,
) -> Result<Response<Body>, Failure> {
    let mut question = body.decode()?;
    incoming::check_kind(&call.resource, &mut question)?;
    let mut warnings = Vec::new();
    question["status"] = match &*call.resource.kind {
        "TokenReview" => token_status(core, &question),
        "SelfSubjectReview" => json!({"userInfo": call.user.to_value()}),
        "SelfSubjectRulesReview" => {
            warnings.push(NOT_ENFORCED.to_owned());
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
    let metadata = crate::object::meta_mut(&mut question);
    metadata.insert("creationTimestamp".to_owned(), Value::Null);
    Ok(respond::done(core, call, Done::new(201, Reply::Object(question)).warn(warnings), wish))
}

fn token_status(core: &Core, question: &Value) -> Value {
    let token = crate::object::str_at(question, "/spec/token");
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
