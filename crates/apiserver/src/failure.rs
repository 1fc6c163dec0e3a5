//! What a client is told when a request fails: the `Status` object, with the codes, reasons and messages of Kubernetes.

use crate::field;
use serde::Serialize;
use std::fmt;

/// A refused or failed request. It becomes the response's status code and its body.
#[derive(Clone, Debug)]
pub struct Failure(Box<Body>);

/// The body of a failed request, field for field a `metav1.Status`.
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
    /// What the client should know besides; not part of the body.
    #[serde(skip)]
    warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<String>,
}

/// Which object the failure is about, and its causes.
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
    causes: Vec<Cause>,
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

/// One cause of a failure.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// A word for programs; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The field it is about; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The resource (plural) or kind a failure is about, with its API group.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource, or the kind in validation failures.
    pub what: &'a str,
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

impl Failure {
    /// A failure with a code, a reason and a message; `reason` may be empty.
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

    /// The object does not exist.
    pub fn not_found(about: About<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{about} {} not found", field::quote(name))).on(about, name)
    }

    /// No resource is served at this path.
    pub fn unknown_path() -> Self {
        let mut failure = Self::new(404, "NotFound", "the server could not find the requested resource");
        failure.0.details = Some(Details::default());
        failure
    }

    /// No such method is served at this path.
    pub fn unknown_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut failure = Self::new(405, "MethodNotAllowed", message);
        failure.0.details = Some(Details::default());
        failure
    }

    /// No patch of this media type is taken.
    pub fn unknown_patch() -> Self {
        let mut failure = Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        failure.0.details = Some(Details::default());
        failure
    }

    /// The patch does not fit the object.
    pub fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut failure = Self::new(422, "Invalid", message);
        failure.0.details = Some(Details::default());
        failure
    }

    /// The name is taken.
    pub fn already_exists(about: About<'_>, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{about} {} already exists", field::quote(name)))
            .on(about, name)
    }

    /// The object is in the way of the request, for the reason given.
    pub fn conflict(about: About<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {about} {}: {why}", field::quote(name));
        Self::new(409, "Conflict", message).on(about, name)
    }

    /// The object changed since the client read it.
    pub fn modified(about: About<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(about, name, why)
    }

    /// The request may not be made.
    pub fn forbidden(about: About<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{about} is forbidden: {why}")
        } else {
            format!("{about} {} is forbidden: {why}", field::quote(name))
        };
        Self::new(403, "Forbidden", message).on(about, name)
    }

    /// Fields of the object are wrong; `about` names the kind.
    pub fn invalid(about: About<'_>, name: &str, errors: &[field::Error]) -> Self {
        let mut message = format!("{about} {} is invalid", field::quote(name));
        if !errors.is_empty() {
            message = format!("{message}: {}", field::aggregate(errors));
        }
        let causes = errors.iter().map(|error| Cause {
            reason: error.reason.cause().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        });
        Self::new(422, "Invalid", message).on(about, name).causes(causes)
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// No version that the client asked about is kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The body's format is not read here.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Something went wrong inside.
    pub fn internal(why: impl fmt::Display) -> Self {
        let message = why.to_string();
        let cause = Cause { reason: String::new(), message: message.clone(), field: String::new() };
        let mut failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.0.details = Some(Details { causes: vec![cause], ..Details::default() });
        failure
    }

    /// Too much is asked at once; the client may try again after `seconds`.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(seconds)
    }

    /// Names the object the failure is about.
    #[must_use]
    pub fn on(mut self, about: About<'_>, name: &str) -> Self {
        let details = self.0.details.get_or_insert_default();
        name.clone_into(&mut details.name);
        about.group.clone_into(&mut details.group);
        about.what.clone_into(&mut details.kind);
        self
    }

    /// Puts warnings before those it has.
    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.0.warnings.splice(0..0, warnings);
        self
    }

    /// What the client should know besides.
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// Adds causes.
    #[must_use]
    pub fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        self.0.details.get_or_insert_default().causes.extend(causes);
        self
    }

    /// Adds one cause.
    #[must_use]
    pub fn cause(self, reason: &str, message: &str, field: &str) -> Self {
        self.causes([Cause {
            reason: reason.to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        }])
    }

    /// Adds when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.details.get_or_insert_default().retry_after_seconds = Some(seconds);
        self
    }

    /// Adds a token with which a client may go on all the same.
    #[must_use]
    pub fn continue_with(mut self, token: String) -> Self {
        self.0.metadata.continue_token = Some(token);
        self
    }

    /// The status code of the response.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The reason, a word for programs.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// The message, a sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// When to try again, in seconds.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.0.details.as_ref().and_then(|details| details.retry_after_seconds)
    }

    /// The body of the response.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.0).expect("a status has only string keys")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_reads_as_kubernetes_words_it() {
        let failure = Failure::not_found(About { group: "apps", what: "deployments" }, "web");
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
