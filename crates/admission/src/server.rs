//! Serves admission webhooks over TLS and reloads the certificate from its directory.

use axum::Router;
use axum_server::tls_rustls::RustlsConfig;
use kai_runtime::http;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the certificate files are read again; certificate rotation replaces them in place.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot read the webhook's certificate in `{}`; hint: --webhook-cert-dir names the folder with tls.crt and tls.key, \
         and the webhook can be switched off",
        directory.display()
    )]
    Certificate { directory: PathBuf, source: io::Error },
    #[error("cannot listen on `{address}`")]
    Listen { address: String, source: io::Error },
    #[error("cannot serve webhooks")]
    Serve { source: io::Error },
}

/// Binds the address and returns the future that serves `router` there.
///
/// `certificate_directory` holds `tls.crt` and `tls.key`, as cert-manager and KAI's chart mount them.
pub async fn serve(
    address: &str,
    certificate_directory: &Path,
    router: Router,
) -> Result<impl Future<Output = io::Result<()>> + Send + use<>, Error> {
    // The crypto provider is process-wide; an error means that another part of the process installed the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (certificate, key) = (certificate_directory.join("tls.crt"), certificate_directory.join("tls.key"));
    let config = RustlsConfig::from_pem_file(&certificate, &key)
        .await
        .map_err(|source| Error::Certificate { directory: certificate_directory.to_owned(), source })?;
    let (listener, bound) = http::listen(address)
        .await
        .map_err(|source| Error::Listen { address: address.to_owned(), source })?;
    tracing::info!(address = %bound, "serving webhooks");
    let listener = listener.into_std().map_err(|source| Error::Serve { source })?;
    let server =
        axum_server::from_tcp_rustls(listener, config.clone()).map_err(|source| Error::Serve { source })?;
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
        tokio::time::sleep(RELOAD_INTERVAL).await;
        if let Err(error) = config.reload_from_pem_file(&certificate, &key).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot reload the webhook certificate; the previous one stays in use"
            );
        }
    }
}
