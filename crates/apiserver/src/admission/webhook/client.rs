//! Calls a webhook over HTTPS or in process.

use super::WebhookResponse;
use super::hook::Webhook;
use super::pool::Pool;
use super::request::AdmissionRequest;
use super::response::AdmissionResponse;
use crate::server::Core;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

/// Limit of the response body, the same as for request bodies.
const RESPONSE_BYTES_MAX: usize = 3 << 20;

/// The `clientConfig` of a webhook: its address and the CA bundle.
#[derive(Debug)]
pub(super) struct Client {
    host: String,
    port: u16,
    /// As written in the configuration, with `https://`.
    url: String,
    /// Name and namespace of the Service, if the webhook is referenced as one.
    service: Option<String>,
    tls: Option<Arc<ClientConfig>>,
    pool: Pool,
}

impl Client {
    pub(super) fn of(config: &Value) -> Self {
        let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (url, service) = match config.get("service") {
            Some(service) => {
                let (name, namespace) = (text("/service/name"), text("/service/namespace"));
                let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
                let path = text("/service/path");
                (format!("https://{name}.{namespace}.svc:{port}{path}"), Some(name.to_owned()))
            }
            None => (text("/url").to_owned(), None),
        };
        let rest = url.strip_prefix("https://").unwrap_or(&url);
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().unwrap_or(443)),
            None => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Self { host, port, service, tls: trust(text("/caBundle")), url, pool: Pool::default() }
    }

    fn path(&self) -> &str {
        let rest = self.url.strip_prefix("https://").unwrap_or(&self.url);
        rest.find('/').map_or("/", |at| &rest[at..])
    }
}

/// A TLS configuration that trusts only the given CA bundle.
fn trust(bundle: &str) -> Option<Arc<ClientConfig>> {
    let pem = STANDARD.decode(bundle).ok()?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Sends an `AdmissionReview` and returns the response, or why there is none.
pub(super) async fn call(
    core: &Core,
    hook: &Webhook,
    request: &AdmissionRequest<'_>,
) -> Result<AdmissionResponse, String> {
    let client = &hook.client;
    let query = format!("?timeout={}s", hook.timeout.as_secs());
    let failed = |why: &str| format!("failed to call webhook: Post \"{}{query}\": {why}", client.url);
    let review = Bytes::from(request.to_json());
    let call: BoxFuture<'_, WebhookResponse> = Box::pin(post(core, client, &query, review.clone()));
    let call = match core.webhooks.transport.get() {
        Some(transport) => transport.call(&client.host, &review, call),
        None => call,
    };
    let (code, body) = match tokio::time::timeout(hook.timeout, call).await {
        Ok(Ok(response)) => response,
        Ok(Err(why)) => return Err(failed(&why)),
        Err(_) => return Err(failed("context deadline exceeded")),
    };
    if !(200..300).contains(&code) {
        return Err(format!("failed to call webhook: {}", status_code_error(code, &body)));
    }
    AdmissionResponse::read(&body, &request.uid)
}

/// The error of client-go for a status code other than success.
fn status_code_error(code: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => {
            "the server has received too many requests and has asked us to try again later".to_owned()
        }
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request"
            .to_owned(),
        500.. => {
            let shown = if text.is_empty() { "unknown" } else { text };
            format!("an error on the server (\"{shown}\") has prevented the request from succeeding")
        }
        _ => "the server responded with the status code but did not return more information".to_owned(),
    }
}

async fn post(core: &Core, client: &Client, query: &str, body: Bytes) -> WebhookResponse {
    let uri = format!("{}{query}", client.path());
    let request = Request::post(uri)
        .header("host", format!("{}:{}", client.host, client.port))
        .header("content-type", "application/json")
        .header("accept", "application/json");
    if let Some(service) = core.webhooks.service(&client.host) {
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let response = service.oneshot(request).await.unwrap_or_else(|never| match never {});
        return collect(response).await;
    }
    if let Some(name) = &client.service {
        return Err(format!("service \"{name}\" not found"));
    }
    let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
    let (mut connection, response) = client.pool.send(request, || connect(client)).await?;
    let response = collect(response).await?;
    if connection.ready().await.is_ok() {
        client.pool.release(connection);
    }
    Ok(response)
}

async fn connect(client: &Client) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let (host, port) = (&*client.host, client.port);
    let tcp = TcpStream::connect((host, port)).await.map_err(|error| {
        let why = if error.kind() == std::io::ErrorKind::ConnectionRefused {
            "connect: connection refused".to_owned()
        } else {
            error.to_string()
        };
        format!("dial tcp {host}:{port}: {why}")
    })?;
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let config = client.tls.clone().ok_or_else(|| unknown.to_owned())?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    TlsConnector::from(config).connect(name, tcp).await.map_err(|error| {
        let text = error.to_string();
        if text.contains("UnknownIssuer") { unknown.to_owned() } else { format!("tls: {text}") }
    })
}

async fn collect<B>(response: Response<B>) -> WebhookResponse
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
    let body = body.collect().await.map_err(|error| error.to_string())?;
    Ok((code, body.to_bytes()))
}
