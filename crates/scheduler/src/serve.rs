//! HTTP endpoints of the scheduler: a snapshot of its objects, the job order, and the verdict of a group.

use crate::scheduler_loop::SchedulerLoop;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kai_cache::snapshot::{Contents, Replay, write_zip};
use kai_engine::Cycle;
use kai_engine::explain;
use kai_engine::input::Key;
use kai_engine::order::listing;
use kai_engine::verdict::{GroupVerdict, Verdict};
use serde_json::{Value, json};
use std::io::Cursor;
use tokio::sync::{mpsc, oneshot};

/// A request to the scheduler loop, with the channel of its response.
#[derive(Debug)]
pub enum Query {
    /// A zip file of all objects, in KAI's snapshot format.
    Snapshot(oneshot::Sender<Result<Vec<u8>, String>>),
    /// The order in which pending groups are attempted.
    JobOrder(oneshot::Sender<Value>),
    /// Why a group is pending.
    Explain(Key, oneshot::Sender<Option<Value>>),
}

/// A handle for requests to the scheduler loop.
#[derive(Clone, Debug)]
pub struct Queries {
    sender: mpsc::Sender<Query>,
}

/// The channel of requests: the handle, and the end that the scheduler loop receives from.
pub fn queries() -> (Queries, mpsc::Receiver<Query>) {
    let (sender, receiver) = mpsc::channel(16);
    (Queries { sender }, receiver)
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
        .with_state(queries)
}

async fn snapshot(State(queries): State<Queries>) -> Result<Response, Response> {
    let result = queries.send(Query::Snapshot).await.map_err(IntoResponse::into_response)?;
    let zip = result.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error).into_response())?;
    let headers = [
        (header::CONTENT_TYPE, "application/zip"),
        (header::CONTENT_DISPOSITION, "attachment; filename=snapshot.zip"),
    ];
    Ok((headers, zip).into_response())
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
        Query::Snapshot(to) => {
            let _ = to.send(zip(scheduler));
        }
        Query::JobOrder(to) => {
            let _ = to.send(order_of(scheduler));
        }
        Query::Explain(group, to) => {
            let _ =
                to.send(scheduler.verdicts.get(&group).map(verdict).or_else(|| placed(scheduler, &group)));
        }
    }
}

fn zip(scheduler: &SchedulerLoop) -> Result<Vec<u8>, String> {
    let cycle = Cycle { now: scheduler.now(), seed: scheduler.options.seed };
    let store = scheduler.cache.store();
    let contents = Contents {
        config: &scheduler.options.config,
        params: &scheduler.options.snapshot_params(),
        objects: store.objects(),
        replay: &Replay::of(store, cycle),
        discovery: None,
    };
    let mut bytes = Cursor::new(Vec::new());
    write_zip(contents, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.into_inner())
}

fn order_of(scheduler: &mut SchedulerLoop) -> Value {
    let (policy, now) = (scheduler.policy().clone(), scheduler.now());
    let cluster = scheduler.cache.cluster_mut();
    let order = listing::pending(cluster, &policy, now);
    let entry = |(name, priority): &(String, i32)| json!({"id": name, "priority": priority});
    let queues: serde_json::Map<String, Value> = order
        .queues
        .iter()
        .map(|(queue, groups)| (queue.clone(), groups.iter().map(entry).collect()))
        .collect();
    json!({"global_order": order.all.iter().map(entry).collect::<Vec<_>>(), "queue_order": queues})
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
