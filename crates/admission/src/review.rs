//! Decodes `AdmissionReview` requests (`admission.k8s.io/v1`) and encodes the responses.
//!
//! The rules are pure functions elsewhere, which return a [`Verdict`].

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// `request` of a review.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub uid: String,
    pub operation: Operation,
    /// Null for DELETE.
    #[serde(default)]
    pub object: Value,
    /// Null for CREATE.
    #[serde(default)]
    pub old_object: Value,
}

#[derive(Deserialize)]
struct Review {
    request: Request,
}

/// The result of a validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The request is allowed where this is empty.
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Verdict {
    pub fn denied(reason: impl Into<String>) -> Self {
        Self { errors: vec![reason.into()], warnings: Vec::new() }
    }

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

/// Responds to a review with the verdict of `validate`; a body that is no review is a bad request.
pub(crate) async fn respond<F>(body: &[u8], validate: impl FnOnce(Request) -> F) -> Response
where
    F: Future<Output = Verdict>,
{
    let request = match serde_json::from_slice(body) {
        Ok(Review { request }) => request,
        Err(error) => {
            let message = format!("the body is not an AdmissionReview with a request: {error}");
            return (StatusCode::BAD_REQUEST, message).into_response();
        }
    };
    let uid = request.uid.clone();
    let verdict = validate(request).await;
    ([(header::CONTENT_TYPE, "application/json")], verdict.to_review(&uid).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_has_the_form_of_an_admission_review() {
        let verdict = Verdict { errors: vec!["no".to_owned()], warnings: vec!["careful".to_owned()] };
        let review = verdict.to_review("u1");
        assert_eq!(review["response"]["uid"], "u1");
        assert_eq!(review["response"]["allowed"], false);
        assert_eq!(review["response"]["status"]["message"], "no");
        assert_eq!(review["response"]["warnings"], json!(["careful"]));
        assert_eq!(Verdict::default().to_review("u2")["response"], json!({"uid": "u2", "allowed": true}));
    }
}
