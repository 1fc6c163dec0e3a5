//! Serves the API over HTTPS with generated certificates.

use super::connection_limits::LimitedAcceptor;
use super::{Authenticator, router};
use crate::server::Core;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::TokioTimer;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Time limit of the TLS handshake and of the request head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Limit of concurrent HTTP/2 streams of a connection.
const STREAMS_MAX: u32 = 1_000;
/// HTTP/2 flow control window of a stream and of a connection.
const WINDOW_BYTES: u32 = 1 << 20;
/// Limit of the request head.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// Time that requests in progress get at shutdown.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use or not local.
    #[error("cannot listen on {address}\nhint: choose another address or port")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot generate a certificate")]
    Certificate(#[source] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot write kubeconfig `{path}`")]
    Kubeconfig {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// A listening server. Dropping it stops the server.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    handle: Handle<SocketAddr>,
    task: JoinHandle<io::Result<()>>,
}

impl Listening {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The CA certificate that clients must trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.handle.connection_count()
    }

    /// A kubeconfig with the administrator's token.
    pub fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kai", "cluster": {
                "server": self.url(),
                "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{"name": "kai-admin", "user": {"token": self.token}}],
            "contexts": [{"name": "kai", "context": {"cluster": "kai", "user": "kai-admin", "namespace": "default"}}],
            "current-context": "kai",
        });
        super::respond::yaml(&config)
    }

    /// Writes the kubeconfig to a file that only its owner can read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::Kubeconfig { path: path.display().to_string(), source };
        // Truncating a file would keep its mode, which may permit others to read it.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(self.kubeconfig().as_bytes()).map_err(failed)
    }

    /// Stops listening; requests in progress get a short time to finish.
    pub async fn stop(mut self) {
        self.handle.graceful_shutdown(Some(SHUTDOWN_TIME));
        // The result of the task is not needed.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.task.abort();
    }
}

/// Listens on an address; port 0 selects a free one.
pub fn listen(core: &Arc<Core>, address: SocketAddr) -> Result<Listening, Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (config, ca_pem) = certificates(address)?;
    let handle = Handle::new();
    let tls =
        RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config))).handshake_timeout(HEAD_TIME_MAX);
    let acceptor = LimitedAcceptor::new(tls);
    let mut server =
        axum_server::from_tcp(listener).map_err(failed)?.handle(handle.clone()).acceptor(acceptor);
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES * 4)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let service = router(Arc::clone(core), Authenticator::Token).into_make_service();
    let task = tokio::spawn(server.serve(service));
    Ok(Listening { address, ca_pem, token: core.admin_token.clone(), handle, task })
}

/// A server certificate signed by a generated CA, and the CA certificate.
fn certificates(address: SocketAddr) -> Result<(rustls::ServerConfig, String), Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name = named("kai-apiserver-ca");
    let authority_key = KeyPair::generate().map_err(Error::Certificate)?;
    let ca = authority.self_signed(&authority_key).map_err(Error::Certificate)?;

    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default"].map(str::to_owned).to_vec();
    names.extend(["kubernetes.default.svc", "kubernetes.default.svc.cluster.local"].map(str::to_owned));
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_string());
    }
    let mut server = CertificateParams::new(names).map_err(Error::Certificate)?;
    server.distinguished_name = named("kai-apiserver");
    let key = KeyPair::generate().map_err(Error::Certificate)?;
    let issuer = Issuer::new(authority, authority_key);
    let certificate = server.signed_by(&key, &issuer).map_err(Error::Certificate)?;

    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(Error::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, ca.pem()))
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
