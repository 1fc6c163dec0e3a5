//! HTTP handlers of plugins. Each request runs on a thread of its own, so that a handler that panics or does not return
//! fails only its request.

use super::Queries;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kai_engine::plugin::{HttpHandler, HttpRequest, HttpResponse, Registry};
use parking_lot::RwLock;
use prometheus::CounterVec;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a handler may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The most requests that one handler answers at the same time.
const CONCURRENT_MAX: usize = 4;
/// The largest body of a request.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The handlers of the plugins in effect; clones share them. Empty until the scheduler leads, as in KAI.
#[derive(Clone, Default)]
pub(crate) struct PluginHandlers(Arc<RwLock<BTreeMap<String, Handler>>>);

impl std::fmt::Debug for PluginHandlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.read().keys()).finish()
    }
}

#[derive(Clone)]
struct Handler {
    plugin: String,
    inner: Arc<dyn HttpHandler>,
    /// A handler that does not return keeps its permit.
    permits: Arc<Semaphore>,
    failures: CounterVec,
}

impl PluginHandlers {
    /// Replaces the handlers.
    pub(crate) fn set(&self, registry: &Registry, failures: &CounterVec) {
        let entry = |(plugin, path, handler): (&str, &str, &Arc<dyn HttpHandler>)| {
            let handler = Handler {
                plugin: plugin.to_owned(),
                inner: Arc::clone(handler),
                permits: Arc::new(Semaphore::new(CONCURRENT_MAX)),
                failures: failures.clone(),
            };
            (path.to_owned(), handler)
        };
        *self.0.write() = registry.http_handlers().map(entry).collect();
    }
}

/// Answers requests to paths that are not the scheduler's own.
pub(super) async fn answer(State(queries): State<Queries>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let Some(handler) = queries.handlers.0.read().get(path).cloned() else {
        let known: Vec<String> = queries.handlers.0.read().keys().cloned().collect();
        let message = format!("no plugin serves `{path}`; paths of plugins: {}", known.join(", "));
        return (StatusCode::NOT_FOUND, message).into_response();
    };
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 1 MiB").into_response();
    };
    let request = HttpRequest {
        method: parts.method.to_string(),
        path: path.to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        body: body.to_vec(),
    };
    handler.answer(request).await
}

impl Handler {
    async fn answer(self, request: HttpRequest) -> Response {
        let plugin = &self.plugin;
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let message = format!("plugin `{plugin}` is busy with {CONCURRENT_MAX} requests");
            return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
        };
        let handler = Arc::clone(&self.inner);
        let answered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            catch_unwind(AssertUnwindSafe(|| handler.answer(&request)))
        });
        let (reason, status, message) = match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
            Ok(Ok(Ok(response))) => return into_response(response),
            Ok(Ok(Err(_)) | Err(_)) => {
                ("panic", StatusCode::INTERNAL_SERVER_ERROR, format!("plugin `{plugin}` panicked"))
            }
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                let message = format!("plugin `{plugin}` did not answer within {seconds} s");
                ("timeout", StatusCode::GATEWAY_TIMEOUT, message)
            }
        };
        tracing::error!(plugin, reason, "HTTP handler of a plugin failed");
        self.failures.with_label_values(&[plugin.as_str(), reason]).inc();
        (status, message).into_response()
    }
}

fn into_response(response: HttpResponse) -> Response {
    let HttpResponse { status, content_type, body } = response;
    let built = Response::builder().status(status).header(header::CONTENT_TYPE, content_type);
    built.body(Body::from(body)).unwrap_or_else(|error| {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("the plugin's response is invalid: {error}"))
            .into_response()
    })
}
