//! Client of the Kubernetes API: typed and dynamic requests, rate limit, circuit breaker and fencing.
//!
//! Typed methods take the kind from the type. An object that does not deserialise is an error of that object
//! ([`Error::InvalidObject`]); in lists it is reported beside the others. Dynamic methods (`*_dynamic`) are for owners of
//! unknown kinds and for objects that are passed through untouched. `metadata.managedFields` is never kept.

pub(crate) mod unmanaged;

use crate::circuit_breaker::CircuitBreaker;
use crate::denial::{Denials, Permission};
use crate::invalid::{InvalidObject, InvalidObjects};
use crate::kind::{ApiObject, Key, ResourceKind};
use crate::leader_election::Leadership;
use crate::merge_patch::merge_patch;
use crate::rate_limit::RateLimiter;
use crate::url;
use crate::watch::shared::SharedWatches;
use crate::watch_value::WatchValue;
use futures::{AsyncBufRead, Stream, StreamExt as _};
use http::header::ACCEPT;
use http::{HeaderValue, Request};
use kai_object as object;
use kube::core::WatchEvent;
use prometheus::Registry;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use unmanaged::Unmanaged;

pub(crate) const JSON: &str = "application/json";
/// How long a response may take; a watch may stay open for longer once it has begun.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// The cause in the status with which the server rejects an eviction (429) because of a disruption budget.
pub const DISRUPTION_BUDGET_CAUSE: &str = "DisruptionBudget";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{method} {path}")]
    Request {
        method: String,
        path: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{path}: no response within the time limit")]
    Timeout { path: String },
    #[error("{path} was not written: the lease is lost")]
    NotLeader { path: String },
    #[error("`{path}` is not a valid path of a request")]
    InvalidPath { path: String },
    #[error("{path} has no field `{field}`")]
    Malformed { path: String, field: &'static str },
    /// The server has the object, but its content does not fit the type.
    #[error("{path} is not a valid {kind}")]
    InvalidObject {
        path: String,
        kind: String,
        object: Box<InvalidObject>,
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// The HTTP status of the response; 0 when there was none.
    pub fn code(&self) -> u16 {
        let Self::Request { source, .. } = self else { return 0 };
        // `kube::Error` is non-exhaustive: everything but a status counts as no response.
        if let kube::Error::Api(status) = &**source { status.code } else { 0 }
    }

    /// The message of the server, or why there was no response.
    pub fn message(&self) -> String {
        match self {
            Self::Request { source, .. } => {
                // `kube::Error` is non-exhaustive: every other variant is displayed.
                if let kube::Error::Api(status) = &**source
                    && !status.message.is_empty()
                {
                    status.message.clone()
                } else {
                    source.to_string()
                }
            }
            Self::InvalidObject { source, .. } => format!("{self}: {source}"),
            Self::Timeout { .. }
            | Self::NotLeader { .. }
            | Self::InvalidPath { .. }
            | Self::Malformed { .. } => self.to_string(),
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Whether the object exists already, or was changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether the status lists a cause with this reason.
    pub fn has_cause(&self, reason: &str) -> bool {
        let Self::Request { source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        let details = status.details.iter();
        details.flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
    }

    /// Whether the same request may succeed later: the server is overloaded, failing or unreachable.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Request { .. } => matches!(self.code(), 0 | 408 | 429 | 500..=599),
            Self::Timeout { .. } => true,
            Self::NotLeader { .. }
            | Self::InvalidPath { .. }
            | Self::Malformed { .. }
            | Self::InvalidObject { .. } => false,
        }
    }

    /// Whether a role lacks the rule that the request needs. Other rejections with 403, such as by a quota, are not meant.
    pub fn is_permission_denied(&self) -> bool {
        self.code() == 403 && Permission::of_denial(&self.message()).is_some()
    }

    /// Whether an admission webhook failed or refused the request with a server error: the server is healthy, and the
    /// same object may fail for ever.
    pub fn is_webhook_failure(&self) -> bool {
        (500..=599).contains(&self.code()) && self.message().contains("webhook")
    }

    /// `retryAfterSeconds` of the status.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Request { source, .. } = self else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// Whether the failure speaks against the server's health; a rejection by a disruption budget or by a webhook does not.
    fn opens_circuit(&self) -> bool {
        self.is_transient() && !self.has_cause(DISRUPTION_BUDGET_CAUSE) && !self.is_webhook_failure()
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which part of an object a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The main resource.
    Main,
    /// The subresource `status`.
    Status,
}

impl Part {
    fn suffix(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "/status",
        }
    }
}

/// `DeleteOptions` of `meta/v1`, as far as they are used.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The uid precondition.
    pub uid: Option<String>,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<&'static str>,
}

impl DeleteOptions {
    /// Deletes exactly this object, with its own grace period.
    pub fn of(object: &Value) -> Self {
        Self { uid: Some(object::uid(object).to_owned()), ..Self::default() }
    }

    pub fn of_typed<T: kube::Resource>(object: &T) -> Self {
        Self { uid: object.meta().uid.clone(), ..Self::default() }
    }

    /// With a grace period of zero: without waiting for the kubelet.
    #[must_use]
    pub fn immediately(mut self) -> Self {
        self.grace_seconds = Some(0);
        self
    }

    /// Sets the propagation policy for dependents.
    #[must_use]
    pub fn propagate(mut self, policy: &'static str) -> Self {
        self.propagation = Some(policy);
        self
    }

    fn to_value(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(uid) = &self.uid {
            kai_object::set(&mut options, &["preconditions"], json!({"uid": uid}));
        }
        if let Some(seconds) = self.grace_seconds {
            kai_object::set(&mut options, &["gracePeriodSeconds"], Value::from(seconds));
        }
        if let Some(policy) = self.propagation {
            kai_object::set(&mut options, &["propagationPolicy"], Value::from(policy));
        }
        options
    }
}

/// A list of JSON objects and its resource version.
#[derive(Debug)]
pub struct DynamicList {
    pub items: Vec<Value>,
    pub resource_version: String,
}

/// A typed list; objects that do not deserialise are beside the others.
#[derive(Debug)]
pub struct TypedList<T> {
    pub items: Vec<T>,
    pub invalid: Vec<InvalidObject>,
    pub resource_version: String,
}

/// A list as it is read: its items are deserialised one by one, so that one of them cannot fail the others.
#[derive(Deserialize)]
pub(crate) struct RawList<'a> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    /// An empty list of partial objects has `null`.
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) continue_token: String,
}

/// A client for objects of any kind; clones share the connection, the rate limit and the circuit breaker.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    user_agent: &'static str,
    rate_limiter: Option<Arc<RateLimiter>>,
    circuit_breaker: Arc<CircuitBreaker>,
    fences: Vec<Leadership>,
    unauthorized: WatchValue<bool>,
    denials: Arc<Denials>,
    invalid: Arc<InvalidObjects>,
    /// The watches of the process, where its components share them.
    shared_watches: Option<SharedWatches>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("user_agent", &self.user_agent).finish_non_exhaustive()
    }
}

impl Api {
    /// A client with this user agent, which the server also takes as the field manager.
    pub fn new(client: kube::Client, user_agent: &'static str) -> Self {
        Self {
            client,
            user_agent,
            rate_limiter: None,
            circuit_breaker: Arc::default(),
            fences: Vec::new(),
            unauthorized: WatchValue::new(false),
            denials: Arc::default(),
            invalid: Arc::default(),
            shared_watches: None,
        }
    }

    /// The client of a component of this process: over the same connection, with a circuit breaker of its own, so that a
    /// resource that fails for one component does not stop the others.
    #[must_use]
    pub fn of_component(&self, user_agent: &'static str) -> Self {
        Self { user_agent, ..self.isolated() }
    }

    /// Informers of this client share the watches with those of other components of the process.
    #[must_use]
    pub fn sharing(mut self, watches: SharedWatches) -> Self {
        self.shared_watches = Some(watches);
        self
    }

    pub(crate) fn shared_watches(&self) -> Option<&SharedWatches> {
        self.shared_watches.as_ref()
    }

    /// The same client without the rate limit and with its own circuit breaker, for requests that must not wait behind
    /// others, such as lease renewals.
    #[must_use]
    pub fn isolated(&self) -> Self {
        Self { rate_limiter: None, circuit_breaker: Arc::default(), ..self.clone() }
    }

    /// As [`Self::isolated`], over a connection of its own. Denied requests are still counted with the others.
    #[must_use]
    pub fn isolated_on(&self, client: kube::Client) -> Self {
        Self { client, ..self.isolated() }
    }

    /// Applies a client-side rate limit to everything but watches.
    #[must_use]
    pub fn rate_limited(mut self, limiter: RateLimiter) -> Self {
        self.rate_limiter = Some(Arc::new(limiter));
        self
    }

    /// Refuses writes once leadership is lost, before another candidate can hold the lease. Of several leases none may be lost.
    #[must_use]
    pub fn fenced(mut self, leadership: Leadership) -> Self {
        self.fences.push(leadership);
        self
    }

    /// Waits until the server rejects the credentials (401).
    pub async fn unauthorized(&self) {
        self.unauthorized.wait_for(|unauthorized| unauthorized).await;
    }

    /// Registers the counters of denied requests and of invalid objects.
    pub fn register_metrics(&self, metrics: &Registry) {
        self.denials.register(metrics);
        self.invalid.register(metrics);
    }

    pub fn user_agent(&self) -> &'static str {
        self.user_agent
    }

    /// Logs and counts an object that does not deserialise.
    pub(crate) fn report_invalid(&self, kind: &ResourceKind, object: &InvalidObject) {
        self.invalid.report(kind, object);
    }

    pub async fn get<T: ApiObject>(&self, key: &Key) -> Result<T> {
        let kind = ResourceKind::of::<T>();
        self.request_typed(&kind, "GET", &kind.path_of(key), None).await
    }

    /// All objects of a namespace or, with an empty namespace, of the cluster.
    pub async fn list<T: ApiObject>(&self, namespace: &str) -> Result<TypedList<T>> {
        self.list_selected("", namespace).await
    }

    /// As [`list`](Self::list), with a selector as it stands in a query (`labelSelector=…`), percent-encoded.
    pub async fn list_selected<T: ApiObject>(&self, query: &str, namespace: &str) -> Result<TypedList<T>> {
        let kind = ResourceKind::of::<T>();
        let mut path = kind.path(namespace);
        if !query.is_empty() {
            path = format!("{path}?{query}");
        }
        let text = self.text(&path).await?;
        let list: RawList<'_> =
            serde_json::from_str(&text).map_err(|_| Error::Malformed { path, field: "items" })?;
        let listed = list.items.unwrap_or_default();
        let (mut items, mut invalid) = (Vec::with_capacity(listed.len()), Vec::new());
        for item in listed {
            match decode::<T>(item.get()) {
                Ok(object) => items.push(object),
                Err(error) => {
                    let object = InvalidObject::new(item.get(), &error);
                    self.report_invalid(&kind, &object);
                    invalid.push(object);
                }
            }
        }
        Ok(TypedList { items, invalid, resource_version: list.metadata.resource_version })
    }

    /// Creates an object in the namespace that its metadata names.
    pub async fn create<T: ApiObject>(&self, object: &T) -> Result<T> {
        let kind = ResourceKind::of::<T>();
        let path = kind.path(object.meta().namespace.as_deref().unwrap_or_default());
        let body = encode(object, &path)?;
        self.request_typed(&kind, "POST", &path, Some(("application/json", &body))).await
    }

    /// Applies a merge patch (RFC 7396).
    pub async fn patch<T: ApiObject>(&self, key: &Key, part: Part, patch: &Value) -> Result<T> {
        let kind = ResourceKind::of::<T>();
        let path = kind.path_of(key) + part.suffix();
        self.request_typed(&kind, "PATCH", &path, Some(("application/merge-patch+json", patch))).await
    }

    /// Patches exactly the fields in which `new` differs from `old`, under the precondition that the object still has the
    /// resource version of `old`. Fields that the type does not know stay untouched. Sends nothing when they are equal.
    pub async fn patch_difference<T: ApiObject>(&self, part: Part, old: &T, new: &T) -> Result<Option<T>> {
        let key = crate::key_of_typed(old);
        let path = ResourceKind::of::<T>().path_of(&key);
        let Some(patch) = conditional_patch(&encode(old, &path)?, &encode(new, &path)?) else {
            return Ok(None);
        };
        self.patch(&key, part, &patch).await.map(Some)
    }

    /// Deletes an object; the response is its last state, the state in which it waits for finalizers or the kubelet, or a
    /// `Status`.
    pub async fn delete<T: ApiObject>(&self, key: &Key, options: &DeleteOptions) -> Result<Value> {
        self.delete_dynamic(&ResourceKind::of::<T>(), key, options).await
    }

    pub async fn get_dynamic(&self, kind: &ResourceKind, key: &Key) -> Result<Value> {
        self.send("GET", &kind.path_of(key), None).await
    }

    /// All objects of a namespace or, with an empty namespace, of the cluster.
    pub async fn list_dynamic(&self, kind: &ResourceKind, namespace: &str) -> Result<DynamicList> {
        let path = kind.path(namespace);
        let mut list = self.send("GET", &path, None).await?;
        let resource_version = object::meta_str(&list, "resourceVersion").to_owned();
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Err(Error::Malformed { path, field: "items" });
        };
        Ok(DynamicList { items, resource_version })
    }

    /// Every change after the resource version, until the server or the network ends the stream.
    pub async fn watch_dynamic(
        &self,
        kind: &ResourceKind,
        resource_version: &str,
        seconds: u32,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>>> + use<>> {
        let path = kind.path("");
        let query = format!("{path}?watch=true&timeoutSeconds={seconds}&resourceVersion={resource_version}");
        let request = self.request("GET", &query, "application/json", Vec::new())?;
        let sent = self.circuit_breaker.admit().await;
        let events = Box::pin(self.client.request_events::<Unmanaged>(request));
        let events = self.observe("WATCH", &path, sent, events).await?;
        let api = self.clone();
        let failed = move |source| api.failed("WATCH", &path, source);
        Ok(events.map(move |event| event.map(Unmanaged::of_event).map_err(&failed)))
    }

    pub async fn create_dynamic(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> Result<Value> {
        self.send("POST", &kind.path(namespace), Some(("application/json", object))).await
    }

    /// Creates an object, unless one of its name exists.
    pub async fn ensure_dynamic(&self, kind: &ResourceKind, namespace: &str, object: &Value) -> Result<()> {
        match self.create_dynamic(kind, namespace, object).await {
            Err(error) if error.is_conflict() => Ok(()),
            created => created.map(|_| ()),
        }
    }

    /// Applies a merge patch (RFC 7396).
    pub async fn patch_dynamic(
        &self,
        kind: &ResourceKind,
        key: &Key,
        part: Part,
        patch: &Value,
    ) -> Result<Value> {
        let path = kind.path_of(key) + part.suffix();
        self.send("PATCH", &path, Some(("application/merge-patch+json", patch))).await
    }

    /// As [`patch_difference`](Self::patch_difference).
    pub async fn patch_difference_dynamic(
        &self,
        kind: &ResourceKind,
        part: Part,
        old: &Value,
        new: &Value,
    ) -> Result<Option<Value>> {
        let Some(patch) = conditional_patch(old, new) else { return Ok(None) };
        self.patch_dynamic(kind, &crate::key_of(old), part, &patch).await.map(Some)
    }

    /// As [`delete`](Self::delete).
    pub async fn delete_dynamic(
        &self,
        kind: &ResourceKind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Value> {
        self.send("DELETE", &kind.path_of(key), Some(("application/json", &options.to_value()))).await
    }

    /// Deletes the collection of a namespace.
    pub async fn delete_collection_dynamic(&self, kind: &ResourceKind, namespace: &str) -> Result<Value> {
        self.send("DELETE", &kind.path(namespace), None).await
    }

    /// Sends one request as it is.
    pub async fn send(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Result<Value> {
        self.send_timed(method, path, body).await.0
    }

    /// As [`send`](Self::send), with the time that the server took: not the wait for the rate limit and the circuit breaker.
    pub(crate) async fn send_timed(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> (Result<Value>, Duration) {
        let sent = match self.admit(method, path).await {
            Ok(sent) => sent,
            Err(error) => return (Err(error), Duration::ZERO),
        };
        let (content_type, body) = body.map_or(("application/json", Vec::new()), |(content_type, body)| {
            (content_type, body.to_string().into_bytes())
        });
        let request = match self.request(method, path, content_type, body) {
            Ok(request) => request,
            Err(error) => return (Err(error), Duration::ZERO),
        };
        // Boxed: the future is large, and every caller would embed it.
        let request = Box::pin(self.client.request::<Unmanaged>(request));
        let response = self.observe(method, path, sent, request).await.map(Unmanaged::into_value);
        (response, sent.elapsed())
    }

    async fn request_typed<T: ApiObject>(
        &self,
        kind: &ResourceKind,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<T> {
        let sent = self.admit(method, path).await?;
        let (content_type, body) = body.map_or(("application/json", Vec::new()), |(content_type, body)| {
            (content_type, body.to_string().into_bytes())
        });
        let request = self.request(method, path, content_type, body)?;
        let text = self.observe(method, path, sent, Box::pin(self.client.request_text(request))).await?;
        decode(&text).map_err(|source| {
            let object = Box::new(InvalidObject::new(&text, &source));
            self.report_invalid(kind, &object);
            Error::InvalidObject { path: path.to_owned(), kind: kind.kind.to_string(), object, source }
        })
    }

    /// The body of a response as text.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        self.text_as(path, JSON).await
    }

    /// The body of a response in one of these media types.
    pub(crate) async fn text_as(&self, path: &str, accept: &'static str) -> Result<String> {
        let sent = self.admit("GET", path).await?;
        let request = accepting(accept, self.request("GET", path, JSON, Vec::new())?);
        self.observe("GET", path, sent, Box::pin(self.client.request_text(request))).await
    }

    /// The body of a streaming response in one of these media types.
    pub(crate) async fn stream(&self, path: &str, accept: &'static str) -> Result<impl AsyncBufRead + use<>> {
        let request = accepting(accept, self.request("GET", path, JSON, Vec::new())?);
        let sent = self.circuit_breaker.admit().await;
        self.observe("WATCH", path, sent, Box::pin(self.client.request_stream(request))).await
    }

    /// Waits for the response to a request sent at `sent`, and reports the result to the circuit breaker.
    async fn observe<T>(
        &self,
        method: &str,
        path: &str,
        sent: Instant,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        let response = match timeout(RESPONSE_TIMEOUT, request).await {
            Ok(response) => response.map_err(|source| self.failed(method, path, source)),
            Err(_) => Err(Error::Timeout { path: path.to_owned() }),
        };
        match &response {
            Err(error) if error.opens_circuit() => {
                self.circuit_breaker.failed(path, sent, error.retry_after());
            }
            Ok(_) | Err(_) => self.circuit_breaker.succeeded(),
        }
        response
    }

    /// Waits for the rate limit and the circuit breaker, and refuses writes after the lease was lost.
    async fn admit(&self, method: &str, path: &str) -> Result<Instant> {
        if let Some(limiter) = &self.rate_limiter {
            limiter.acquire().await;
        }
        let sent = self.circuit_breaker.admit().await;
        if method != "GET" && !self.fences.iter().all(Leadership::is_held) {
            return Err(Error::NotLeader { path: path.to_owned() });
        }
        Ok(sent)
    }

    fn failed(&self, method: &str, path: &str, source: kube::Error) -> Error {
        let error =
            Error::Request { method: method.to_owned(), path: path.to_owned(), source: Box::new(source) };
        match error.code() {
            401 => self.unauthorized.set(true),
            403 => {
                if let Some(permission) = Permission::of_denial(&error.message()) {
                    self.denials.record(permission, path);
                }
            }
            _ => {}
        }
        error
    }

    /// Paths contain names that users wrote: one that makes no valid path is an error of that object.
    fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Request<Vec<u8>>> {
        let invalid = || Error::InvalidPath { path: path.to_owned() };
        if url::has_dot_segment(path) {
            return Err(invalid());
        }
        Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", JSON)
            .header("user-agent", self.user_agent)
            .body(body)
            .map_err(|_| invalid())
    }
}

/// Replaces the media types that a request accepts.
fn accepting(accept: &'static str, mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
    request
}

/// Deserialises an object without `managedFields`.
pub(crate) fn decode<T: ApiObject>(text: &str) -> Result<T, serde_json::Error> {
    let mut object: T = serde_json::from_str(text)?;
    object.meta_mut().managed_fields = None;
    Ok(object)
}

fn encode<T: ApiObject>(object: &T, path: &str) -> Result<Value> {
    serde_json::to_value(object).map_err(|source| {
        let (path, kind) = (path.to_owned(), T::kind(&()).into_owned());
        let object = Box::new(InvalidObject {
            key: crate::key_of_typed(object),
            uid: object.meta().uid.clone().unwrap_or_default(),
            resource_version: object.meta().resource_version.clone().unwrap_or_default(),
            reason: source.to_string(),
            deleted: false,
        });
        Error::InvalidObject { path, kind, object, source }
    })
}

/// The merge patch from `old` to `new` with uid and resource version of `old` as preconditions.
fn conditional_patch(old: &Value, new: &Value) -> Option<Value> {
    let mut patch = merge_patch(old, new)?;
    let version = Value::from(object::meta_str(old, "resourceVersion"));
    object::set_meta(&mut patch, "resourceVersion", Some(version));
    object::set_meta(&mut patch, "uid", Some(Value::from(object::uid(old))));
    Some(patch)
}
