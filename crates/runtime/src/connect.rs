//! Connections to the API server: configuration from a kubeconfig or in-cluster, and the client.

mod transport;

use crate::metrics::requests::RequestMetrics;
use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use prometheus::Registry;
use std::path::{Path, PathBuf};
use std::time::Duration;
use transport::Keepalive;

/// Time limit of a TCP connection with its TLS handshake; client-go allows as much for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use kubeconfig `{path}`")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Cause,
    },
    #[error(
        "found no cluster: neither `KUBECONFIG`, nor ~/.kube/config, nor the credentials of a pod can be used{}",
        .0.as_ref().map_or_else(String::new, |in_pod| format!(": {in_pod}"))
    )]
    Nowhere(Option<String>),
    #[error("context `{context}` not found in {file}, which has {known}")]
    Context {
        context: String,
        /// The file or files, as text.
        file: String,
        /// The contexts there are, as text.
        known: String,
    },
    #[error("`{url}` is not a URL; hint: use the form http://host:port")]
    Url {
        url: String,
        #[source]
        source: http::uri::InvalidUri,
    },
    #[error("`tls-server-name` of the cluster is `{name}`, which is not a host name")]
    ServerName { name: String },
    #[error("cannot connect to {url}")]
    Client {
        url: String,
        #[source]
        source: kube::Error,
    },
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The cause without the path, which the error names already.
fn cause(error: KubeconfigError) -> Cause {
    if let KubeconfigError::ReadConfig(source, _) = error { source.into() } else { error.into() }
}

/// Outside a pod there is nothing to say of the credentials of one.
fn nowhere(error: &InferConfigError) -> Error {
    let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    Error::Nowhere(is_pod.then(|| error.to_string()))
}

/// The configuration of a client: from a file, else from `KUBECONFIG` or ~/.kube/config, else that of a pod.
pub async fn config(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Config, Error> {
    let unusable = |error: KubeconfigError| {
        // One of several.
        let path = if let KubeconfigError::ReadConfig(_, path) = &error { Some(path.clone()) } else { None };
        let path = path.unwrap_or_else(|| PathBuf::from(location(kubeconfig.as_ref())));
        Error::Kubeconfig { path, source: cause(error) }
    };
    let file = match read(kubeconfig.as_ref()) {
        Ok(file) => file,
        // There is no file in a pod.
        Err(_) if kubeconfig.is_none() && context.is_none() && !is_configured() => {
            return Config::infer().await.map(without_retries).map_err(|error| nowhere(&error));
        }
        Err(error) => return Err(unusable(error)),
    };
    let wanted = context.as_ref().or(file.current_context.as_ref()).filter(|name| !name.is_empty());
    let known = names(&file);
    match wanted {
        Some(wanted) if !known.contains(wanted) => {
            let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            return Err(Error::Context {
                context: wanted.clone(),
                file: format!("`{}`", location(kubeconfig.as_ref())),
                known: if quoted.is_empty() { "no contexts".to_owned() } else { quoted.join(", ") },
            });
        }
        None if kubeconfig.is_none() => {
            return Config::infer().await.map(without_retries).map_err(|error| nowhere(&error));
        }
        Some(_) | None => {}
    }
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?;
    Ok(without_retries(config))
}

/// The names of the contexts of a kubeconfig; none where it cannot be read.
pub fn contexts(kubeconfig: Option<&PathBuf>) -> Vec<String> {
    read(kubeconfig).map(|file| names(&file)).unwrap_or_default()
}

fn read(path: Option<&PathBuf>) -> Result<Kubeconfig, KubeconfigError> {
    path.map_or_else(Kubeconfig::read, Kubeconfig::read_from)
}

fn names(file: &Kubeconfig) -> Vec<String> {
    file.contexts.iter().map(|context| context.name.clone()).collect()
}

/// Whether `KUBECONFIG` is set, or a file is in the home directory.
fn is_configured() -> bool {
    std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty())
        || Path::new(&location(None)).exists()
}

/// Where the kubeconfig is: the file, the files of `KUBECONFIG`, or the one in the home directory.
fn location(path: Option<&PathBuf>) -> String {
    let set = || std::env::var("KUBECONFIG").ok().filter(|paths| !paths.is_empty());
    let home = || std::env::var("HOME").unwrap_or_else(|_| "~".to_owned()) + "/.kube/config";
    path.map_or_else(|| set().unwrap_or_else(home), |path| path.display().to_string())
}

/// Limits the time to connect, and disables kube's retries: an eviction rejected by a disruption budget is a 429 like
/// that of an overloaded server, and must not be repeated.
fn without_retries(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    config
}

/// Together well below the renew deadline of a lease, so that there is time for another attempt.
const LEASE_KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(2), timeout: Duration::from_secs(2) };

/// A client that notices a peer that vanished.
pub fn client(config: Config) -> Result<kube::Client, Error> {
    measured_client(config, &Registry::new())
}

/// As [`client`]; its requests are counted in `metrics`.
pub fn measured_client(config: Config, metrics: &Registry) -> Result<kube::Client, Error> {
    transport::client(config, Keepalive::default(), RequestMetrics::register(metrics))
}

/// A client for lease renewals. With a connection of its own, and pings that find a vanished peer long before the renew
/// deadline, one silent connection does not cost the lease.
pub fn lease_client(config: Config) -> Result<kube::Client, Error> {
    transport::client(config, LEASE_KEEPALIVE, RequestMetrics::register(&Registry::new()))
}

/// An unauthenticated client of a server that is not a Kubernetes API.
pub fn plain(url: &str) -> Result<kube::Client, Error> {
    let parsed = url.parse().map_err(|source| Error::Url { url: url.to_owned(), source })?;
    client(Config::new(parsed))
}

#[cfg(test)]
mod tests;
