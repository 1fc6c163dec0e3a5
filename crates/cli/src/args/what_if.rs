//! Options of `kai what-if`.

use super::Cluster;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  kai what-if -f train.yaml                        what would become of a workload
  kai what-if -f train.yaml --set queue/team-a.gpu.quota=16
  kai what-if --drain node-3 --drain node-4        which pods would move, and which would not fit
  kai what-if -f train.yaml --add-nodes 4x8        with four more nodes of eight GPUs
  kai what-if --config new.yaml --snapshot cluster.zip
  kubectl get job train -o yaml | kai what-if -f - --snapshot cluster.zip

The command reads the objects that the scheduler reads, changes them in memory and plans one cycle. Nothing is written.

Exit codes: 0 every submitted pod group would start, 1 one would not, 2 error.
";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct WhatIf {
    /// Manifests (YAML or JSON) of workloads, and of objects such as queues and priority classes; `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set a quota or limit: `queue/NAME.RESOURCE.quota=AMOUNT` or `…limit=…`, with the resource gpu, cpu (cores) or memory;
    /// -1 is unlimited.
    #[arg(long = "set", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// Cordon a node and recreate its pods elsewhere.
    #[arg(long, value_name = "NODE")]
    pub(crate) drain: Vec<String>,
    /// Add nodes, as COUNTxGPUS; they are like a node of the cluster with as many GPUs, if there is one.
    #[arg(long, value_name = "COUNTxGPUS")]
    pub(crate) add_nodes: Vec<String>,
    /// Plan with this scheduler configuration, and compare with the present one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read the cluster from a snapshot file instead of the API server.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "node_pool"])]
    pub(crate) snapshot: Option<PathBuf>,
    /// Namespace of workloads that name none; default: that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
