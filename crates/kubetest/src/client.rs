//! A plain HTTPS client without Kubernetes semantics.
//!
//! The suite needs malformed bodies, invalid headers and partially read streams, which Kubernetes clients do not support.
//! HTTP/1.1 only; one connection is reused for ordinary requests, and every stream has its own.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Timeout of an ordinary request; the slowest of the suite waits for the timeout of a webhook.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the CA certificate of the server is invalid: {0}")]
    Authority(String),
    #[error("cannot connect to {address}")]
    Connect {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the connection broke")]
    Http(#[from] hyper::Error),
    #[error("no response within {} s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
}

#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    connector: TlsConnector,
}

/// A client with one reused connection.
pub struct Client {
    server: Server,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// A response with its complete body.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A response whose body is read line by line.
pub struct Lines {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    pending: BytesMut,
    _connection: SendRequest<Full<Bytes>>,
}

impl Server {
    /// `authority` is the CA certificate of the server, as PEM.
    pub fn new(address: SocketAddr, authority: &str) -> Result<Self, Error> {
        let invalid = |error: &dyn std::fmt::Display| Error::Authority(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.map_err(|error| invalid(&error))?).map_err(|error| invalid(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request on a new connection, and returns a stream of lines.
    pub async fn stream(&self, request: Request<Full<Bytes>>) -> Result<Lines, Error> {
        let mut connection = self.connect().await?;
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, connection.send_request(request));
        let (head, body) = response.await.map_err(|_| Error::Timeout)??.into_parts();
        let pending = BytesMut::new();
        Ok(Lines { status: head.status, headers: head.headers, body, pending, _connection: connection })
    }

    /// Opens a connection, for callers that read bodies incrementally.
    pub async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let failed = |source| Error::Connect { address: self.address, source };
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.connector.connect(name, stream).await.map_err(failed)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The pending request returns the same error.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// Decodes base64 text, such as certificates in a kubeconfig.
pub fn decode(text: &str) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    String::from_utf8(bytes).ok()
}

impl Client {
    pub fn new(server: Server) -> Self {
        Self { server, connection: None }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Sends a request and reads the complete response.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response, Error> {
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            Some(_) | None => self.server.connect().await?,
        };
        let exchange = async {
            connection.ready().await?;
            let (head, body) = connection.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Response { status: head.status, headers: head.headers, body })
        };
        let response =
            tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await.map_err(|_| Error::Timeout)??;
        self.connection = Some(connection);
        Ok(response)
    }
}

impl Lines {
    /// The next line without its line break; `None` at the end of the body.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1).freeze();
                return Ok(Some(line.slice(..end)));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                None if self.pending.is_empty() => return Ok(None),
                None => return Ok(Some(self.pending.split().freeze())),
            }
        }
    }

    /// The rest of the body.
    pub async fn rest(self) -> Result<Bytes, Error> {
        let rest = self.body.collect().await?.to_bytes();
        let mut all = self.pending;
        all.extend_from_slice(&rest);
        Ok(all.freeze())
    }
}
