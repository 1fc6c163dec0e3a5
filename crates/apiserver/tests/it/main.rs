//! Client tests: `kube` in process and over HTTPS, and `kubectl`.

#![expect(clippy::unwrap_used, reason = "a panic reports where a test failed")]

mod admission;
mod crud;
mod custom_resources;
mod deletion;
mod hostile;
mod https;
mod kubectl;
mod list;
mod overload;
mod persistence;
mod requests;
mod server_side_apply;
mod strategies;
mod subresources;
mod watch;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use serde_json::Value;
use tower::ServiceExt;

/// A server with a deterministic clock and seed.
fn server() -> ApiServer {
    let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
    ApiServer::new(&Options::new(1, Clock::starting_at(epoch)))
}

fn client(server: &ApiServer) -> kube::Client {
    kube::Client::new(server.service(), "default")
}

/// Sends a raw request; returns status and body.
async fn send(
    server: &ApiServer,
    method: Method,
    path: &str,
    content_type: &str,
    body: &str,
) -> (StatusCode, Value) {
    let (status, bytes) = send_raw(server, method, path, content_type, body).await;
    let value =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes)));
    (status, value)
}

async fn send_raw(
    server: &ApiServer,
    method: Method,
    path: &str,
    content_type: &str,
    body: &str,
) -> (StatusCode, Bytes) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "test/1.0")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let response = server.service().oneshot(request.map(axum::body::Body::new)).await.unwrap();
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

async fn get(server: &ApiServer, path: &str) -> (StatusCode, Value) {
    send(server, Method::GET, path, "application/json", "").await
}

async fn post(server: &ApiServer, path: &str, body: &Value) -> (StatusCode, Value) {
    send(server, Method::POST, path, "application/json", &body.to_string()).await
}

async fn put(server: &ApiServer, path: &str, body: &Value) -> (StatusCode, Value) {
    send(server, Method::PUT, path, "application/json", &body.to_string()).await
}

async fn merge(server: &ApiServer, path: &str, body: &Value) -> (StatusCode, Value) {
    send(server, Method::PATCH, path, "application/merge-patch+json", &body.to_string()).await
}

async fn delete(server: &ApiServer, path: &str, body: &str) -> (StatusCode, Value) {
    send(server, Method::DELETE, path, "application/json", body).await
}

fn pod(name: &str) -> Value {
    serde_json::json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

fn config_map(name: &str) -> Value {
    serde_json::json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "b"}})
}
