//! A plain HTTPS client: sends exactly what it is given and hands back exactly what came.
//!
//! The suite needs malformed bodies, odd headers and half-read streams, which clients for Kubernetes rightly refuse
//! to send. HTTP/1.1 only; one connection is kept for ordinary requests, and every stream has its own.

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

/// How long an ordinary request may take; the suite's slowest waits for a webhook that times out.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trusted certificate is not usable.
    #[error("the server's authority is not a usable certificate: {0}")]
    Authority(String),
    /// No connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection broke")]
    Http(#[from] hyper::Error),
    /// Nothing came in time.
    #[error("no answer within {} s", ANSWER_WITHIN.as_secs())]
    Late,
}

/// A server to talk to.
#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    connector: TlsConnector,
}

/// A server together with the connection that is kept open.
pub struct Client {
    server: Server,
    kept: Option<SendRequest<Full<Bytes>>>,
}

/// A whole answer.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// An answer whose body is read line by line.
pub struct Lines {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    body: Incoming,
    pending: BytesMut,
    _connection: SendRequest<Full<Bytes>>,
}

impl Server {
    /// The server at an address, whose certificate an authority (PEM) has signed.
    pub fn new(address: SocketAddr, authority: &str) -> Result<Self, Error> {
        let bad = |error: &dyn std::fmt::Display| Error::Authority(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request on a connection of its own and leaves the body to be read line by line.
    pub async fn stream(&self, request: Request<Full<Bytes>>) -> Result<Lines, Error> {
        let mut connection = self.connect().await?;
        let answer = tokio::time::timeout(ANSWER_WITHIN, connection.send_request(request));
        let (head, body) = answer.await.map_err(|_| Error::Late)??.into_parts();
        let pending = BytesMut::new();
        Ok(Lines { status: head.status, headers: head.headers, body, pending, _connection: connection })
    }

    /// A connection of one's own, for whoever wants to handle bodies as they come.
    pub async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let failed = |source| Error::Connect { address: self.address, source };
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.connector.connect(name, stream).await.map_err(failed)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // Whoever waits for the answer sees the same error.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// The text behind base64, as kubeconfigs keep certificates; nothing where it is none.
pub fn decode(text: &str) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    String::from_utf8(bytes).ok()
}

impl Client {
    /// A client without a connection yet.
    pub fn new(server: Server) -> Self {
        Self { server, kept: None }
    }

    /// The server it talks to.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let mut connection = match self.kept.take() {
            Some(kept) if !kept.is_closed() => kept,
            Some(_) | None => self.server.connect().await?,
        };
        let whole = async {
            connection.ready().await?;
            let (head, body) = connection.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Answer { status: head.status, headers: head.headers, body })
        };
        let answer = tokio::time::timeout(ANSWER_WITHIN, whole).await.map_err(|_| Error::Late)??;
        self.kept = Some(connection);
        Ok(answer)
    }
}

impl Lines {
    /// The next line without its end, or `None` when the server ended the body.
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

    /// Everything up to the end of the body.
    pub async fn rest(self) -> Result<Bytes, Error> {
        let rest = self.body.collect().await?.to_bytes();
        let mut all = self.pending;
        all.extend_from_slice(&rest);
        Ok(all.freeze())
    }
}
