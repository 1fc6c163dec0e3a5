//! Options that select a cluster, shared by all commands that read one.

use crate::completion::{self, Names};
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Kubeconfig {
    /// Path to the kubeconfig; default: as for kubectl.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: the current context.
    #[arg(long, value_name = "NAME", add = completion::of(Names::Contexts))]
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

/// A namespace, or all of them, as with kubectl.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Namespace {
    /// Namespace; default: that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAME", add = completion::of(Names::Namespaces))]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}
