//! `kai simulate --listen`: KAI's fair share simulator over HTTP.
//!
//! `POST /simulate` takes a request as JSON and returns the fair shares by queue. A request is bounded in size and time,
//! and so is the number of requests at once.

use super::fair_share::FairShareRequest;
use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use kai_components::signals::ShutdownSignals;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// About ten thousand queues.
const BODY_BYTES_MAX: usize = 2 << 20;
/// How long a client may take to send its request, and the division to finish.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const REQUESTS_MAX: usize = 16;

#[derive(Clone, Debug)]
struct Simulator {
    permits: Arc<Semaphore>,
    allows_any_origin: bool,
}

pub(super) fn run(address: &str, allows_any_origin: bool) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        let (listener, bound) = kai_runtime::http::listen(address).await.with_context(|| {
            format!("cannot listen on `{address}`; hint: give a free address such as 127.0.0.1:8080")
        })?;
        crate::print(&format!("POST requests to http://{bound}/simulate; Ctrl-C ends the simulator\n"))?;
        let mut signals = ShutdownSignals::listen()?;
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        let simulator = Simulator { permits, allows_any_origin };
        tokio::select! {
            served = kai_runtime::http::serve(listener, router(simulator)) => served.context("the server failed")?,
            () = signals.wait() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn router(simulator: Simulator) -> Router {
    Router::new().fallback(handle).with_state(simulator)
}

async fn handle(State(simulator): State<Simulator>, request: Request) -> Response {
    let mut response = answer(&simulator, request)
        .await
        .unwrap_or_else(|(status, text)| (status, text + "\n").into_response());
    if simulator.allows_any_origin {
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
            (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, OPTIONS"),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

type Refusal = (StatusCode, String);

async fn answer(simulator: &Simulator, request: Request) -> Result<Response, Refusal> {
    let refuse = |status: StatusCode, text: &str| Err((status, text.to_owned()));
    if request.uri().path() != "/simulate" {
        return refuse(StatusCode::NOT_FOUND, "not found; hint: the simulator is at /simulate");
    }
    if *request.method() == Method::OPTIONS && simulator.allows_any_origin {
        return Ok(StatusCode::OK.into_response());
    }
    if *request.method() != Method::POST {
        let text = format!("{} is not supported; hint: send a POST request", request.method());
        return refuse(StatusCode::METHOD_NOT_ALLOWED, &text);
    }
    let Ok(_permit) = simulator.permits.try_acquire() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once; hint: try again");
    };
    let body = read_body(request.into_body()).await?;
    let divided = tokio::task::spawn_blocking(move || shares(&body));
    match timeout(REQUEST_TIMEOUT, divided).await {
        Ok(Ok(Ok(json))) => Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response()),
        Ok(Ok(Err(problem))) => Err((StatusCode::BAD_REQUEST, format!("{problem:#}"))),
        Ok(Err(_)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the division failed; hint: report a bug"),
        Err(_) => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, "the division takes too long; hint: send fewer queues")
        }
    }
}

async fn read_body(body: Body) -> Result<Vec<u8>, Refusal> {
    let seconds = REQUEST_TIMEOUT.as_secs();
    let too_slow = || (StatusCode::REQUEST_TIMEOUT, format!("the request took longer than {seconds} s"));
    let too_large = || {
        let text = format!(
            "the request cannot be read, or has more than {BODY_BYTES_MAX} bytes; hint: send fewer queues"
        );
        (StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let read = timeout(REQUEST_TIMEOUT, to_bytes(body, BODY_BYTES_MAX)).await.map_err(|_| too_slow())?;
    read.map(Vec::from).map_err(|_| too_large())
}

/// The fair shares of a request, as JSON.
fn shares(body: &[u8]) -> Result<String> {
    let value = serde_json::from_slice(body)
        .context("the request is not JSON; hint: send an object with `totalResource` and `queues`")?;
    FairShareRequest::read("request", &value)?.json()
}
