//! The way to the cluster, and what to do when there is none.

use anyhow::{Result, anyhow, bail};
use kai_runtime::api::{self, Api};
use kai_runtime::connect;
use kai_scheduler::resources::{self, Offered};
use std::path::PathBuf;
use std::time::Duration;

/// What we call ourselves to the server.
const AGENT: &str = "kai-cli";
/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// A cluster that answers.
pub(super) struct Connection {
    pub(super) api: Api,
    /// Where objects are that are named without a namespace.
    pub(super) namespace: String,
    /// Where the server is.
    pub(super) url: String,
    /// What it offers of the kinds that not every cluster has.
    pub(super) offered: Offered,
}

impl Connection {
    /// Connects, and waits for a first answer.
    pub(super) async fn open(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Self> {
        let config = connect::config(kubeconfig, context).await.map_err(|error| {
            let hint = "name a kubeconfig with --kubeconfig, and one of its contexts with --context; `kai up` starts a \
                        cluster to try";
            anyhow!("{:#}; hint: {hint}", anyhow::Error::from(error))
        })?;
        let (namespace, url) = (config.default_namespace.clone(), config.cluster_url.to_string());
        let url = url.trim_end_matches('/').to_owned();
        let client = connect::client(config)?;
        let api = Api::new(client, AGENT);
        let offered = tokio::time::timeout(PATIENCE, resources::offered(&api)).await;
        let Ok(offered) = offered else {
            bail!(
                "the cluster at {url} did not answer within {} s; hint: check the network, or choose another with \
                 --kubeconfig or --context",
                PATIENCE.as_secs()
            );
        };
        let offered = offered.map_err(|error| unreachable(&url, &error))?;
        Ok(Self { api, namespace, url, offered })
    }
}

/// Says why a request failed, and what can be done about it.
pub(super) fn unreachable(url: &str, error: &api::Error) -> anyhow::Error {
    let hint = match error.code() {
        0 => "check that the cluster runs, or choose another with --kubeconfig or --context",
        401 => "the kubeconfig's credentials are not, or no longer, valid there",
        403 => "ask for the right to list what the scheduler reads",
        _ => "try again, or look at the server's log",
    };
    anyhow!("the cluster at {url} cannot be read: {}; hint: {hint}", told(error))
}

/// What went wrong, down to the last cause.
fn told(error: &api::Error) -> String {
    let mut text = error.told();
    let mut cause = std::error::Error::source(error).and_then(std::error::Error::source);
    while let Some(deeper) = cause {
        let words = deeper.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = deeper.source();
    }
    text
}
