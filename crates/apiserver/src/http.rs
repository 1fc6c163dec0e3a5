//! The HTTP layer: turns a request into a [`Call`](crate::verbs::Call), and its outcome into a response.
//!
//! One axum [`Router`] serves clients over HTTPS ([`serve`]) and, as a tower service, clients in the same process.

pub mod serve;

mod authentication;
mod body;
mod connection_limits;
mod discovery;
mod dispatch;
mod health;
mod negotiate;
mod openapi;
mod respond;
mod review;
mod route;
mod stream;
mod subresource;

pub use authentication::Authenticator;

use crate::server::Core;
use crate::status_error::StatusError;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use futures::FutureExt as _;
use http::{Request, Response};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Handler {
    core: Arc<Core>,
    authentication: Authenticator,
}

/// The server as a service; `authenticator` determines the user of a request.
pub fn router(core: Arc<Core>, authentication: Authenticator) -> Router {
    Router::new().fallback(handle).with_state(Handler { core, authentication })
}

/// Responds to a request. A panic is a defect, but must not end the process: in the embedded cluster it has all components.
async fn handle(State(handler): State<Handler>, request: Request<Body>) -> Response<Body> {
    let accept = negotiate::Accept::read(request.headers());
    let wants_yaml = accept.prefers_yaml();
    let what = format!("{} {}", request.method(), request.uri());
    let served = AssertUnwindSafe(serve_request(&handler, accept, request)).catch_unwind().await;
    match served.unwrap_or_else(|_| Err(panicked(&what))) {
        Ok(response) => response,
        Err(failure) => respond::failure(&failure, wants_yaml),
    }
}

/// The response of kube-apiserver to a request whose handler panicked.
fn panicked(what: &str) -> StatusError {
    tracing::error!(request = what, "the handler of a request panicked");
    StatusError::new(500, "", "This request caused apiserver to panic. Look in the logs for details.")
}

async fn serve_request(
    handler: &Handler,
    accept: negotiate::Accept,
    request: Request<Body>,
) -> Result<Response<Body>, StatusError> {
    let core = &handler.core;
    let path = request.uri().path();
    if let Some(response) = health::respond(path) {
        return Ok(response);
    }
    let user = handler.authentication.user(core, request.headers())?;
    authentication::check(core, &user, request.method(), path)?;
    if let Some(response) = discovery::respond(core, path, &accept) {
        return response;
    }
    if let Some(response) = openapi::respond(core, &request) {
        return response;
    }
    dispatch::dispatch(core, user, &accept, request).await
}
