//! Connects to a server: by kubeconfig, or as a pod of the cluster.

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be used.
    #[error("cannot use kubeconfig `{path}`")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// Neither a kubeconfig nor a pod's credentials were found.
    #[error(
        "found no cluster: neither `KUBECONFIG`, nor ~/.kube/config, nor the credentials of a pod can be used"
    )]
    Nowhere(#[source] kube::config::InferConfigError),
    /// The address is none.
    #[error("`{url}` is no address; hint: it looks like http://host:port")]
    Url {
        /// What was given.
        url: String,
        /// Why.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The configuration makes no client.
    #[error("cannot connect to {url}")]
    Client {
        /// The server.
        url: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

/// Where the server is and who we are to it.
pub async fn config(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Config, Error> {
    let Some(path) = kubeconfig else {
        if context.is_none() {
            return Config::infer().await.map(patient).map_err(Error::Nowhere);
        }
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = Config::from_kubeconfig(&options).await;
        return config
            .map(patient)
            .map_err(|source| Error::Kubeconfig { path: PathBuf::from("~/.kube/config"), source });
    };
    let unusable = |source| Error::Kubeconfig { path: path.clone(), source };
    let file = Kubeconfig::read_from(&path).map_err(unusable)?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?;
    Ok(patient(config))
}

/// Watches stay silent for long; whoever waits for an answer has a time limit of its own. Whether a request is sent again
/// is decided by whoever sends it: a disruption budget says 429 like a busy server, and asking again does not help.
fn patient(mut config: Config) -> Config {
    config.read_timeout = None;
    config.write_timeout = Some(Duration::from_secs(30));
    config.default_retry = false;
    config
}

/// A client of the server.
pub fn client(config: Config) -> Result<kube::Client, Error> {
    let url = config.cluster_url.to_string();
    kube::Client::try_from(config).map_err(|source| Error::Client { url, source })
}

/// A client of a server that is no Kubernetes API, and to which we are nobody in particular.
pub fn plain(url: &str) -> Result<kube::Client, Error> {
    let parsed = url.parse().map_err(|source| Error::Url { url: url.to_owned(), source })?;
    client(Config::new(parsed))
}
