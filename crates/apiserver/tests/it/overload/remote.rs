//! A server in a separate process, so that its memory can be measured, and raw connections to it.

use crate::server;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Makes this test program the server; its value is the file for the endpoint.
const VARIABLE: &str = "KAI_TEST_SERVE";

/// The server side of [`Remote::start`], which re-executes this test program with this one test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_until_the_parent_process_ends() {
    let Some(file) = std::env::var_os(VARIABLE) else { return };
    let listening = server().listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let access: Value = serde_saphyr::from_str(&listening.kubeconfig()).unwrap();
    let token = access["users"][0]["user"]["token"].as_str().unwrap();
    let endpoint = format!("{}\n{token}\n{}", listening.address(), listening.ca_pem());
    let unfinished = std::path::Path::new(&file).with_extension("new");
    std::fs::write(&unfinished, endpoint).unwrap();
    std::fs::rename(&unfinished, &file).unwrap();
    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await.unwrap().unwrap();
    listening.stop().await;
}

/// A server in another process; dropping it ends the process.
pub(super) struct Remote {
    child: Child,
    _stdin: ChildStdin,
    address: SocketAddr,
    token: String,
    authority: String,
}

impl Remote {
    pub(super) async fn start(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("kai-remote-{}-{name}", std::process::id()));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "overload::remote::serves_until_the_parent_process_ends"])
            .env(VARIABLE, &file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(child.try_wait().unwrap().is_none(), "the server ended");
        }
        let endpoint = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut lines = endpoint.splitn(3, '\n');
        let mut next = || lines.next().unwrap().to_owned();
        let (address, token, authority) = (next().parse().unwrap(), next(), next());
        Self { child, _stdin: stdin, address, token, authority }
    }

    /// The server's resident memory in KiB.
    pub(super) fn resident_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The number of open file descriptors of the server.
    pub(super) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub(super) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(super) async fn tls(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::from(self.address.ip());
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await.unwrap()
    }

    pub(super) async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.tls(b"http/1.1").await);
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub(super) async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.tls(b"h2").await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// A request with the administrator's token.
    pub(super) fn request(&self, method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap()
    }

    /// A raw request head without its final empty line.
    pub(super) fn head(&self, first: &str) -> String {
        format!("{first} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n", self.address, self.token)
    }

    /// Sends a request on a new connection; returns status and body.
    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let response = self.http1().await.send_request(self.request(method, path, body)).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a body to the end of its next line.
pub(super) async fn line(body: &mut Incoming, rest: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            return serde_json::from_slice(&line).ok();
        }
        let frame = body.frame().await?.ok()?;
        rest.extend_from_slice(frame.data_ref()?);
    }
}
