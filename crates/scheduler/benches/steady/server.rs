//! Stands in for an API server: it lists what it is given, watches what it is told, and takes every write.
//!
//! What it costs is next to nothing, so that what is measured is the scheduler.

use super::world::World;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The version of everything that is listed.
const LISTED: u64 = 1_000_000;

/// The server; clones are the same.
#[derive(Clone)]
pub(crate) struct Server {
    world: Arc<World>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    watches: BTreeMap<String, UnboundedSender<Bytes>>,
    writes: Vec<Write>,
}

/// A write that came.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The last parts of the path: the resource, and whatever follows it.
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl Server {
    pub(crate) fn new(world: World) -> Self {
        let state = State { version: LISTED, ..State::default() };
        Self { world: Arc::new(world), state: Arc::new(Mutex::new(state)) }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Tells whoever watches the resource.
    pub(crate) fn tell(&self, what: &str, resource: &str, mut object: Value) {
        let mut state = self.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = Value::from(state.version.to_string());
        let line = format!("{}\n", json!({"type": what, "object": object}));
        let watch = state.watches.get(resource).unwrap_or_else(|| panic!("nobody watches {resource}"));
        watch.send(Bytes::from(line)).expect("the scheduler reads what it watches");
    }

    /// Takes the writes that came.
    pub(crate) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.lock().writes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(resource) = rest.first() else { return absent() };
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
            body["metadata"]["uid"] = Value::from(format!("made-{}", state.version));
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
        let count = self.world.count(resource);
        let to = count.min(from.saturating_add(limit));
        let items: Vec<Value> = (from..to).map(|at| self.world.listed(resource, at)).collect();
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

fn absent() -> Response<Body> {
    let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "it is not served"});
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
