//! The service of one client: forwards requests to the API server, or injects a fault.

use super::rights::Needed;
use super::{Client, Faults, Outage, lineage, watch_stream};
use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use serde_json::json;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{Service, ServiceExt as _};

/// Limit of a body that is read as a whole.
const BODY_BYTES_MAX: usize = 1 << 30;

/// The service of one incarnation of a client.
#[derive(Clone, Debug)]
pub struct FaultyService<S> {
    faults: Faults,
    client: String,
    /// Incarnations of the ancestors, root first, and of the client.
    incarnations: Vec<u64>,
    inner: S,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Passed,
    Delayed(Duration),
    /// The response is delayed.
    Late(Duration),
    Rejected(StatusCode),
    Outage(Outage),
    /// With the server's message.
    Forbidden(String),
    LostBefore(Duration),
    LostAfter(Duration),
    /// The body of the response ends in the middle.
    Torn,
    /// A page of a load balancer.
    Foreign(StatusCode),
    /// The client has crashed: its requests never complete.
    Crashed,
}

impl<S> FaultyService<S> {
    pub(super) fn new(faults: Faults, client: &str, inner: S) -> Self {
        let incarnations = lineage(client).map(|name| faults.incarnation(name).get()).collect();
        Self { faults, client: client.to_owned(), incarnations, inner }
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
        Box::pin(async move { faulty.respond(request).await })
    }
}

impl<S> FaultyService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<tower::BoxError> + Send,
    S::Future: Send,
{
    async fn respond(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let read = Read::of(request.uri());
        let what = format!("{} {}", request.method(), request.uri());
        let fault = self.fault(request.method(), request.uri().path(), read);
        let (watches, partitions) = (read == Read::Watch, self.partitions());
        let (mut parts, body) = request.into_parts();
        if let Some(uri) = self.small_page(&parts.uri) {
            parts.uri = uri;
        }
        let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await?;
        self.faults.journal.note(&self.client, &format!("request {what} {fault:?}"), &body);
        let request = Request::from_parts(parts, Body::from(body));
        let (mut late, is_torn) = (Duration::ZERO, fault == Fault::Torn);
        match fault {
            Fault::Passed | Fault::Torn => {}
            Fault::Foreign(status) => return Ok(foreign_page(status)),
            Fault::Delayed(wait) => {
                tokio::time::sleep(wait).await;
                if self.partitions() != partitions {
                    return Err(broken().into());
                }
            }
            Fault::Late(wait) => late = wait,
            Fault::Rejected(status) => return Ok(rejection(status)),
            Fault::Outage(outage) => return Ok(outage_response(&outage)),
            Fault::Forbidden(message) => {
                return Ok(error_response(StatusCode::FORBIDDEN, "Forbidden", &message, 0));
            }
            Fault::LostBefore(wait) => return Err(timed_out(wait).await.into()),
            Fault::LostAfter(wait) => {
                let response = self.inner.oneshot(request).await.map_err(Into::into)?;
                drop(response);
                return Err(timed_out(wait).await.into());
            }
            Fault::Crashed => return std::future::pending().await,
        }
        let response = self.inner.clone().oneshot(request).await.map_err(Into::into)?;
        if watches && response.status().is_success() {
            return Ok(watch_stream::watch(&self.faults, &self.client, response));
        }
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await?;
        if !late.is_zero() {
            tokio::time::sleep(late).await;
            if self.partitions() != partitions {
                return Err(broken().into());
            }
        }
        self.faults.journal.note(&self.client, &format!("response {what} {}", parts.status), &body);
        if is_torn {
            let begun: Result<Bytes, io::Error> = Ok(body.slice(..body.len() / 2));
            let body = Body::from_stream(futures::stream::iter([begun, Err(broken())]));
            return Ok(Response::from_parts(parts, body));
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

impl<S> FaultyService<S> {
    /// The first fault of the client and its ancestors.
    fn fault(&self, method: &Method, path: &str, read: Read) -> Fault {
        let mut names = lineage(&self.client).zip(&self.incarnations);
        let found = names.find_map(|(name, incarnation)| {
            let fault = self.faults.with(name, |client| {
                let denial = denial(client, name, method, path, read);
                fault(client, *incarnation, method, path, read, denial)
            });
            (fault != Fault::Passed).then_some(fault)
        });
        found.unwrap_or(Fault::Passed)
    }

    /// Partitions of the client and its ancestors since the start.
    fn partitions(&self) -> u64 {
        lineage(&self.client).map(|name| self.faults.with(name, |client| client.partitions)).sum()
    }

    /// The request for a smaller page, where the client has small pages and asks for a larger one.
    fn small_page(&self, uri: &Uri) -> Option<Uri> {
        let mut sizes =
            lineage(&self.client).map(|name| self.faults.with(name, |client| client.rates.page_objects));
        let size = sizes.find(|size| *size > 0)?;
        let query = uri.query()?;
        let asked: u32 = query.split('&').find_map(|part| part.strip_prefix("limit=")?.parse().ok())?;
        if asked <= size {
            return None;
        }
        let query: Vec<String> = query
            .split('&')
            .map(|part| if part.starts_with("limit=") { format!("limit={size}") } else { part.to_owned() })
            .collect();
        format!("{}?{}", uri.path(), query.join("&")).parse().ok()
    }
}

/// What a `GET` request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Watch,
    /// A page of a list after the first.
    FurtherPage,
    Other,
}

impl Read {
    fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        if query.split('&').any(|part| matches!(part, "watch=true" | "watch=1")) {
            Self::Watch
        } else if query.split('&').any(|part| part.starts_with("continue=") && part != "continue=") {
            Self::FurtherPage
        } else {
            Self::Other
        }
    }
}

/// Why the rights of a client forbid a request.
fn denial(client: &mut Client, name: &str, method: &Method, path: &str, read: Read) -> Option<String> {
    let rights = client.rights.as_ref()?;
    let needed = Needed::of(method, path, read == Read::Watch)?;
    if needed.is_granted_by(rights) {
        return None;
    }
    client.denied.insert(needed.right.clone());
    Some(needed.denial(name))
}

fn fault(
    client: &mut Client,
    incarnation: u64,
    method: &Method,
    path: &str,
    read: Read,
    denial: Option<String>,
) -> Fault {
    let rates = client.rates;
    if client.incarnation.get() != incarnation {
        return Fault::Crashed;
    }
    let crash_due = client.crash_at.is_some_and(|at| client.counts.requests >= at);
    if crash_due || client.occurs(rates.crash) {
        client.crash();
        return Fault::Crashed;
    }
    client.counts.requests += 1;
    let partitioned = client.partition.get();
    let fault = if partitioned || client.occurs(rates.timeout_before) {
        let wait = if rates.timeout.is_zero() { Duration::from_secs(10) } else { rates.timeout };
        Fault::LostBefore(wait)
    } else if let Some(message) = denial {
        Fault::Forbidden(message)
    } else if let Some(outage) = client.outage.as_ref().filter(|outage| outage.applies_to(method, path)) {
        Fault::Outage(outage.clone())
    } else if read == Read::Watch {
        if client.occurs(rates.expired) { Fault::Rejected(StatusCode::GONE) } else { Fault::Passed }
    } else if read == Read::FurtherPage && client.occurs(rates.page_expired) {
        Fault::Rejected(StatusCode::GONE)
    } else if *method != Method::GET && client.occurs(rates.conflict) {
        Fault::Rejected(StatusCode::CONFLICT)
    } else if client.occurs(rates.timeout_after) {
        Fault::LostAfter(rates.timeout)
    } else if client.occurs(rates.slow) {
        Fault::Delayed(client.delay())
    } else if client.occurs(rates.response_late) {
        Fault::Late(client.delay())
    } else if client.occurs(rates.response_torn) {
        Fault::Torn
    } else if client.occurs(rates.response_foreign) {
        let is_error = client.occurs(500_000);
        Fault::Foreign(if is_error { StatusCode::BAD_GATEWAY } else { StatusCode::OK })
    } else {
        Fault::Passed
    };
    if fault != Fault::Passed {
        client.counts.faulty_requests += 1;
    }
    fault
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke")
}

async fn timed_out(wait: Duration) -> io::Error {
    tokio::time::sleep(wait).await;
    io::Error::new(io::ErrorKind::TimedOut, "the request timed out")
}

fn rejection(code: StatusCode) -> Response<Body> {
    let reason = if code == StatusCode::GONE { "Expired" } else { "Conflict" };
    error_response(code, reason, &format!("{reason}: a simulated fault"), 0)
}

fn foreign_page(code: StatusCode) -> Response<Body> {
    let page = "<html><head><title>Service unavailable</title></head><body>Please try again.</body></html>";
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = code;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/html"));
    response
}

fn outage_response(outage: &Outage) -> Response<Body> {
    let code = StatusCode::from_u16(outage.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = match code {
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        _ => "InternalError",
    };
    error_response(code, reason, &outage.message, outage.retry_after)
}

fn error_response(code: StatusCode, reason: &str, message: &str, retry_after: u32) -> Response<Body> {
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
