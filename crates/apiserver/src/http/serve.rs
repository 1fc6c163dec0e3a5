//! Serves the API over HTTPS, on loopback unless told otherwise, with certificates made at the start.

use super::guard::Guard;
use super::{Access, router};
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

/// How long a client may take for the handshake, and for the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How many requests one connection may have open at once.
const STREAMS_MAX: u32 = 1_000;
/// How many bytes of a request's body wait in a connection, per stream and in all.
const WINDOW_BYTES: u32 = 1 << 20;
/// The largest head of a request.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// How long requests that are under way have to end when the server stops.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Why the server could not be reached by anybody.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}\nhint: choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Certificate(#[source] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// The file with the administrator's access could not be written.
    #[error("cannot write kubeconfig `{path}`")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A server that listens. It stops when this is dropped.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    handle: Handle<SocketAddr>,
    task: JoinHandle<io::Result<()>>,
}

impl Listening {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base address for clients.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate that clients must trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.handle.connection_count()
    }

    /// The administrator's access, as `kubectl` reads it.
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

    /// Writes the administrator's access to a file that only its owner can read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::Kubeconfig { path: path.display().to_string(), source };
        // A file that others could read keeps its mode when it is only truncated.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(self.kubeconfig().as_bytes()).map_err(failed)
    }

    /// Stops listening; requests that are under way have a moment to end.
    pub async fn stop(mut self) {
        self.handle.graceful_shutdown(Some(SHUTDOWN_TIME));
        // What the task returns no longer matters to anybody.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.task.abort();
    }
}

/// Listens on an address; port 0 takes a free one.
pub fn listen(core: &Arc<Core>, address: SocketAddr) -> Result<Listening, Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (config, ca_pem) = certificates(address)?;
    let handle = Handle::new();
    let tls =
        RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config))).handshake_timeout(HEAD_TIME_MAX);
    let acceptor = Guard::new(tls);
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
    let service = router(Arc::clone(core), Access::Token).into_make_service();
    let task = tokio::spawn(server.serve(service));
    Ok(Listening { address, ca_pem, token: core.admin_token.clone(), handle, task })
}

/// A certificate for the server, signed by an authority that is made for it, and the authority's certificate.
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
