//! HTTP endpoints of every process: `/metrics`, `/healthz`, `/readyz`.

use crate::health::Health;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::{Encoder as _, Registry, TextEncoder};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

pub fn router(metrics: Registry, health: Health) -> Router {
    Router::new()
        .route("/metrics", get(move || std::future::ready(scrape(&metrics))))
        .route("/healthz", get(|| std::future::ready("ok")))
        .route("/readyz", get(move || std::future::ready(ready(&health))))
}

fn scrape(metrics: &Registry) -> impl IntoResponse + use<> {
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

/// Listens on an address; one without a host, such as `:8080`, means all interfaces.
pub async fn listen(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
    let listener = TcpListener::bind(&full).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    axum::serve(listener, router).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
