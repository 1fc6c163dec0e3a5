//! Client configuration: from a kubeconfig, or in-cluster.

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use kubeconfig `{path}`")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: kube::config::KubeconfigError,
    },
    #[error(
        "found no cluster: neither `KUBECONFIG`, nor ~/.kube/config, nor the credentials of a pod can be used"
    )]
    Nowhere(#[source] kube::config::InferConfigError),
    #[error("`{url}` is not a URL; hint: use the form http://host:port")]
    Url {
        url: String,
        #[source]
        source: http::uri::InvalidUri,
    },
    #[error("cannot connect to {url}")]
    Client {
        url: String,
        #[source]
        source: kube::Error,
    },
}

pub async fn config(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Config, Error> {
    let Some(path) = kubeconfig else {
        if context.is_none() {
            return Config::infer().await.map(without_retries).map_err(Error::Nowhere);
        }
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = Config::from_kubeconfig(&options).await;
        return config
            .map(without_retries)
            .map_err(|source| Error::Kubeconfig { path: PathBuf::from("~/.kube/config"), source });
    };
    let unusable = |source| Error::Kubeconfig { path: path.clone(), source };
    let file = Kubeconfig::read_from(&path).map_err(unusable)?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?;
    Ok(without_retries(config))
}

/// Disables kube's read timeout, since watches are silent for long and [`Api`](crate::api::Api) has its own limit, and kube's
/// retries: an eviction rejected by a disruption budget is a 429 like that of an overloaded server, and must not be repeated.
fn without_retries(mut config: Config) -> Config {
    config.read_timeout = None;
    config.write_timeout = Some(Duration::from_secs(30));
    config.default_retry = false;
    config
}

pub fn client(config: Config) -> Result<kube::Client, Error> {
    let url = config.cluster_url.to_string();
    kube::Client::try_from(config).map_err(|source| Error::Client { url, source })
}

/// An unauthenticated client of a server that is not a Kubernetes API.
pub fn plain(url: &str) -> Result<kube::Client, Error> {
    let parsed = url.parse().map_err(|source| Error::Url { url: url.to_owned(), source })?;
    client(Config::new(parsed))
}
