//! HTTP endpoints of every process: `/metrics`, `/healthz`, `/readyz`.

use crate::health::Health;
use crate::metrics::components::Registries;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::{Encoder as _, TextEncoder};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;

/// Connections that wait to be accepted, as tokio's listeners allow.
const BACKLOG: i32 = 1_024;

pub fn router(metrics: impl Into<Registries>, health: Health) -> Router {
    let metrics = metrics.into();
    Router::new()
        .route("/metrics", get(move || std::future::ready(scrape(&metrics))))
        .route("/healthz", get(|| std::future::ready("ok")))
        .route("/readyz", get(move || std::future::ready(ready(&health))))
        .merge(profiling())
}

/// Why there are no profiles.
pub const NO_PROFILES: &str = "this program offers no profiles over HTTP; hint: use `perf record -g -p PID` on its node, \
                               and `perf script` or a flame graph of it";

/// KAI's scheduler serves Go's profiles under these paths.
pub fn profiling() -> Router {
    let refused = || std::future::ready((StatusCode::NOT_IMPLEMENTED, format!("{NO_PROFILES}\n")));
    Router::new().route("/debug/pprof/", get(refused)).route("/debug/pprof/{*profile}", get(refused))
}

fn scrape(metrics: &Registries) -> impl IntoResponse + use<> {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&metrics.gather(), &mut text) {
        Ok(()) => Ok(([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text)),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

fn ready(health: &Health) -> (StatusCode, String) {
    let problems = health.problems();
    if problems.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n")
    }
}

/// Listens on an address; one without a host, such as `:8080`, means all interfaces with IPv6 and IPv4, as in Go.
pub async fn listen(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = match address.strip_prefix(':') {
        Some(port) => listen_everywhere(port).await?,
        None => TcpListener::bind(address).await?,
    };
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn listen_everywhere(port: &str) -> io::Result<TcpListener> {
    let port: u16 = port
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("`{port}` is not a port number")))?;
    match dual_stack(port) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
            // The machine has no IPv6.
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        listener => listener,
    }
}

/// An IPv6 socket that also accepts IPv4, whatever `net.ipv6.bindv6only` says.
fn dual_stack(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    axum::serve(listener, router).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Registry;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn address_without_a_host_accepts_ipv4_and_ipv6() {
        let (listener, address) = listen(":0").await.unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.expect("IPv4 is accepted");
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, address.port())).await.expect("IPv6 is accepted");
        }
        let taken = listen(&format!(":{}", address.port())).await;
        assert_eq!(taken.expect_err("the port is taken").kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(listen(":http").await.is_err_and(|error| error.to_string().contains("`http`")));
    }

    #[tokio::test]
    async fn profiles_are_refused_with_a_reason() {
        let (listener, address) = listen("127.0.0.1:0").await.unwrap();
        let _server = tokio::spawn(serve(listener, router(Registry::new(), Health::default())));
        let client = crate::connect::plain(&format!("http://{address}")).unwrap();
        for path in ["/debug/pprof/", "/debug/pprof/profile?seconds=5"] {
            let request = axum::http::Request::get(path).body(Vec::new()).unwrap();
            let error = client.request_text(request).await.unwrap_err();
            assert!(error.to_string().contains("perf record"), "{error}");
        }
    }

    #[tokio::test]
    async fn readiness_lists_the_problems() {
        let health = Health::default();
        let pods = health.watch("pods");
        assert_eq!(
            ready(&health),
            (StatusCode::SERVICE_UNAVAILABLE, "pods have not been listed yet\n".to_owned())
        );
        pods.healthy();
        assert_eq!(ready(&health).0, StatusCode::OK);
    }
}
