//! What a scheduler tells over HTTP: a snapshot of what it sees, the order of groups, and why one waits.

use crate::heart::Heart;
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

/// A question to the heart.
#[derive(Debug)]
pub enum Query {
    /// Everything that is seen, in KAI's form.
    Snapshot(oneshot::Sender<Result<Vec<u8>, String>>),
    /// In which order groups are looked at.
    JobOrder(oneshot::Sender<Value>),
    /// Why a group waits.
    Explain(Key, oneshot::Sender<Option<Value>>),
}

/// Asks the heart; clones ask the same.
#[derive(Clone, Debug)]
pub struct Queries {
    sender: mpsc::Sender<Query>,
}

/// A channel for questions, and the end that the heart reads.
pub fn queries() -> (Queries, mpsc::Receiver<Query>) {
    let (sender, receiver) = mpsc::channel(16);
    (Queries { sender }, receiver)
}

impl Queries {
    async fn ask<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, StatusCode> {
        let (answer, asked) = oneshot::channel();
        self.sender.send(query(answer)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        asked.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// Serves questions.
pub fn router(queries: Queries) -> Router {
    Router::new()
        .route("/get-snapshot", get(snapshot))
        .route("/get-job-order", get(job_order))
        .route("/explain/{namespace}/{group}", get(explain_group))
        .with_state(queries)
}

async fn snapshot(State(queries): State<Queries>) -> Result<Response, Response> {
    let answer = queries.ask(Query::Snapshot).await.map_err(IntoResponse::into_response)?;
    let zip = answer.map_err(|why| (StatusCode::INTERNAL_SERVER_ERROR, why).into_response())?;
    let headers = [
        (header::CONTENT_TYPE, "application/zip"),
        (header::CONTENT_DISPOSITION, "attachment; filename=snapshot.zip"),
    ];
    Ok((headers, zip).into_response())
}

async fn job_order(State(queries): State<Queries>) -> Result<Response, StatusCode> {
    json_response(&queries.ask(Query::JobOrder).await?)
}

async fn explain_group(
    State(queries): State<Queries>,
    Path((namespace, group)): Path<(String, String)>,
) -> Result<Response, StatusCode> {
    let answer = queries.ask(|answer| Query::Explain(Key::new(namespace, group), answer)).await?;
    json_response(&answer.ok_or(StatusCode::NOT_FOUND)?)
}

fn json_response(value: &Value) -> Result<Response, StatusCode> {
    let text = serde_json::to_string_pretty(value).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Answers a question. Whoever no longer waits for the answer does not get it.
pub(crate) fn answer(heart: &mut Heart, query: Query) {
    match query {
        Query::Snapshot(to) => {
            let _ = to.send(zip(heart));
        }
        Query::JobOrder(to) => {
            let _ = to.send(order_of(heart));
        }
        Query::Explain(group, to) => {
            let _ = to.send(heart.verdicts.get(&group).map(verdict).or_else(|| placed(heart, &group)));
        }
    }
}

fn zip(heart: &Heart) -> Result<Vec<u8>, String> {
    let cycle = Cycle { now: heart.now(), seed: heart.options.seed };
    let store = heart.cache.store();
    let contents = Contents {
        config: &heart.options.config,
        params: &heart.options.snapshot_params(),
        objects: store.objects(),
        replay: &Replay::of(store, cycle),
        discovery: None,
    };
    let mut bytes = Cursor::new(Vec::new());
    write_zip(contents, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.into_inner())
}

fn order_of(heart: &mut Heart) -> Value {
    let (policy, now) = (heart.everything().clone(), heart.now());
    let cluster = heart.cache.cluster_mut();
    let order = listing::pending(cluster, &policy, now);
    let entry = |(name, priority): &(String, i32)| json!({"id": name, "priority": priority});
    let queues: serde_json::Map<String, Value> = order
        .queues
        .iter()
        .map(|(queue, groups)| (queue.clone(), groups.iter().map(entry).collect()))
        .collect();
    json!({"global_order": order.all.iter().map(entry).collect::<Vec<_>>(), "queue_order": queues})
}

/// A verdict for programs and people.
pub fn verdict(group: &GroupVerdict) -> Value {
    let said = |verdict: &Verdict| {
        let sentence = explain::plain(verdict, &group.queue);
        json!({"message": sentence.text, "hint": sentence.hint})
    };
    json!({
        "namespace": group.group.namespace, "name": group.group.name, "queue": group.queue,
        "pending": group.pending,
        "leading": said(&group.leading),
        "further": group.further.iter().map(said).collect::<Vec<_>>(),
    })
}

/// A group that waits for nothing.
fn placed(heart: &Heart, key: &Key) -> Option<Value> {
    let group = heart.cache.store().objects().pod_groups.get(key)?;
    Some(json!({
        "namespace": key.namespace, "name": key.name, "queue": group.spec.queue, "pending": 0,
        "leading": {"message": "no pod of it waits for a place", "hint": null}, "further": [],
    }))
}
