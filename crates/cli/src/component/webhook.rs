//! Serves webhooks over TLS, with the certificate that is in the folder at the time.

use crate::args::component::Webhook;
use anyhow::{Context, Result};
use axum_server::tls_rustls::RustlsConfig;
use kai_runtime::http;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How often the certificate is read again: whoever renews it replaces the files.
const RELOAD: Duration = Duration::from_mins(1);

/// A server for webhooks.
pub(super) async fn server(
    flags: &Webhook,
    router: axum::Router,
) -> Result<impl Future<Output = io::Result<()>> + Send + use<>> {
    // The first to choose a provider chooses for the process; all choose the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (certificate, key) = (flags.webhook_cert_dir.join("tls.crt"), flags.webhook_cert_dir.join("tls.key"));
    let config = RustlsConfig::from_pem_file(&certificate, &key).await.with_context(|| {
        format!(
            "cannot read the webhook's certificate in `{}`; hint: --webhook-cert-dir names the folder with tls.crt and \
             tls.key, and the webhook can be switched off",
            flags.webhook_cert_dir.display()
        )
    })?;
    let (listener, address) = http::listen(&flags.webhook_bind_address)
        .await
        .with_context(|| format!("cannot listen on `{}`", flags.webhook_bind_address))?;
    tracing::info!(%address, "serving webhooks");
    let listener = listener.into_std().context("cannot hand the port on")?;
    let server = axum_server::from_tcp_rustls(listener, config.clone()).context("cannot serve webhooks")?;
    Ok(async move {
        tokio::select! {
            biased;
            ended = server.serve(router.into_make_service()) => ended,
            () = reload(config, certificate, key) => Ok(()),
        }
    })
}

async fn reload(config: RustlsConfig, certificate: PathBuf, key: PathBuf) {
    loop {
        tokio::time::sleep(RELOAD).await;
        if let Err(error) = config.reload_from_pem_file(&certificate, &key).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the webhook's certificate cannot be read again"
            );
        }
    }
}
