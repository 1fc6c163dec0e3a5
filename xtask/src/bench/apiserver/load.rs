//! The load: creates, gets, patches, bindings and full lists over persistent connections, with concurrent watchers.
//!
//! An operation ends when every request has its response and every watcher has received every event.

use super::pod::{self, NAMESPACE};
use super::watchers::Watchers;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::request::Builder;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use kai_clock::Stopwatch;
use kai_kubetest::client::Server;
use kai_kubetest::control_plane::ADMIN_TOKEN;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Connection = SendRequest<Full<Bytes>>;

#[derive(Clone, clap::Args)]
pub(super) struct LoadArgs {
    /// Pods to create, get, patch and bind.
    #[arg(long, default_value_t = 10_000)]
    pub(super) pods: usize,
    /// Full lists of all pods.
    #[arg(long, default_value_t = 20)]
    pub(super) lists: usize,
    /// Concurrent clients.
    #[arg(long, default_value_t = 16)]
    pub(super) clients: usize,
    /// Concurrent clients that list.
    #[arg(long, default_value_t = 2)]
    pub(super) listers: usize,
    /// Watches of all pods.
    #[arg(long, default_value_t = 10)]
    pub(super) watchers: usize,
}

/// The operations, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Operation {
    Create,
    Get,
    Patch,
    Bind,
    List,
}

impl Operation {
    pub(super) const ALL: [Self; 5] = [Self::Create, Self::Get, Self::Patch, Self::Bind, Self::List];

    fn request(self, index: usize) -> Result<Request<Full<Bytes>>> {
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let name = pod::name(index);
        let request = match self {
            Self::Create => admin(Request::post(pods))
                .header("content-type", "application/json")
                .body(Full::from(pod::manifest(index))),
            Self::Get => admin(Request::get(format!("{pods}/{name}"))).body(Full::default()),
            Self::Patch => admin(Request::patch(format!("{pods}/{name}")))
                .header("content-type", "application/strategic-merge-patch+json")
                .body(Full::from(r#"{"metadata":{"labels":{"phase":"checked"}}}"#)),
            Self::Bind => {
                let binding = json!({
                    "kind": "Binding",
                    "apiVersion": "v1",
                    "metadata": {"name": name},
                    "target": {"kind": "Node", "apiVersion": "v1", "name": format!("node-{}", index % 100)},
                });
                admin(Request::post(format!("{pods}/{name}/binding")))
                    .header("content-type", "application/json")
                    .body(Full::from(binding.to_string()))
            }
            Self::List => admin(Request::get("/api/v1/pods")).body(Full::default()),
        };
        request.context("cannot build a request")
    }

    /// Whether each request causes a watch event.
    fn writes(self) -> bool {
        match self {
            Self::Create | Self::Patch | Self::Bind => true,
            Self::Get | Self::List => false,
        }
    }
}

/// Adds the headers of every request.
pub(super) fn admin(request: Builder) -> Builder {
    request
        .header("host", "localhost")
        .header("accept", "application/json")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
}

/// Reads a body to its end, discards it and returns its length.
pub(super) async fn drain(mut body: Incoming) -> Result<usize> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes += data.len();
        }
    }
    Ok(bytes)
}

pub(super) struct Outcome {
    /// Operations per second, in the order of [`Operation::ALL`].
    pub(super) rates: [f64; 5],
    /// Watches that the server closed because the watcher was too slow.
    pub(super) closed_watches: u64,
}

pub(super) async fn run(server: &Server, load: &LoadArgs) -> Result<Outcome> {
    prepare(server).await?;
    let mut watchers = Watchers::start(server, load.watchers).await?;
    let mut rates = [0.0; 5];
    let mut events = 0;
    for (operation, rate) in Operation::ALL.into_iter().zip(&mut rates) {
        let (count, clients) = match operation {
            Operation::List => (load.lists, load.listers),
            Operation::Create | Operation::Get | Operation::Patch | Operation::Bind => {
                (load.pods, load.clients)
            }
        };
        let mut connections = Vec::new();
        for _ in 0..clients {
            connections.push(server.connect().await?);
        }
        let watch = Stopwatch::start();
        send_all(operation, count, connections).await.with_context(|| format!("operation {operation:?}"))?;
        if operation.writes() {
            events += count as u64;
            watchers.wait_for(events).await?;
        }
        *rate = count as f64 / watch.elapsed().as_secs_f64();
    }
    Ok(Outcome { rates, closed_watches: watchers.closed() })
}

/// Creates the namespace and its default service account, which pod admission requires.
async fn prepare(server: &Server) -> Result<()> {
    let mut connection = server.connect().await?;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}});
    let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}});
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    for (path, object) in [("/api/v1/namespaces", namespace), (accounts.as_str(), account)] {
        let request = admin(Request::post(path))
            .header("content-type", "application/json")
            .body(Full::from(object.to_string()))?;
        let status = send(&mut connection, request).await?;
        if !status.is_success() && status != StatusCode::CONFLICT {
            bail!("`{path}` returned {status}");
        }
    }
    Ok(())
}

/// Sends `count` requests in all; each connection takes the next index from a shared counter.
async fn send_all(operation: Operation, count: usize, connections: Vec<Connection>) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for mut connection in connections {
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                let status = send(&mut connection, operation.request(index)?).await?;
                if !status.is_success() {
                    bail!("request {index} returned {status}");
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a client task failed")??;
    }
    Ok(())
}

async fn send(connection: &mut Connection, request: Request<Full<Bytes>>) -> Result<StatusCode> {
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    drain(response.into_body()).await?;
    Ok(status)
}
