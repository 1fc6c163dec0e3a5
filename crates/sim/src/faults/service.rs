//! The service that a client talks to: it passes requests on, or does something worse.

use super::{Client, Faults, Outage, lineage, stream};
use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{Service, ServiceExt as _};

/// The largest answer that is looked at as a whole.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// A service as one client meets it.
#[derive(Clone, Debug)]
pub struct FaultyService<S> {
    faults: Faults,
    client: String,
    /// In which of their lives the client and those that it is below are, the outermost first.
    lives: Vec<u64>,
    inner: S,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Delayed(Duration),
    Refused(StatusCode),
    /// The server is in trouble.
    Out(Outage),
    LostBefore(Duration),
    LostAfter(Duration),
    /// The client dies, or is dead already.
    Never,
}

impl<S> FaultyService<S> {
    pub(super) fn new(faults: Faults, client: &str, inner: S) -> Self {
        let lives = lineage(client).map(|name| faults.life(name).get()).collect();
        Self { faults, client: client.to_owned(), lives, inner }
    }
}

impl<S, B> Service<Request<B>> for FaultyService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<tower::BoxError> + Send,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, tower::BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let faulty = self.clone();
        let request = request.map(Body::new);
        Box::pin(async move { faulty.answer(request).await })
    }
}

impl<S> FaultyService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<tower::BoxError> + Send,
    S::Future: Send,
{
    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"));
        let what = format!("{} {}", request.method(), request.uri());
        let fate = self.fate(request.method(), request.uri().path(), watches);
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await?;
        self.faults.journal.note(&self.client, &format!("asks {what} {fate:?}"), &body);
        let request = Request::from_parts(parts, Body::from(body));
        match fate {
            Fate::Passed => {}
            Fate::Delayed(wait) => tokio::time::sleep(wait).await,
            Fate::Refused(status) => return Ok(refusal(status)),
            Fate::Out(outage) => return Ok(out(&outage)),
            Fate::LostBefore(wait) => return Err(unanswered(wait).await.into()),
            Fate::LostAfter(wait) => {
                let response = self.inner.oneshot(request).await.map_err(Into::into)?;
                drop(response);
                return Err(unanswered(wait).await.into());
            }
            Fate::Never => return std::future::pending().await,
        }
        let response = self.inner.oneshot(request).await.map_err(Into::into)?;
        if watches && response.status().is_success() {
            return Ok(stream::watch(&self.faults, &self.client, response));
        }
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await?;
        self.faults.journal.note(&self.client, &format!("gets {what} {}", parts.status), &body);
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

impl<S> FaultyService<S> {
    /// What happens to a request: the first misfortune on its way.
    fn fate(&self, method: &Method, path: &str, watches: bool) -> Fate {
        let mut names = lineage(&self.client).zip(&self.lives);
        let hurt = names.find_map(|(name, life)| {
            let fate = self.faults.with(name, |client| fate(client, *life, method, path, watches));
            (fate != Fate::Passed).then_some(fate)
        });
        hurt.unwrap_or(Fate::Passed)
    }
}

fn fate(client: &mut Client, life: u64, method: &Method, path: &str, watches: bool) -> Fate {
    let rates = client.rates;
    if client.life.get() != life {
        return Fate::Never;
    }
    let ordered = client.crash_at.is_some_and(|at| client.counts.requests >= at);
    if ordered || client.happens(rates.crash) {
        client.die();
        return Fate::Never;
    }
    client.counts.requests += 1;
    let partitioned = client.partition.get();
    let fate = if partitioned || client.happens(rates.timeout_before) {
        let wait = if rates.timeout.is_zero() { Duration::from_secs(10) } else { rates.timeout };
        Fate::LostBefore(wait)
    } else if let Some(outage) = client.outage.as_ref().filter(|outage| outage.hits(method, path)) {
        Fate::Out(outage.clone())
    } else if watches {
        if client.happens(rates.expired) { Fate::Refused(StatusCode::GONE) } else { Fate::Passed }
    } else if *method != Method::GET && client.happens(rates.conflict) {
        Fate::Refused(StatusCode::CONFLICT)
    } else if client.happens(rates.timeout_after) {
        Fate::LostAfter(rates.timeout)
    } else if client.happens(rates.slow) {
        Fate::Delayed(client.delay())
    } else {
        Fate::Passed
    };
    if fate != Fate::Passed {
        client.counts.requests_hurt += 1;
    }
    fate
}

async fn unanswered(wait: Duration) -> io::Error {
    tokio::time::sleep(wait).await;
    io::Error::new(io::ErrorKind::TimedOut, "no answer came")
}

fn refusal(code: StatusCode) -> Response<Body> {
    let reason = if code == StatusCode::GONE { "Expired" } else { "Conflict" };
    answer(code, reason, &format!("{reason}: a simulated fault"), 0)
}

fn out(outage: &Outage) -> Response<Body> {
    let code = StatusCode::from_u16(outage.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = if code == StatusCode::TOO_MANY_REQUESTS { "TooManyRequests" } else { "InternalError" };
    answer(code, reason, &outage.message, outage.retry_after)
}

fn answer(code: StatusCode, reason: &str, message: &str, retry_after: u32) -> Response<Body> {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code.as_u16(),
        "reason": reason, "message": message,
    });
    if retry_after > 0 {
        status["details"] = json!({"retryAfterSeconds": retry_after});
    }
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static("application/json"));
    if retry_after > 0 {
        headers.insert("retry-after", http::HeaderValue::from(retry_after));
    }
    response
}
