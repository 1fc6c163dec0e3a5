//! Decodes `AdmissionReview` requests (`admission.k8s.io/v1`) and encodes the responses.
//!
//! The rules are pure functions elsewhere, which return a [`Verdict`] or, where they change the object, an [`Answer`].
//! A caller is untrusted: bodies are limited in size and in the time they may take.

use crate::patch;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{self, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Limit of a request body, as in controller-runtime: an object and its old version have up to 3 MiB each.
pub const BODY_BYTES_MAX: usize = 7 << 20;
/// How long the body of a request may take. The API server waits for a webhook no longer than 30 seconds.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bodies above this are reviewed on a thread of their own, so that they delay no other request.
const LARGE_BODY_BYTES: usize = 256 << 10;
/// Large bodies that one webhook reviews at a time: decoded, they take many times their size.
const LARGE_BODIES_MAX: usize = 2;

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
    /// Empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
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

/// Why a request is refused, which decides on the status code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// A rule forbids the object.
    #[default]
    Rule,
    /// The object cannot be decoded.
    Undecodable,
    /// An object that the rule needs does not exist.
    NotFound,
    /// The rule could not be applied.
    Unavailable,
}

impl Cause {
    pub fn code(self) -> u16 {
        match self {
            Self::Rule => 403,
            Self::Undecodable => 400,
            Self::NotFound => 404,
            Self::Unavailable => 500,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Rule => "Forbidden",
            Self::Undecodable => "BadRequest",
            Self::NotFound => "NotFound",
            Self::Unavailable => "InternalError",
        }
    }
}

/// The result of a validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The request is allowed where this is empty.
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    /// Meaningful where there are errors.
    pub cause: Cause,
}

impl Verdict {
    pub fn denied(reason: impl Into<String>) -> Self {
        Self::refused(Cause::Rule, reason)
    }

    pub fn refused(cause: Cause, reason: impl Into<String>) -> Self {
        Self { errors: vec![reason.into()], warnings: Vec::new(), cause }
    }

    pub fn is_allowed(&self) -> bool {
        self.errors.is_empty()
    }
}

/// A verdict, and the object as the webhook changes it.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub verdict: Verdict,
    /// RFC 6902; `None` where nothing changes.
    pub patch: Option<Value>,
}

impl Answer {
    /// Allows a changed object.
    pub fn changed(old: &Value, new: &Value) -> Self {
        let patch = patch::difference(old, new);
        Self { verdict: Verdict::default(), patch: (!patch.is_empty()).then_some(Value::Array(patch)) }
    }

    fn to_review(&self, uid: &str) -> Value {
        let Self { verdict, patch } = self;
        let mut response = json!({"uid": uid, "allowed": verdict.is_allowed()});
        if !verdict.is_allowed() {
            kai_object::set(
                &mut response,
                &["status"],
                json!({
                    "status": "Failure", "code": verdict.cause.code(), "reason": verdict.cause.reason(),
                    "message": verdict.errors.join("; "),
                }),
            );
        }
        if !verdict.warnings.is_empty() {
            kai_object::set(&mut response, &["warnings"], json!(verdict.warnings));
        }
        if let Some(patch) = patch {
            kai_object::set(&mut response, &["patchType"], Value::from("JSONPatch"));
            kai_object::set(&mut response, &["patch"], Value::from(STANDARD.encode(patch.to_string())));
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, patch: None }
    }
}

/// Decodes an object of a request; the verdict says what is wrong with it.
pub fn decode<T: DeserializeOwned>(kind: &str, object: &Value) -> Result<T, Verdict> {
    // Few objects have nulls; the others are not copied.
    let decoded =
        if has_null(object) { T::deserialize(without_nulls(object)) } else { T::deserialize(object) };
    decoded.map_err(|error| {
        Verdict::refused(Cause::Undecodable, format!("the {kind} cannot be decoded: {error}"))
    })
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The value without fields that are null, which are the same as absent ones in Kubernetes.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The object with a value for a field that is missing in the elements of a list. That it is required is up to the
/// definition of the kind; a webhook that is called without one decides by the empty value, as KAI's.
pub(crate) fn with_default(object: &Value, list: &str, field: &str) -> Value {
    let mut object = object.clone();
    for element in object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(element) = element.as_object_mut() {
            element.entry(field).or_insert_with(|| Value::from(""));
        }
    }
    object
}

/// Refuses fields with a text that is no duration; absent ones are valid.
pub fn check_durations<'a>(
    fields: impl IntoIterator<Item = (&'static str, &'a Option<String>)>,
) -> Result<(), Verdict> {
    for (field, text) in fields.into_iter().filter_map(|(field, text)| Some((field, text.as_ref()?))) {
        if kai_units::duration::parse_go(text).is_err() {
            let problem = format!(
                "`spec.{field}` is `{text}`, which is no duration; hint: such as `90s`, `5m` or `1h30m`"
            );
            return Err(Verdict::refused(Cause::Undecodable, problem));
        }
    }
    Ok(())
}

/// Serves one webhook.
pub(crate) fn route<H, F, A>(path: &str, review: H) -> Router
where
    H: Fn(Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = A> + Send,
    A: Into<Answer>,
{
    let large = Arc::new(Semaphore::new(LARGE_BODIES_MAX));
    let handler = move |request: http::Request<Body>| async move {
        match read(request).await {
            Ok(body) if body.len() > LARGE_BODY_BYTES => respond_apart(body, review, large).await,
            Ok(body) => respond(&body, review).await,
            Err(refused) => refused,
        }
    };
    Router::new().route(path, post(handler))
}

async fn read(request: http::Request<Body>) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(request.into_body(), BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => {
            let message =
                format!("the body cannot be read, or is larger than {BODY_BYTES_MAX} bytes: {error}");
            Err((StatusCode::PAYLOAD_TOO_LARGE, message).into_response())
        }
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long").into_response()),
    }
}

/// Responds on a thread of its own.
async fn respond_apart<H, F, A>(body: Bytes, review: H, large: Arc<Semaphore>) -> Response
where
    H: FnOnce(Request) -> F + Send + 'static,
    F: Future<Output = A>,
    A: Into<Answer>,
{
    // An error would mean that the semaphore is closed, which it never is.
    let permit = large.acquire_owned().await.ok();
    let runtime = tokio::runtime::Handle::current();
    let responded = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        runtime.block_on(respond(&body, review))
    });
    responded.await.unwrap_or_else(|_| {
        (StatusCode::INTERNAL_SERVER_ERROR, "the review of this object failed").into_response()
    })
}

/// Responds to a review; a body that is no review is a bad request.
async fn respond<F, A>(body: &[u8], review: impl FnOnce(Request) -> F) -> Response
where
    F: Future<Output = A>,
    A: Into<Answer>,
{
    let request = match serde_json::from_slice(body) {
        Ok(Review { request }) => request,
        Err(error) => {
            let message = format!("the body is not an AdmissionReview with a request: {error}");
            return (StatusCode::BAD_REQUEST, message).into_response();
        }
    };
    let uid = request.uid.clone();
    let answer = review(request).await.into();
    ([(header::CONTENT_TYPE, "application/json")], answer.to_review(&uid).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use tower::ServiceExt as _;

    #[test]
    fn response_has_the_form_of_an_admission_review() {
        let verdict = Verdict { warnings: vec!["careful".to_owned()], ..Verdict::denied("no") };
        let review = Answer::from(verdict).to_review("u1");
        assert_eq!(review["response"]["uid"], "u1");
        assert_eq!(review["response"]["allowed"], false);
        assert_eq!(review["response"]["status"]["code"], 403);
        assert_eq!(review["response"]["status"]["message"], "no");
        assert_eq!(review["response"]["warnings"], json!(["careful"]));
        assert_eq!(Answer::default().to_review("u2")["response"], json!({"uid": "u2", "allowed": true}));
    }

    fn echo() -> Router {
        route("/", async |_| Verdict::default())
    }

    #[tokio::test]
    async fn body_above_the_limit_is_refused() {
        let body = Body::from(vec![b' '; BODY_BYTES_MAX + 1]);
        let response = echo().oneshot(http::Request::post("/").body(body).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_never_finishes_its_body_times_out() {
        let start = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
        let body = Body::from_stream(start.chain(futures::stream::pending()));
        let response = echo().oneshot(http::Request::post("/").body(body).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn body_that_is_no_review_is_a_bad_request() {
        let nested = "[".repeat(100_000);
        for body in ["", "{}", "{\"request\": 1}", &nested] {
            let request = http::Request::post("/").body(Body::from(body.to_owned())).unwrap();
            assert_eq!(echo().oneshot(request).await.unwrap().status(), StatusCode::BAD_REQUEST);
        }
    }

    #[tokio::test]
    async fn large_body_delays_no_other_request() {
        let (answered, on_answered) = std::sync::mpsc::channel();
        let on_answered = Arc::new(std::sync::Mutex::new(on_answered));
        let router = route("/", move |request: Request| {
            // The review of the large object ends only after the small one was answered.
            let is_large = request.object.as_str().is_some_and(|text| text.len() > LARGE_BODY_BYTES);
            let waited = !is_large || on_answered.lock().unwrap().recv_timeout(BODY_TIMEOUT).is_ok();
            std::future::ready(if waited { Verdict::default() } else { Verdict::denied("blocked") })
        });
        let post = |object: Value| {
            let review = json!({"request": {"uid": "u", "operation": "CREATE", "object": object}});
            router.clone().oneshot(http::Request::post("/").body(Body::from(review.to_string())).unwrap())
        };
        let small = async {
            assert_eq!(post(json!({})).await.unwrap().status(), StatusCode::OK);
            answered.send(()).unwrap();
        };
        let (large, ()) = tokio::join!(post(json!("x".repeat(LARGE_BODY_BYTES + 1))), small);
        let body = to_bytes(large.unwrap().into_body(), BODY_BYTES_MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["response"]["allowed"], true, "{body}");
    }
}
