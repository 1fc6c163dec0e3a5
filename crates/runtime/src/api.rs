//! Reads and writes objects as JSON through a `kube` client; who manages which field is left out of what is read.

pub(crate) mod lean;

use crate::brake::Brake;
use crate::change::merge_patch;
use crate::denial::{Denials, Right};
use crate::kind::{Key, Kind};
use crate::lease::Leadership;
use crate::limit::Limit;
use crate::signal::Signal;
use futures::{AsyncBufRead, Stream, StreamExt as _};
use http::Request;
use kai_object as object;
use kube::core::WatchEvent;
use lean::Lean;
use prometheus::Registry;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long an answer may take; a watch may go on for longer once it has begun.
const ANSWER_MAX: Duration = Duration::from_mins(1);
/// The cause that the server names when a disruption budget forbids an eviction, which it says with 429.
pub const BUDGET: &str = "DisruptionBudget";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused it or could not be reached.
    #[error("{method} {path}")]
    Request {
        /// The method.
        method: String,
        /// The path.
        path: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The server took too long.
    #[error("{path} got no answer in time")]
    NoAnswer {
        /// The path.
        path: String,
    },
    /// Somebody else leads by now.
    #[error("{path} was not written: the lease is lost")]
    NotLeader {
        /// The path.
        path: String,
    },
    /// The server answered something that is no object of the kind.
    #[error("{path} has no field `{field}`")]
    Malformed {
        /// The path.
        path: String,
        /// What is missing.
        field: &'static str,
    },
}

impl Error {
    /// The status of the answer; 0 when there was none.
    pub fn code(&self) -> u16 {
        let Self::Request { source, .. } = self else { return 0 };
        // `kube::Error` is foreign and grows: everything but an answer counts as none.
        if let kube::Error::Api(status) = &**source { status.code } else { 0 }
    }

    /// What the server said, or that it said nothing.
    pub fn reason(&self) -> String {
        let Self::Request { source, .. } = self else { return self.to_string() };
        if let kube::Error::Api(status) = &**source { status.message.clone() } else { source.to_string() }
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// The failure in words for people: what the server said, or why it could not be asked.
    pub fn told(&self) -> String {
        match self {
            Self::Request { source, .. } => {
                // `kube::Error` is foreign and grows: everything but an answer speaks for itself.
                if let kube::Error::Api(status) = &**source
                    && !status.message.is_empty()
                {
                    status.message.clone()
                } else {
                    source.to_string()
                }
            }
            Self::NoAnswer { .. } | Self::NotLeader { .. } | Self::Malformed { .. } => self.to_string(),
        }
    }

    /// Whether the server names this among the causes of its refusal.
    pub fn has_cause(&self, reason: &str) -> bool {
        let Self::Request { source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        let details = status.details.iter();
        details.flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
    }

    /// Whether the same request may succeed a little later: the server is busy, failing or out of reach.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Request { .. } => matches!(self.code(), 0 | 408 | 429 | 500..=599),
            Self::NoAnswer { .. } => true,
            Self::NotLeader { .. } | Self::Malformed { .. } => false,
        }
    }

    /// How long the server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Request { source, .. } = self else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// Whether the server is in trouble, as far as can be told from this: a refusal is an answer.
    fn is_trouble(&self) -> bool {
        self.is_transient() && !self.has_cause(BUDGET)
    }

    /// Whether the object is already there, or is not what the writer believed.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }
}

/// The outcome of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which part of an object a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    /// The status.
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

/// How to delete an object.
#[derive(Clone, Debug, Default)]
pub struct Deletion {
    /// Only the object with this uid.
    pub uid: Option<String>,
    /// How many seconds it has.
    pub grace_seconds: Option<i64>,
    /// What becomes of its dependents.
    pub propagation: Option<&'static str>,
}

impl Deletion {
    /// Deletes exactly this object, with its own grace period.
    pub fn of(object: &Value) -> Self {
        Self { uid: Some(object::uid(object).to_owned()), ..Self::default() }
    }

    /// At once, without waiting for the node.
    #[must_use]
    pub fn now(mut self) -> Self {
        self.grace_seconds = Some(0);
        self
    }

    /// With this policy for dependents.
    #[must_use]
    pub fn propagate(mut self, policy: &'static str) -> Self {
        self.propagation = Some(policy);
        self
    }

    fn to_value(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(uid) = &self.uid {
            options["preconditions"] = json!({"uid": uid});
        }
        if let Some(seconds) = self.grace_seconds {
            options["gracePeriodSeconds"] = Value::from(seconds);
        }
        if let Some(policy) = self.propagation {
            options["propagationPolicy"] = Value::from(policy);
        }
        options
    }
}

/// A list of objects, as of a version.
#[derive(Debug)]
pub struct Listed {
    /// The objects.
    pub items: Vec<Value>,
    /// The version from which to watch on.
    pub resource_version: String,
}

/// A client for objects of any kind; clones share the connection.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    agent: &'static str,
    limit: Option<Arc<Limit>>,
    brake: Arc<Brake>,
    fence: Option<Leadership>,
    refused: Signal<bool>,
    denials: Arc<Denials>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl Api {
    /// A client that tells the server it is `agent`; the server accounts writes to that name.
    pub fn new(client: kube::Client, agent: &'static str) -> Self {
        let (brake, refused, denials) = (Arc::default(), Signal::new(false), Arc::default());
        Self { client, agent, limit: None, brake, fence: None, refused, denials }
    }

    /// The same client for what must not wait behind others: no limit, and a brake of its own.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { limit: None, brake: Arc::default(), ..self.clone() }
    }

    /// Sends at most so many requests a second, and so many at once after a pause. Watches do not count.
    #[must_use]
    pub fn limited(mut self, limit: Limit) -> Self {
        self.limit = Some(Arc::new(limit));
        self
    }

    /// Writes only while this is held: whoever lost the lease must not change what the next leader decides.
    #[must_use]
    pub fn fenced(mut self, leadership: Leadership) -> Self {
        self.fence = Some(leadership);
        self
    }

    /// Waits until the server no longer knows who we are.
    pub async fn unauthorized(&self) {
        self.refused.until(|refused| refused).await;
    }

    /// Shows how often the server denied us a right.
    pub fn measured(&self, metrics: &Registry) {
        self.denials.register(metrics);
    }

    /// What it calls itself.
    pub fn agent(&self) -> &'static str {
        self.agent
    }

    /// The object.
    pub async fn get(&self, kind: &Kind, key: &Key) -> Result<Value> {
        self.send("GET", &kind.path_of(key), None).await
    }

    /// All objects, or those of a namespace.
    pub async fn list(&self, kind: &Kind, namespace: &str) -> Result<Listed> {
        let path = kind.path(namespace);
        let mut list = self.send("GET", &path, None).await?;
        let resource_version = object::meta_str(&list, "resourceVersion").to_owned();
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Err(Error::Malformed { path, field: "items" });
        };
        Ok(Listed { items, resource_version })
    }

    /// Every change after the version, until the server or the network ends the stream.
    pub async fn watch(
        &self,
        kind: &Kind,
        resource_version: &str,
        seconds: u32,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>>> + use<>> {
        let path = kind.path("");
        let query = format!("{path}?watch=true&timeoutSeconds={seconds}&resourceVersion={resource_version}");
        let request = self.request("GET", &query, "application/json", Vec::new());
        let sent = self.brake.turn().await;
        let events = Box::pin(self.client.request_events::<Lean>(request));
        let events = self.answer("WATCH", &path, sent, events).await?;
        let api = self.clone();
        let failed = move |source| api.failed("WATCH", &path, source);
        Ok(events.map(move |event| event.map(Lean::of_event).map_err(&failed)))
    }

    /// The text of an answer.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let sent = self.admit("GET", path).await?;
        let request = self.request("GET", path, "application/json", Vec::new());
        self.answer("GET", path, sent, Box::pin(self.client.request_text(request))).await
    }

    /// The lines of an answer that does not end.
    pub(crate) async fn stream(&self, path: &str) -> Result<impl AsyncBufRead + use<>> {
        let request = self.request("GET", path, "application/json", Vec::new());
        let sent = self.brake.turn().await;
        self.answer("WATCH", path, sent, Box::pin(self.client.request_stream(request))).await
    }

    /// Makes an object.
    pub async fn create(&self, kind: &Kind, namespace: &str, object: &Value) -> Result<Value> {
        self.send("POST", &kind.path(namespace), Some(("application/json", object))).await
    }

    /// Makes an object, unless one of its name is there.
    pub async fn ensure(&self, kind: &Kind, namespace: &str, object: &Value) -> Result<()> {
        match self.create(kind, namespace, object).await {
            Err(error) if error.is_conflict() => Ok(()),
            made => made.map(|_| ()),
        }
    }

    /// Applies a merge patch to an object.
    pub async fn merge(&self, kind: &Kind, key: &Key, part: Part, patch: &Value) -> Result<Value> {
        let path = kind.path_of(key) + part.suffix();
        self.send("PATCH", &path, Some(("application/merge-patch+json", patch))).await
    }

    /// Turns `old` into `new`, if nobody wrote in between; nothing is sent when they are equal.
    pub async fn update(&self, kind: &Kind, part: Part, old: &Value, new: &Value) -> Result<Option<Value>> {
        let Some(mut patch) = merge_patch(old, new) else { return Ok(None) };
        let version = Value::from(object::meta_str(old, "resourceVersion"));
        object::set_meta(&mut patch, "resourceVersion", Some(version));
        object::set_meta(&mut patch, "uid", Some(Value::from(object::uid(old))));
        self.merge(kind, &Key::of(old), part, &patch).await.map(Some)
    }

    /// Deletes an object. The answer is its last or latest state, or a bare success.
    pub async fn delete(&self, kind: &Kind, key: &Key, how: &Deletion) -> Result<Value> {
        self.send("DELETE", &kind.path_of(key), Some(("application/json", &how.to_value()))).await
    }

    /// Deletes all objects of a namespace.
    pub async fn delete_all(&self, kind: &Kind, namespace: &str) -> Result<Value> {
        self.send("DELETE", &kind.path(namespace), None).await
    }

    /// One request as it is.
    pub async fn send(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Result<Value> {
        let sent = self.admit(method, path).await?;
        let (content_type, body) = body.map_or(("application/json", Vec::new()), |(content_type, body)| {
            (content_type, body.to_string().into_bytes())
        });
        let request = self.request(method, path, content_type, body);
        // Boxed: a request is large, and whoever sends it holds it in a future of its own.
        let request = Box::pin(self.client.request::<Lean>(request));
        self.answer(method, path, sent, request).await.map(Lean::into_value)
    }

    /// Waits for the answer to what was sent then, and lets the brake know how it went.
    async fn answer<T>(
        &self,
        method: &str,
        path: &str,
        sent: Instant,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        let answer = match timeout(ANSWER_MAX, request).await {
            Ok(answer) => answer.map_err(|source| self.failed(method, path, source)),
            Err(_) => Err(Error::NoAnswer { path: path.to_owned() }),
        };
        match &answer {
            Err(error) if error.is_trouble() => self.brake.failed(path, sent, error.retry_after()),
            Ok(_) | Err(_) => self.brake.answered(),
        }
        answer
    }

    /// Waits for a turn, says when it came, and refuses writes that are no longer ours to make.
    async fn admit(&self, method: &str, path: &str) -> Result<Instant> {
        if let Some(limit) = &self.limit {
            limit.turn().await;
        }
        let sent = self.brake.turn().await;
        match &self.fence {
            Some(fence) if method != "GET" && !fence.is_held() => {
                Err(Error::NotLeader { path: path.to_owned() })
            }
            _ => Ok(sent),
        }
    }

    fn failed(&self, method: &str, path: &str, source: kube::Error) -> Error {
        let error =
            Error::Request { method: method.to_owned(), path: path.to_owned(), source: Box::new(source) };
        match error.code() {
            401 => self.refused.set(true),
            403 => {
                if let Some(right) = Right::of_refusal(&error.reason()) {
                    self.denials.note(right, path);
                }
            }
            _ => {}
        }
        error
    }

    fn request(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Request<Vec<u8>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .header("user-agent", self.agent)
            .body(body)
            .expect("paths are made of valid names")
    }
}
