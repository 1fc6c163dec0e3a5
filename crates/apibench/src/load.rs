//! The load: creates, gets, patches, bindings and full lists, over kept connections, with watchers reading along.
//!
//! A write counts as done when it is answered; the operation as a whole ends when every watcher has read every event.

use crate::pod::{self, NAMESPACE};
use crate::watchers::Watchers;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::request::Builder;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use kai_clock::Stopwatch;
use kai_kubetest::client::Server;
use kai_kubetest::real::ADMIN_TOKEN;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection that is kept.
type Connection = SendRequest<Full<Bytes>>;

/// How large the load is.
#[derive(Clone, clap::Args)]
pub(crate) struct Size {
    /// Pods to create, get, patch and bind.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) pods: usize,
    /// Full lists.
    #[arg(long, default_value_t = 20)]
    pub(crate) lists: usize,
    /// Clients that ask at the same time.
    #[arg(long, default_value_t = 16)]
    pub(crate) clients: usize,
    /// Clients that list at the same time.
    #[arg(long, default_value_t = 2)]
    pub(crate) listers: usize,
    /// Clients that watch all pods.
    #[arg(long, default_value_t = 10)]
    pub(crate) watchers: usize,
}

/// What is asked of a server, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Create,
    Get,
    Patch,
    Bind,
    List,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] = [Self::Create, Self::Get, Self::Patch, Self::Bind, Self::List];

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
        request.context("a request could not be built")
    }

    /// Whether watchers hear of it.
    fn writes(self) -> bool {
        match self {
            Self::Create | Self::Patch | Self::Bind => true,
            Self::Get | Self::List => false,
        }
    }
}

/// Adds what every request carries.
pub(crate) fn admin(request: Builder) -> Builder {
    request
        .header("host", "localhost")
        .header("accept", "application/json")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
}

/// Reads a body to its end and forgets it; how long it was.
pub(crate) async fn drain(mut body: Incoming) -> Result<usize> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes += data.len();
        }
    }
    Ok(bytes)
}

/// What one run of the load gave.
pub(crate) struct Outcome {
    /// Operations per second, in the order of [`Operation::ALL`].
    pub(crate) rates: [f64; 5],
    /// How often a watcher was too slow for the server.
    pub(crate) cuts: u64,
}

/// Runs all operations.
pub(crate) async fn run(server: &Server, size: &Size) -> Result<Outcome> {
    prepare(server).await?;
    let mut watchers = Watchers::start(server, size.watchers).await?;
    let mut rates = [0.0; 5];
    let mut events = 0;
    for (operation, rate) in Operation::ALL.into_iter().zip(&mut rates) {
        let (count, clients) = match operation {
            Operation::List => (size.lists, size.listers),
            Operation::Create | Operation::Get | Operation::Patch | Operation::Bind => {
                (size.pods, size.clients)
            }
        };
        let mut connections = Vec::new();
        for _ in 0..clients {
            connections.push(server.connect().await?);
        }
        let watch = Stopwatch::start();
        ask(operation, count, connections).await.with_context(|| format!("operation {operation:?}"))?;
        if operation.writes() {
            events += count as u64;
            watchers.have_read(events).await?;
        }
        *rate = count as f64 / watch.elapsed().as_secs_f64();
    }
    Ok(Outcome { rates, cuts: watchers.cuts() })
}

/// Makes the namespace, and the account that pods run as.
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
            bail!("`{path}` answered {status}");
        }
    }
    Ok(())
}

/// Asks `count` times in all, each connection for the next that nobody has asked for.
async fn ask(operation: Operation, count: usize, connections: Vec<Connection>) -> Result<()> {
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
                    bail!("request {index} was answered with {status}");
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a client is gone")??;
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
