//! The connection of the view commands to a cluster, with hints for failures.

use crate::args;
use crate::progress::Progress;
use anyhow::{Result, anyhow, bail};
use kai_engine::plugin::PluginSet;
use kai_runtime::api::{self, Api};
use kai_runtime::connect;
use kai_scheduler::Options;
use kai_scheduler::resources::{self, ServedApis};
use kai_view::{ClusterReader, reader};
use std::io::Write as _;
use std::time::Duration;

const USER_AGENT: &str = "kai-cli";
/// How long the first response may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct Connection {
    pub(crate) api: Api,
    /// Default namespace of the context.
    pub(crate) namespace: String,
    pub(crate) url: String,
    /// Optional APIs that the cluster serves.
    pub(crate) offered: ServedApis,
}

/// The options of the scheduler that a cluster is read as.
pub(crate) fn scheduler_options(args: &args::Cluster) -> Options {
    let mut options = Options::default();
    if let Some(pool) = &args.node_pool {
        options.settings.node_pool_value.clone_from(pool);
        options.params.node_pool.clone_from(pool);
    }
    options
}

impl Connection {
    /// Connects, and waits for a first response.
    pub(crate) async fn open(args: &args::Kubeconfig) -> Result<Self> {
        let config = connect::config(args.kubeconfig.clone(), args.context.clone()).await.map_err(|error| {
            let hint = if matches!(error, connect::Error::Context { .. }) {
                "name one of them with --context, or another file with --kubeconfig"
            } else {
                "select a kubeconfig with --kubeconfig, and one of its contexts with --context; `kai up` starts a \
                 cluster for trials"
            };
            anyhow!("{}; hint: {hint}", crate::with_causes(&error.into()))
        })?;
        let (namespace, url) = (config.default_namespace.clone(), config.cluster_url.to_string());
        let url = url.trim_end_matches('/').to_owned();
        let client = connect::client(config)?;
        let api = Api::new(client, USER_AGENT);
        let offered = tokio::time::timeout(CONNECT_TIMEOUT, resources::discover(&api)).await;
        let Ok(offered) = offered else {
            bail!(
                "the cluster at {url} did not respond within {} s; hint: check the network, or select another cluster \
                 with --kubeconfig or --context",
                CONNECT_TIMEOUT.as_secs()
            );
        };
        let offered = offered.map_err(|error| unreachable(&url, &error))?;
        Ok(Self { api, namespace, url, offered })
    }

    /// Connects and lists the cluster; warnings are printed.
    pub(crate) async fn read(
        args: &args::Cluster,
        options: Options,
        plugins: &PluginSet,
    ) -> Result<(Self, ClusterReader)> {
        let progress = Progress::start("reading the cluster");
        let connection = Self::open(&args.kubeconfig).await?;
        let reader = ClusterReader::open(&connection.api, connection.offered, options, plugins).await;
        let reader = reader.map_err(|error| connection.explain(error))?;
        drop(progress);
        for warning in reader.warnings() {
            writeln!(anstream::stderr(), "warning: {warning}")?;
        }
        Ok((connection, reader))
    }

    /// Adds the cluster and a hint to an error of the reader.
    fn explain(&self, error: reader::Error) -> anyhow::Error {
        let url = &self.url;
        match error {
            reader::Error::NotInstalled { plural, api_version } => anyhow!(
                "the cluster at {url} has no {plural} of {api_version}: KAI's custom resource definitions are not \
                 installed; hint: `kai crds | kubectl apply --server-side -f -` installs them"
            ),
            reader::Error::Request(error) => unreachable(url, &error),
            error @ (reader::Error::Timeout | reader::Error::Task(_)) => anyhow::Error::from(error)
                .context(format!("the cluster at {url} cannot be read; hint: try again")),
        }
    }
}

fn unreachable(url: &str, error: &api::Error) -> anyhow::Error {
    let hint = match error.code() {
        0 => "check that the cluster runs, or select another one with --kubeconfig or --context",
        401 => "the credentials of the kubeconfig are invalid or have expired",
        403 => "the user needs the right to list what the scheduler reads",
        _ => "try again, or check the log of the API server",
    };
    anyhow!("the cluster at {url} cannot be read: {}; hint: {hint}", cause(error))
}

/// The message of an error with those of its sources.
fn cause(error: &api::Error) -> String {
    let mut text = error.message();
    let mut source = std::error::Error::source(error).and_then(std::error::Error::source);
    while let Some(deeper) = source {
        let message = deeper.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = deeper.source();
    }
    text
}
