//! The HTTP transport: HTTP/2 where the server offers it, and keepalives on every connection.
//!
//! A server or load balancer that vanishes without a reset leaves connections that look healthy and stay silent: a watch
//! would wait for its next event until the server's own time limit. HTTP/2 pings show it, also behind a proxy that still
//! accepts data. HTTP/1.1 has no pings; there the kernel probes the peer.

use super::Error;
use crate::metrics::requests::RequestMetrics;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder};

/// HTTP/2 flow control window of a stream, as in Go's client.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// HTTP/2 flow control window of a connection, as in Go's client: a watch that is read slowly must not stop the others.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// TCP keepalive probes without an answer before the connection counts as broken.
const PROBES: u32 = 3;

/// When a silent connection counts as broken: `idle` and `timeout` together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keepalive {
    /// Silence after which the peer is asked for a sign of life.
    pub(super) idle: Duration,
    /// How long the answer may take.
    pub(super) timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(15), timeout: Duration::from_secs(15) }
    }
}

pub(super) fn client(
    config: Config,
    keepalive: Keepalive,
    metrics: RequestMetrics,
) -> Result<kube::Client, Error> {
    let url = config.cluster_url.to_string();
    let failed = |source| Error::Client { url: url.clone(), source };
    if config.proxy_url.is_some() {
        // Returns the error that says which feature is missing.
        return kube::Client::try_from(config).map_err(failed);
    }
    let mut connector = TimeoutConnector::new(connector(&config, keepalive, &failed)?);
    connector.set_connect_timeout(config.connect_timeout);
    let hyper: Client<_, Body> = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(keepalive.idle)
        .http2_keep_alive_timeout(keepalive.timeout)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .service_fn(move |request| measured(hyper.clone(), request, metrics.clone()));
    Ok(kube::Client::new(service, config.default_namespace))
}

/// Sends one request and counts it.
async fn measured<C: Connect + Clone + Send + Sync + 'static>(
    client: Client<C, Body>,
    request: Request<Body>,
    metrics: RequestMetrics,
) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
    let method = request.method().clone();
    let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let began = Instant::now();
    let response = client.request(request).await;
    let code = response.as_ref().ok().map(Response::status);
    metrics.observe(&method, &host, code, began.elapsed());
    response
}

/// Plain or TLS connections that the kernel probes.
fn connector(
    config: &Config,
    keepalive: Keepalive,
    failed: &impl Fn(kube::Error) -> Error,
) -> Result<HttpsConnector<HttpConnector>, Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(keepalive.idle));
    tcp.set_keepalive_interval(Some(keepalive.timeout / PROBES));
    tcp.set_keepalive_retries(Some(PROBES));
    // Keepalive probes are sent only while nothing is in flight; this limits how long data may stay unacknowledged.
    tcp.set_tcp_user_timeout(Some(keepalive.idle + keepalive.timeout));
    let tls = config.rustls_client_config().map_err(failed)?;
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let invalid = |_| Error::ServerName { name: name.clone() };
        let name = rustls::pki_types::ServerName::try_from(name.clone()).map_err(invalid)?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().enable_http2().wrap_connector(tcp))
}
