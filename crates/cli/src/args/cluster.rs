//! Options that select a cluster, shared by all commands that read one.

use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Kubeconfig {
    /// Path to the kubeconfig; default: as for kubectl.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: the current context.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A cluster as one scheduler reads it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Cluster {
    #[command(flatten)]
    pub(crate) kubeconfig: Kubeconfig,
    /// Node pool of the scheduler; default: objects without the label `kai.scheduler/node-pool`.
    #[arg(long, value_name = "NAME")]
    pub(crate) node_pool: Option<String>,
}
