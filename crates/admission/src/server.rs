//! Serves admission webhooks over TLS. The certificate comes from a directory or from a Secret, and is reloaded when it
//! changes.

use crate::certificate::{Certificate, Stored};
use axum::Router;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;
use k8s_openapi::api::core::v1::Secret;
use kai_runtime::api::Api;
use kai_runtime::health::WatchHealth;
use kai_runtime::kind::{self, ResourceKind};
use kai_runtime::{Key, http};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the certificate files are read again; certificate rotation replaces them in place.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);
/// How often the Secret is read until it has a certificate.
const FIRST_SECRET_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of the TLS handshake and of the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) const SECRET: ResourceKind = kind::builtin::<Secret>();

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
    install_crypto_provider();
    let (certificate, key) = (certificate_directory.join("tls.crt"), certificate_directory.join("tls.key"));
    let config = RustlsConfig::from_pem_file(&certificate, &key)
        .await
        .map_err(|source| Error::Certificate { directory: certificate_directory.to_owned(), source })?;
    let listener = listen(address).await?;
    Ok(async move {
        tokio::select! {
            biased;
            ended = run(listener, config.clone(), router) => ended,
            () = reload(&config, &certificate, &key) => Ok(()),
        }
    })
}

/// Binds the address, and returns it with the future that serves `router` there with one certificate.
pub async fn serve_with(
    address: &str,
    certificate: &Certificate,
    router: Router,
) -> Result<(SocketAddr, impl Future<Output = io::Result<()>> + Send + use<>), Error> {
    install_crypto_provider();
    let Certificate { certificate, key, .. } = certificate.clone();
    let config = RustlsConfig::from_pem(certificate.into_bytes(), key.into_bytes()).await;
    let config = config.map_err(|source| Error::Serve { source })?;
    let listener = listen(address).await?;
    let bound = listener.local_addr().map_err(|source| Error::Serve { source })?;
    Ok((bound, run(listener, config, router)))
}

/// The Secret with the certificate to serve.
#[derive(Clone, Debug)]
pub struct SecretSource {
    pub api: Api,
    pub secret: Key,
    /// How often the Secret is read again. A rotated certificate is trusted long before the old one expires.
    pub reload_interval: Duration,
    /// The process is ready as soon as it has a certificate.
    pub health: WatchHealth,
}

/// Binds the address and returns the future that serves `router` there with the certificate of a Secret, as soon as that
/// has one. Until then the process is not ready.
pub async fn serve_from_secret(
    address: &str,
    source: SecretSource,
    router: Router,
) -> Result<impl Future<Output = io::Result<()>> + Send + use<>, Error> {
    install_crypto_provider();
    let listener = listen(address).await?;
    Ok(async move {
        let SecretSource { api, secret, reload_interval, health } = source;
        let (mut served, config) = loop {
            match certificate(&api, &secret).await {
                Ok((certificate, key)) => {
                    match RustlsConfig::from_pem(certificate.clone().into_bytes(), key.into_bytes()).await {
                        Ok(config) => break (certificate, config),
                        Err(error) => {
                            unusable(&secret, &error);
                            health.interrupted(&format!("secret `{secret}`: {error}"));
                        }
                    }
                }
                Err(why) => health.interrupted(&why),
            }
            tokio::time::sleep(FIRST_SECRET_INTERVAL).await;
        };
        health.healthy();
        let follow = async {
            loop {
                tokio::time::sleep(reload_interval).await;
                let Ok((certificate, key)) = certificate(&api, &secret).await else { continue };
                if certificate == served {
                    continue;
                }
                match config.reload_from_pem(certificate.clone().into_bytes(), key.into_bytes()).await {
                    Ok(()) => {
                        tracing::info!(%secret, "serving webhooks with a new certificate");
                        served = certificate;
                    }
                    Err(error) => {
                        unusable(&secret, &error);
                    }
                }
            }
        };
        tokio::select! {
            biased;
            ended = run(listener, config.clone(), router) => ended,
            () = follow => Ok(()),
        }
    })
}

/// Logs and returns why a certificate is not served.
fn unusable(secret: &Key, error: &io::Error) {
    tracing::warn!(
        %secret,
        error = error as &dyn std::error::Error,
        "the webhook certificate cannot be used; hint: delete the Secret, and a new one is created"
    );
}

/// Certificate and key of a Secret, or why there are none now.
async fn certificate(api: &Api, secret: &Key) -> Result<(String, String), String> {
    match api.get_dynamic(&SECRET, secret).await {
        Ok(found) => {
            let current = Stored::of(&found).current;
            current
                .map(|current| (current.certificate, current.key))
                .ok_or_else(|| format!("secret `{secret}` has no certificate yet"))
        }
        Err(error) if error.is_not_found() => Err(format!("secret `{secret}` does not exist yet")),
        Err(error) => {
            tracing::warn!(%secret, error = &error as &dyn std::error::Error, "cannot read the webhook certificate");
            Err(error.to_string())
        }
    }
}

/// The crypto provider is process-wide; an error means that another part of the process installed the same one.
fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

async fn listen(address: &str) -> Result<TcpListener, Error> {
    let failed = |source| Error::Listen { address: address.to_owned(), source };
    let (listener, bound) = http::listen(address).await.map_err(failed)?;
    tracing::info!(address = %bound, "serving webhooks");
    listener.into_std().map_err(|source| Error::Serve { source })
}

async fn run(listener: TcpListener, config: RustlsConfig, router: Router) -> io::Result<()> {
    let acceptor = RustlsAcceptor::new(config).handshake_timeout(HEAD_TIMEOUT);
    let mut server = axum_server::from_tcp(listener)?.acceptor(acceptor);
    server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    server.serve(router.into_make_service()).await
}

async fn reload(config: &RustlsConfig, certificate: &Path, key: &Path) {
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        if let Err(error) = config.reload_from_pem_file(certificate, key).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot reload the webhook certificate; the previous one stays in use"
            );
        }
    }
}
