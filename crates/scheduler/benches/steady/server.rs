//! A fake API server: lists the bench cluster, delivers emitted watch events, and accepts every write.
//!
//! It does next to no work itself, so that the bench measures the scheduler.

use super::cluster::BenchCluster;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The resource version of the lists.
const LISTED: u64 = 1_000_000;

#[derive(Clone)]
pub(crate) struct Server {
    cluster: Arc<BenchCluster>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    watches: BTreeMap<String, UnboundedSender<Bytes>>,
    writes: Vec<Write>,
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The path from the resource on.
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl Server {
    pub(crate) fn new(cluster: BenchCluster) -> Self {
        let state = State { version: LISTED, ..State::default() };
        Self { cluster: Arc::new(cluster), state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Sends an event to the watch of a resource.
    pub(crate) fn emit(&self, what: &str, resource: &str, mut object: Value) {
        let mut state = self.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = Value::from(state.version.to_string());
        let line = format!("{}\n", json!({"type": what, "object": object}));
        let watch = state.watches.get(resource).unwrap_or_else(|| panic!("{resource} is not watched"));
        watch.send(Bytes::from(line)).expect("the watch is open");
    }

    pub(crate) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.lock().writes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default();
        let path: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
        // `/api/v1/…` or `/apis/group/version/…`, with the namespace in between.
        let mut rest = if path[0] == "api" { &path[2..] } else { path.get(3..).unwrap_or_default() };
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            rest = &rest[2..];
        }
        let Some(resource) = rest.first() else { return not_found() };
        if parts.method == Method::GET {
            return if query.contains("watch=true") {
                self.watch(resource)
            } else {
                self.list(resource, query)
            };
        }
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut state = self.lock();
        state.version += 1;
        let write = Write { path: rest.join("/"), body: body.clone() };
        state.writes.push(write);
        body["metadata"]["resourceVersion"] = Value::from(state.version.to_string());
        if parts.method == Method::POST {
            body["metadata"]["uid"] = Value::from(format!("created-{}", state.version));
        }
        Response::new(Body::from(body.to_string()))
    }

    fn list(&self, resource: &str, query: &str) -> Response<Body> {
        let number = |name: &str| {
            let value =
                query.split('&').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name);
            value.and_then(|(_, value)| value.parse::<usize>().ok())
        };
        let (from, limit) = (number("continue").unwrap_or(0), number("limit").unwrap_or(usize::MAX));
        let count = self.cluster.count(resource);
        let to = count.min(from.saturating_add(limit));
        let items: Vec<Value> = (from..to).map(|at| self.cluster.listed(resource, at)).collect();
        let next = if to < count { to.to_string() } else { String::new() };
        let list =
            json!({"metadata": {"resourceVersion": LISTED.to_string(), "continue": next}, "items": items});
        Response::new(Body::from(list.to_string()))
    }

    fn watch(&self, resource: &str) -> Response<Body> {
        let (send, receive) = unbounded_channel();
        self.lock().watches.insert(resource.to_owned(), send);
        let next = |mut lines: UnboundedReceiver<Bytes>| async move {
            let line = lines.recv().await?;
            Some((Ok::<_, Infallible>(line), lines))
        };
        Response::new(Body::from_stream(stream::unfold(receive, next).fuse()))
    }
}

fn not_found() -> Response<Body> {
    let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not served"});
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
