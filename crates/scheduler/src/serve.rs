//! HTTP endpoints of the scheduler: a snapshot of its objects, the job order, the verdict of a group, and the handlers of
//! plugins.

pub(crate) mod plugin_handlers;

use crate::resources;
use crate::scheduler_loop::SchedulerLoop;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kai_cache::Snapshot;
use kai_cache::snapshot::{Replay, write_zip};
use kai_engine::Cycle;
use kai_engine::explain;
use kai_engine::input::Key;
use kai_engine::order::listing;
use kai_engine::verdict::{GroupVerdict, Verdict};
use plugin_handlers::PluginHandlers;
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// Parts of a snapshot that are written before the client has received them.
const SNAPSHOT_CHUNKS_MAX: usize = 4;
const SNAPSHOT_CHUNK_BYTES: usize = 1 << 16;
/// A snapshot is complete enough without discovery: an aggregated API may never answer.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Snapshots that are made at the same time: each holds its objects until the client has received them.
const SNAPSHOTS_MAX: usize = 2;

/// A request to the scheduler loop, with the channel of its response.
#[derive(Debug)]
pub enum Query {
    /// All objects, with what the next cycle reads beside them.
    Snapshot(oneshot::Sender<Box<Snapshot>>),
    /// The order in which pending groups are attempted.
    JobOrder(oneshot::Sender<Value>),
    /// Why a group is pending.
    Explain(Key, oneshot::Sender<Option<Value>>),
}

/// A handle for requests to the scheduler loop.
#[derive(Clone, Debug)]
pub struct Queries {
    sender: mpsc::Sender<Query>,
    handlers: PluginHandlers,
    snapshots: Arc<Semaphore>,
}

/// The end of the channel that the scheduler loop receives from.
#[derive(Debug)]
pub struct QueryReceiver {
    pub(crate) receiver: mpsc::Receiver<Query>,
    pub(crate) handlers: PluginHandlers,
}

/// The channel of requests: the handle, and the end that the scheduler loop receives from.
pub fn queries() -> (Queries, QueryReceiver) {
    let (sender, receiver) = mpsc::channel(16);
    let handlers = PluginHandlers::default();
    let snapshots = Arc::new(Semaphore::new(SNAPSHOTS_MAX));
    (Queries { sender, handlers: handlers.clone(), snapshots }, QueryReceiver { receiver, handlers })
}

impl Queries {
    async fn send<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, StatusCode> {
        let (respond, response) = oneshot::channel();
        self.sender.send(query(respond)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        response.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
    }
}

pub fn router(queries: Queries) -> Router {
    Router::new()
        .route("/get-snapshot", get(snapshot))
        .route("/get-job-order", get(job_order))
        .route("/explain/{namespace}/{group}", get(explain_group))
        .fallback(plugin_handlers::answer)
        .with_state(queries)
}

/// A zip file in KAI's snapshot format. It is written on a thread of its own while it is sent.
async fn snapshot(State(queries): State<Queries>) -> Result<Response, StatusCode> {
    let Ok(permit) = Arc::clone(&queries.snapshots).try_acquire_owned() else {
        return Err(StatusCode::TOO_MANY_REQUESTS);
    };
    let snapshot = queries.send(Query::Snapshot).await?;
    let (sender, receiver) = mpsc::channel(SNAPSHOT_CHUNKS_MAX);
    tokio::task::spawn_blocking(move || {
        let mut output = BufWriter::with_capacity(SNAPSHOT_CHUNK_BYTES, ChunkSender(&sender));
        let written = write_zip(&*snapshot, &mut output).and_then(|()| output.flush());
        if let Err(error) = written {
            // The client has disconnected, or the transfer is cut off: the status has been sent already.
            let _ = sender.blocking_send(Err(error));
        }
        drop(permit);
    });
    let chunks = futures::stream::unfold(receiver, async |mut receiver| {
        let chunk: std::io::Result<Vec<u8>> = receiver.recv().await?;
        Some((chunk, receiver))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/zip"),
        (header::CONTENT_DISPOSITION, "attachment; filename=snapshot.zip"),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

/// Passes what is written on to the response; waits while the client is slow.
struct ChunkSender<'a>(&'a mpsc::Sender<std::io::Result<Vec<u8>>>);

impl Write for ChunkSender<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.blocking_send(Ok(bytes.to_vec()));
        sent.map(|()| bytes.len()).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn job_order(State(queries): State<Queries>) -> Result<Response, StatusCode> {
    json_response(&queries.send(Query::JobOrder).await?)
}

async fn explain_group(
    State(queries): State<Queries>,
    Path((namespace, group)): Path<(String, String)>,
) -> Result<Response, StatusCode> {
    let verdict = queries.send(|respond| Query::Explain(Key::new(namespace, group), respond)).await?;
    json_response(&verdict.ok_or(StatusCode::NOT_FOUND)?)
}

fn json_response(value: &Value) -> Result<Response, StatusCode> {
    let text = serde_json::to_string_pretty(value).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Answers a request. The send fails only when the client has disconnected.
pub(crate) fn answer(scheduler: &mut SchedulerLoop, query: Query) {
    match query {
        Query::Snapshot(to) => scheduler.send_snapshot(to),
        Query::JobOrder(to) => {
            // Without an answer the response is 503.
            if let Some(order) = order_of(scheduler) {
                let _ = to.send(order);
            }
        }
        Query::Explain(group, to) => {
            let _ =
                to.send(scheduler.verdicts.get(&group).map(verdict).or_else(|| placed(scheduler, &group)));
        }
    }
}

impl SchedulerLoop {
    /// Copies references to the objects; the server's discovery is read in the background.
    fn send_snapshot(&mut self, to: oneshot::Sender<Box<Snapshot>>) {
        let cycle = Cycle { now: self.now(), seed: self.options.seed };
        let store = self.cache.store();
        let mut snapshot = Box::new(Snapshot {
            config: self.options.config.clone(),
            params: self.options.snapshot_params(),
            objects: store.objects().clone(),
            replay: Replay::of(store, cycle),
            discovery: None,
            findings: Vec::new(),
        });
        self.run_beside(|api| async move {
            // The many requests of discovery neither use up the rate limit of bindings nor open their circuit breaker.
            let api = api.isolated();
            let discovery = timeout(DISCOVERY_TIMEOUT, resources::snapshot_discovery(&api)).await;
            snapshot.discovery = discovery.ok().flatten();
            let _ = to.send(snapshot);
        });
    }
}

/// The order of pending groups; none if a plugin did not return.
fn order_of(scheduler: &mut SchedulerLoop) -> Option<Value> {
    let (policy, now) = (Arc::clone(scheduler.policy()), scheduler.now());
    let order =
        scheduler.with_plugins(&policy, move |cluster, policy| listing::pending(cluster, policy, now))?;
    // The name alone does not identify a group.
    let entry = |(group, priority): &(Key, i32)| json!({"id": group.to_string(), "priority": priority});
    let queues: serde_json::Map<String, Value> = order
        .queues
        .iter()
        .map(|(queue, groups)| (queue.clone(), groups.iter().map(entry).collect()))
        .collect();
    Some(json!({"global_order": order.all.iter().map(entry).collect::<Vec<_>>(), "queue_order": queues}))
}

/// A verdict as JSON: messages and hints.
pub fn verdict(group: &GroupVerdict) -> Value {
    let explained = |verdict: &Verdict| {
        let sentence = explain::plain(verdict, &group.queue);
        json!({"message": sentence.text, "hint": sentence.hint})
    };
    json!({
        "namespace": group.group.namespace, "name": group.group.name, "queue": group.queue,
        "pending": group.pending,
        "leading": explained(&group.leading),
        "further": group.further.iter().map(explained).collect::<Vec<_>>(),
    })
}

/// The response for a group without pending pods.
fn placed(scheduler: &SchedulerLoop, key: &Key) -> Option<Value> {
    let group = scheduler.cache.store().objects().pod_groups.get(key)?;
    Some(json!({
        "namespace": key.namespace, "name": key.name, "queue": group.spec.queue, "pending": 0,
        "leading": {"message": "it has no pending pods", "hint": null}, "further": [],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn more_snapshots_at_the_same_time_than_allowed_are_refused() {
        let (queries, mut loop_end) = queries();
        let request = || Request::get("/get-snapshot").body(Body::empty()).unwrap();
        let mut waiting = Vec::new();
        // A request holds its permit as long as the loop has not answered it.
        let mut unanswered = Vec::new();
        for _ in 0..SNAPSHOTS_MAX {
            let router = router(queries.clone());
            waiting.push(tokio::spawn(async move { router.oneshot(request()).await.unwrap().status() }));
            unanswered.push(loop_end.receiver.recv().await.unwrap());
        }
        let refused = router(queries.clone()).oneshot(request()).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        drop(unanswered);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE, "the loop has dropped them");
        }
        assert_eq!(queries.snapshots.available_permits(), SNAPSHOTS_MAX);
    }
}
