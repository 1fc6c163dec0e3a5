//! API errors: `metav1.Status` with the codes, reasons and messages of Kubernetes.

use crate::field;
use serde::Serialize;
use std::fmt;

/// A failed request. It becomes the status code and the body of the response.
#[derive(Clone, Debug)]
pub struct StatusError(Box<Body>);

/// The response body, field for field a `metav1.Status`.
#[derive(Clone, Debug, Serialize)]
struct Body {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: ListMeta,
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
    /// Warning headers; not part of the body.
    #[serde(skip)]
    warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<String>,
}

/// `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, Serialize)]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<StatusCause>,
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The group and resource (plural), or group and kind in validation errors, as messages name them.
#[derive(Clone, Copy, Debug)]
pub struct QualifiedName<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource, or the kind.
    pub name: &'a str,
}

impl fmt::Display for QualifiedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

impl StatusError {
    /// An error with a code, a reason and a message; `reason` may be empty.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Body {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta::default(),
            status: "Failure",
            message: message.into(),
            reason,
            details: None,
            code,
            warnings: Vec::new(),
        }))
    }

    pub fn not_found(about: QualifiedName<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{about} {} not found", field::quote(name))).on(about, name)
    }

    /// No resource is served at this path.
    pub fn unknown_path() -> Self {
        let mut failure = Self::new(404, "NotFound", "the server could not find the requested resource");
        failure.0.details = Some(Details::default());
        failure
    }

    /// The method is not served at this path.
    pub fn unknown_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut failure = Self::new(405, "MethodNotAllowed", message);
        failure.0.details = Some(Details::default());
        failure
    }

    /// The media type of the patch is not supported.
    pub fn unknown_patch() -> Self {
        let mut failure = Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        failure.0.details = Some(Details::default());
        failure
    }

    /// The patch cannot be applied to the object.
    pub fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut failure = Self::new(422, "Invalid", message);
        failure.0.details = Some(Details::default());
        failure
    }

    pub fn already_exists(about: QualifiedName<'_>, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{about} {} already exists", field::quote(name)))
            .on(about, name)
    }

    /// The request conflicts with the state of the object.
    pub fn conflict(about: QualifiedName<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {about} {}: {why}", field::quote(name));
        Self::new(409, "Conflict", message).on(about, name)
    }

    /// The object has a newer `resourceVersion`.
    pub fn modified(about: QualifiedName<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(about, name, why)
    }

    pub fn forbidden(about: QualifiedName<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{about} is forbidden: {why}")
        } else {
            format!("{about} {} is forbidden: {why}", field::quote(name))
        };
        Self::new(403, "Forbidden", message).on(about, name)
    }

    /// Validation failed; `about` names the kind.
    pub fn invalid(about: QualifiedName<'_>, name: &str, errors: &[field::Error]) -> Self {
        let mut message = format!("{about} {} is invalid", field::quote(name));
        if !errors.is_empty() {
            message = format!("{message}: {}", field::aggregate(errors));
        }
        let causes = errors.iter().map(|error| StatusCause {
            reason: error.reason.cause().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        });
        Self::new(422, "Invalid", message).on(about, name).causes(causes)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The requested `resourceVersion` is compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The media type of the body is not supported.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn internal(why: impl fmt::Display) -> Self {
        let message = why.to_string();
        let cause = StatusCause { reason: String::new(), message: message.clone(), field: String::new() };
        let mut failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.0.details = Some(Details { causes: vec![cause], ..Details::default() });
        failure
    }

    /// The client may retry after `seconds`.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(seconds)
    }

    /// Sets the object in `details`.
    #[must_use]
    pub fn on(mut self, about: QualifiedName<'_>, name: &str) -> Self {
        let details = self.0.details.get_or_insert_default();
        name.clone_into(&mut details.name);
        about.group.clone_into(&mut details.group);
        about.name.clone_into(&mut details.kind);
        self
    }

    /// Prepends warnings.
    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.0.warnings.splice(0..0, warnings);
        self
    }

    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    #[must_use]
    pub fn causes(mut self, causes: impl IntoIterator<Item = StatusCause>) -> Self {
        self.0.details.get_or_insert_default().causes.extend(causes);
        self
    }

    #[must_use]
    pub fn cause(self, reason: &str, message: &str, field: &str) -> Self {
        self.causes([StatusCause {
            reason: reason.to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        }])
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.details.get_or_insert_default().retry_after_seconds = Some(seconds);
        self
    }

    /// Adds a `continue` token with which the client may proceed.
    #[must_use]
    pub fn continue_with(mut self, token: String) -> Self {
        self.0.metadata.continue_token = Some(token);
        self
    }

    pub fn code(&self) -> u16 {
        self.0.code
    }

    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.0.details.as_ref().and_then(|details| details.retry_after_seconds)
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.0).expect("a status has only string keys")
    }
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for StatusError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_status_equals_kubernetes() {
        let failure = StatusError::not_found(QualifiedName { group: "apps", name: "deployments" }, "web");
        let body: serde_json::Value = serde_json::from_slice(&failure.to_json()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "deployments.apps \"web\" not found", "reason": "NotFound",
                "details": {"name": "web", "group": "apps", "kind": "deployments"}, "code": 404
            })
        );
    }
}
