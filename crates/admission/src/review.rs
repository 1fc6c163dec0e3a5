//! Answers the API server's question whether an object may be written (`AdmissionReview` of `admission.k8s.io/v1`).
//!
//! What is allowed is said elsewhere, by pure functions that return a [`Verdict`]; here is the form of question and
//! answer. Serving it over TLS is up to the process.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

/// What is about to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Something is done through it.
    Connect,
}

/// The question.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Names the question.
    pub uid: String,
    /// What is about to happen.
    pub operation: Operation,
    /// The object as it would be; null where it is deleted.
    #[serde(default)]
    pub object: Value,
    /// The object as it is; null where it is made.
    #[serde(default)]
    pub old_object: Value,
}

#[derive(Deserialize)]
struct Review {
    request: Request,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why not; the write is allowed where this is empty.
    pub errors: Vec<String>,
    /// What the author should know anyway.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Not allowed, for this reason.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { errors: vec![reason.into()], warnings: Vec::new() }
    }

    /// Whether the write may happen.
    pub fn is_allowed(&self) -> bool {
        self.errors.is_empty()
    }

    fn to_review(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": self.is_allowed()});
        if !self.is_allowed() {
            response["status"] = json!({
                "status": "Failure", "code": 403, "reason": "Forbidden", "message": self.errors.join("; "),
            });
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

/// Answers a review with what `judge` makes of its question; what is no review is a bad request.
pub(crate) async fn answer<F>(body: &[u8], judge: impl FnOnce(Request) -> F) -> Response
where
    F: Future<Output = Verdict>,
{
    let request = match serde_json::from_slice(body) {
        Ok(Review { request }) => request,
        Err(error) => {
            let message = format!("the body is no AdmissionReview with a request: {error}");
            return (StatusCode::BAD_REQUEST, message).into_response();
        }
    };
    let uid = request.uid.clone();
    let verdict = judge(request).await;
    ([(header::CONTENT_TYPE, "application/json")], verdict.to_review(&uid).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_form_that_the_server_expects() {
        let verdict = Verdict { errors: vec!["no".to_owned()], warnings: vec!["mind".to_owned()] };
        let review = verdict.to_review("u1");
        assert_eq!(review["response"]["uid"], "u1");
        assert_eq!(review["response"]["allowed"], false);
        assert_eq!(review["response"]["status"]["message"], "no");
        assert_eq!(review["response"]["warnings"], json!(["mind"]));
        assert_eq!(Verdict::default().to_review("u2")["response"], json!({"uid": "u2", "allowed": true}));
    }
}
